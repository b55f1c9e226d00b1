//! The command line; see `majorfault --help`.

fn main() -> std::process::ExitCode {
    majorfault_lab::command::main()
}
