//! `majorfault list`, `completions` and `man`: what there is, from the same declarations that run it.

use crate::command::Exit;
use crate::doctor::tell::describe;
use crate::peer;
use crate::workload;
use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use majorfault::access::Method;
use majorfault::methods;
use majorfault::observe;
use majorfault::params::{Given, Param, Params};
use majorfault::prefetch;
use majorfault::{Error, Result};
use std::io::Write;
use std::path::PathBuf;

/// List the access methods, prefetch policies, workloads, peers or counters with their parameters, or the doctor's rules
#[derive(clap::Args)]
pub struct ListArgs {
    /// What to list
    #[arg(value_enum, default_value = "methods")]
    kind: Kind,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// As a table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// What there is several of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Ways to reach a file
    Methods,
    /// Ways to read ahead, for methods that take one: METHOD:policy=NAME
    Policies,
    /// Orders of accesses
    Workloads,
    /// Other programs to compare with
    Peers,
    /// What is counted during a run
    Counters,
    /// What the doctor recognises
    Rules,
}

/// Print completions for a shell
#[derive(clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Write the manual pages into a directory
#[derive(clap::Args)]
pub struct ManArgs {
    /// The directory
    dir: PathBuf,
}

/// One line of a list.
struct Line {
    name: String,
    says: String,
    params: Vec<Param>,
}

/// Runs `list`.
pub fn list(args: ListArgs) -> Result<Exit> {
    let ListArgs { kind, json, markdown } = args;
    let text = match (kind, json, markdown) {
        (Kind::Rules, true, _) => format!("{:#}\n", describe::document()),
        (Kind::Rules, _, true) => describe::markdown(),
        (_, true, _) => format!("{:#}\n", document(&lines(kind))),
        (_, _, true) => in_markdown(&lines(kind)),
        _ => table(rows(kind)),
    };
    let written = anstream::stdout().write_all(text.as_bytes());
    written.map_err(|error| Error::io("write the list", "standard output", error))?;
    Ok(Exit::Ok)
}

/// A method takes `policy` beside its own parameters, where it takes policies.
fn method_params(method: &Method) -> Vec<Param> {
    prefetch::params(method, &Given::none()).expect("no policy is named")
}

/// What every policy takes is listed once, at the end.
fn policy_lines() -> Vec<Line> {
    let line = |name: &str, says: &str, params| Line { name: name.to_owned(), says: says.to_owned(), params };
    let own = prefetch::ALL.iter().map(|it| line(it.name, it.summary, (it.params)()));
    own.chain([line("(each)", "parameters that every policy takes", prefetch::Common::declared())]).collect()
}

fn lines(kind: Kind) -> Vec<Line> {
    let line = |name: &str, says: &str, params| Line { name: name.to_owned(), says: says.to_owned(), params };
    match kind {
        Kind::Methods => methods::all().map(|it| line(it.name, it.summary, method_params(it))).collect(),
        Kind::Policies => policy_lines(),
        Kind::Workloads => workload::ALL.iter().map(|it| line(it.name, it.summary, (it.params)())).collect(),
        Kind::Peers => peer::ALL.iter().map(|it| line(it.name, it.summary, (it.params)())).collect(),
        Kind::Counters => {
            let all = observe::ALL.iter().flat_map(|source| source.counters).chain(observe::MAPPED);
            all.map(|it| line(it.name, &format!("{} [{:?}, {:?}]", it.doc, it.scope, it.unit), Vec::new())).collect()
        }
        // They have more to say than a line: see `describe`.
        Kind::Rules => Vec::new(),
    }
}

fn document(lines: &[Line]) -> serde_json::Value {
    let param = |param: &Param| {
        let Param { name, default, legal, doc } = param;
        serde_json::json!({ "name": name, "default": default, "legal": legal, "says": doc })
    };
    let params = |line: &Line| line.params.iter().map(param).collect::<Vec<_>>();
    lines
        .iter()
        .map(|line| serde_json::json!({ "name": line.name, "says": line.says, "params": params(line) }))
        .collect()
}

fn in_markdown(lines: &[Line]) -> String {
    let params = |line: &Line| {
        let params = line.params.iter().map(|Param { name, default, .. }| format!("`{name}={default}`"));
        params.collect::<Vec<_>>().join(" ")
    };
    let rows: String =
        lines.iter().map(|line| format!("| `{}` | {} | {} |\n", line.name, line.says, params(line))).collect();
    format!("| name | what it is | parameters |\n| --- | --- | --- |\n{rows}")
}

fn rows(kind: Kind) -> Vec<[String; 2]> {
    if kind == Kind::Rules {
        return describe::rows();
    }
    let param = |param: Param| {
        let Param { name, default, legal, doc } = param;
        [format!("  {name}={default}"), format!("  {doc} ({legal})")]
    };
    let of_line = |line: Line| [[line.name, line.says]].into_iter().chain(line.params.into_iter().map(param));
    lines(kind).into_iter().flat_map(of_line).collect()
}

fn table(rows: Vec<[String; 2]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(100);
    table.add_rows(rows);
    format!("{table}\n")
}

/// Runs `completions`.
pub fn completions(args: CompletionsArgs, command: &mut clap::Command) -> Result<Exit> {
    let CompletionsArgs { shell } = args;
    clap_complete::generate(shell, command, "majorfault", &mut std::io::stdout());
    Ok(Exit::Ok)
}

/// Runs `man`.
pub fn man(args: ManArgs, command: clap::Command) -> Result<Exit> {
    let ManArgs { dir } = args;
    std::fs::create_dir_all(&dir).map_err(|error| Error::io("make the directory", &dir, error))?;
    clap_mangen::generate_to(command, &dir).map_err(|error| Error::io("write the manual pages", &dir, error))?;
    Ok(Exit::Ok)
}
