//! `majorfault probe`: what this machine and these rights allow, each gap with its remedy.

use crate::command::Exit;
use crate::machine;
use crate::peer;
use crate::place;
use crate::record::Machine;
use crate::scratch;
use comfy_table::{ContentArrangement, Table, presets};
use majorfault::needs::Probe;
use majorfault::{Bytes, Error, Need, Result};
use std::io::Write;

/// Show what this machine and your rights allow, and how to get what they don't
#[derive(clap::Args)]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A need with what was found.
struct Found {
    need: &'static Need,
    probe: Probe,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<Exit> {
    let Args { json } = args;
    place::clean_stale();
    let found: Vec<Found> = needs().into_iter().map(|need| Found { need, probe: (need.probe)() }).collect();
    let dir = scratch::directory(None, Bytes::mib(1)).ok();
    let machine = machine::look(&dir.into_iter().collect::<Vec<_>>());
    let text = if json { format!("{:#}\n", document(&found, &machine)) } else { tables(&found, &machine) };
    let written = anstream::stdout().write_all(text.as_bytes());
    written.map_err(|error| Error::io("write the list", "standard output", error))?;
    Ok(Exit::Ok)
}

/// Every need of the library, of the lab and of the peers.
fn needs() -> Vec<&'static Need> {
    let own: [&'static Need; 3] = [&place::MEMORY_LIMIT, &scratch::DISK, &place::guest::QEMU];
    let peers = peer::ALL.iter().flat_map(|peer| peer.needs.iter().copied());
    majorfault::NEEDS.iter().copied().chain(own).chain(peers).collect()
}

fn document(found: &[Found], machine: &Machine) -> serde_json::Value {
    let facilities: Vec<_> = found
        .iter()
        .map(|Found { need, probe }| match probe {
            Ok(detail) => serde_json::json!({
                "name": need.name, "gives": need.summary, "here": true, "found": detail,
            }),
            Err(missing) => serde_json::json!({
                "name": need.name, "gives": need.summary, "here": false, "found": missing.reason,
                "remedy": missing.remedy,
            }),
        })
        .collect();
    let rights: serde_json::Map<_, _> =
        machine::rights().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    serde_json::json!({ "facilities": facilities, "rights": rights, "machine": machine })
}

fn tables(found: &[Found], machine: &Machine) -> String {
    let mut facilities = table();
    facilities.set_header(["facility", "here", "what it gives"]);
    for Found { need, probe } in found {
        let (here, says) = match probe {
            Ok(detail) => ("yes", format!("{}\n{detail}", need.summary)),
            Err(missing) if missing.remedy.is_empty() => ("no", format!("{}\n{}", need.summary, missing.reason)),
            Err(missing) => ("no", format!("{}\n{}\n→ {}", need.summary, missing.reason, missing.remedy)),
        };
        facilities.add_row([need.name.to_owned(), here.to_owned(), says]);
    }
    let mut here = table();
    for (name, value) in machine::rights() {
        here.add_row([name.to_owned(), value]);
    }
    let known = |value: Option<u64>| value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
    here.add_row(["machine", &format!("{} x {}", machine.cpus, machine.cpu)]);
    here.add_row(["memory", &Bytes(machine.memory_bytes).rounded()]);
    here.add_row(["kernel", &format!("{} {}", machine.kernel, machine.architecture)]);
    here.add_row(["pages", &format!("transparent huge pages {}, lru {}", machine.thp, machine.lru)]);
    here.add_row(["test data", &format!("{} on {}", machine.filesystem, machine.device)]);
    here.add_row(["read_ahead_kb", &known(machine.read_ahead_kb)]);
    here.add_row(["max_sectors_kb", &known(machine.max_sectors_kb)]);
    for remark in &machine.remarks {
        here.add_row(["remark", remark]);
    }
    format!("{facilities}\n\n{here}\n")
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(100);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_that_a_kind_declares_is_listed() {
        let listed: Vec<&str> = needs().iter().map(|need| need.name).collect();
        let methods = majorfault::methods::all().flat_map(|method| method.needs);
        let sources = majorfault::observe::ALL.iter().flat_map(|source| source.needs);

        for need in methods.chain(sources) {
            assert!(listed.contains(&need.name), "{} is not in the list of needs", need.name);
        }
    }
}
