//! The command line; see `faultline --help`.

fn main() -> std::process::ExitCode {
    faultline_lab::command::main()
}
