//! A picture of the machine as a screen of text and as JSON.

use super::group::{GroupLoss, label};
use super::loss::Loss;
use super::pass::{Pressure, counts_waits};
use super::survey::{FileLoss, Picture};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use majorfault::Bytes;
use serde_json::{Value, json};

/// Lines of a screen whose height is not known, and the fewest that are used.
pub const HEIGHT: usize = 24;

/// Lines that are not rows: three of the head, and an empty line and a head for each table.
const FIXED: usize = 3 + 3 * 2;

/// Columns of the widest line.
const WIDTH: u16 = 100;

/// The format of the JSON document.
const FORMAT: u64 = 1;

/// The rows of each table on a screen of so many lines: processes get half of them.
fn rows(height: usize) -> [usize; 3] {
    let room = height.max(HEIGHT).saturating_sub(FIXED + 1);
    let small = room / 4;
    [room - 2 * small, small, small]
}

/// The screen, of at most `height` lines (and no fewer than fit 24).
pub fn screen(picture: &Picture, height: usize) -> String {
    let [processes, groups, files] = rows(height);
    let seconds = picture.length.as_secs_f64().max(1e-3);
    let lossy: Vec<&Loss> = picture.processes.iter().filter(|loss| loss.is_any()).collect();
    let mut text = head(picture, lossy.len());
    let numbers = |loss: &Loss| [waited(loss, seconds), rate(loss.major, seconds), bytes(loss, seconds)];
    let process = |loss: &&Loss| {
        [vec![loss.pid.to_string(), clean(&loss.name)], numbers(loss).to_vec(), vec![how(loss)]].concat()
    };
    text +=
        &table(&["PID", "PROCESS", "LOST", "MAJOR/S", "READ/S", "KNOWN BY"], lossy.iter().take(processes).map(process));
    let group =
        |it: &GroupLoss| [vec![it.processes.to_string(), clean(&label(&it.path))], numbers(&it.sum).to_vec()].concat();
    text += &table(&["PROCS", "GROUP", "LOST", "MAJOR/S", "READ/S"], picture.groups.iter().take(groups).map(group));
    let file = |it: &FileLoss| {
        vec![it.pid.to_string(), clean(&it.path), share(it.waited_ns, seconds), rate(it.major, seconds)]
    };
    text += &table(&["PID", "FILE", "LOST", "MAJOR/S"], picture.files.iter().take(files).map(file));
    text
}

fn head(picture: &Picture, lossy: usize) -> String {
    let seconds = picture.length.as_secs_f64().max(1e-3);
    let Pressure { io_ns, memory_ns } = picture.pressure;
    let stalled = |ns: Option<u64>| ns.map_or("?".to_owned(), |ns| share(ns, seconds));
    let own = 100.0 * picture.own_cpu_ns as f64 / 1e9 / seconds;
    let known = match (&picture.gap, counts_waits()) {
        (Some(gap), _) => format!("no faults sampled: {gap}"),
        (None, false) => {
            "reads by calls count where kernel.task_delayacct is 1: sysctl kernel.task_delayacct=1".to_owned()
        }
        (None, true) => String::new(),
    };
    let first = format!(
        "majorfault top: {lossy} of {} processes lost time in file access, in {seconds:.1} s",
        picture.processes.len()
    );
    let second = format!(
        "machine stalled for devices {}, for memory {} · faults sampled of {} · own cost {own:.1} % of a processor",
        stalled(io_ns),
        stalled(memory_ns),
        picture.sampled.len()
    );
    let lines = [first, second, known].map(|line| line.chars().take(usize::from(WIDTH)).collect::<String>());
    lines.join("\n") + "\n"
}

fn table(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_width(WIDTH);
    table.set_header(columns);
    table.add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        if number != 1 && number < 5 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().chars().take(usize::from(WIDTH)).collect::<String>());
    lines.fold("\n".to_owned(), |text, line| text + &line + "\n")
}

/// The share of the interval that was waited; of several threads it may be more than all of it.
fn share(ns: u64, seconds: f64) -> String {
    format!("{:.1} %", 100.0 * ns as f64 / 1e9 / seconds)
}

fn waited(loss: &Loss, seconds: f64) -> String {
    match loss.waited_ns() {
        // Not known is not nothing.
        0 if loss.fault_ns.is_none() && !counts_waits() => "?".to_owned(),
        ns => share(ns, seconds),
    }
}

fn rate(count: u64, seconds: f64) -> String {
    format!("{:.0}", count as f64 / seconds)
}

fn bytes(loss: &Loss, seconds: f64) -> String {
    loss.read_bytes.map_or("?".to_owned(), |bytes| Bytes((bytes as f64 / seconds) as u64).rounded())
}

fn how(loss: &Loss) -> String {
    match (loss.fault_ns, loss.device_ns) {
        (Some(_), 0) => "faults sampled",
        (Some(_), _) => "faults sampled, waits counted",
        (None, 0) => "counters",
        (None, _) => "waits counted",
    }
    .to_owned()
}

/// Control characters as question marks, and no more than fits: a name must not write to the terminal.
fn clean(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let count = text.chars().count();
    match count > 44 {
        true => format!("…{}", text.chars().skip(count - 43).collect::<String>()),
        false => text,
    }
}

/// The document: numbers in base units, unknown ones as null.
pub fn document(picture: &Picture) -> Value {
    let loss = |it: &Loss| {
        json!({
            "waited_ns": (it.fault_ns.is_some() || counts_waits()).then(|| it.waited_ns()),
            "device_wait_ns": counts_waits().then_some(it.device_ns), "fault_wait_ns": it.fault_ns,
            "major_faults": it.major, "read_bytes": it.read_bytes, "cpu_ns": it.cpu_ns,
        })
    };
    let named = |mut value: Value, more: Value| {
        if let (Some(all), Value::Object(more)) = (value.as_object_mut(), more) {
            all.extend(more);
        }
        value
    };
    let process = |it: &Loss| named(loss(it), json!({ "pid": it.pid, "name": it.name }));
    let group = |it: &GroupLoss| {
        named(loss(&it.sum), json!({ "path": it.path, "name": label(&it.path), "processes": it.processes }))
    };
    let file =
        |it: &FileLoss| json!({ "path": it.path, "pid": it.pid, "waited_ns": it.waited_ns, "major_faults": it.major });
    json!({
        "format": FORMAT,
        "length_ns": picture.length.as_nanos() as u64,
        "processes": picture.processes.iter().filter(|it| it.is_any()).map(process).collect::<Vec<_>>(),
        "processes_seen": picture.processes.len(),
        "groups": picture.groups.iter().map(group).collect::<Vec<_>>(),
        "files": picture.files.iter().map(file).collect::<Vec<_>>(),
        "stalled_for_devices_ns": picture.pressure.io_ns,
        "stalled_for_memory_ns": picture.pressure.memory_ns,
        "sampled_pids": picture.sampled,
        "missing": picture.gap,
        "own_cpu_ns": picture.own_cpu_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn busy() -> Picture {
        let process = |pid| Loss {
            pid,
            name: format!("p{pid}"),
            fault_ns: Some(1_000_000_000 / u64::from(pid)),
            major: 200,
            read_bytes: None,
            ..Loss::default()
        };
        let group = |number| GroupLoss { path: format!("/g{number}"), processes: 2, sum: process(number) };
        let file = |number| FileLoss { path: format!("/data/{number}"), pid: number, waited_ns: 5, major: 1 };
        Picture {
            length: Duration::from_secs(2),
            processes: (1..=500).map(process).collect(),
            groups: (1..=40).map(group).collect(),
            files: (1..=32).map(file).collect(),
            ..Picture::default()
        }
    }

    #[test]
    fn a_screen_of_24_lines_shows_the_head_and_the_worst_of_each_kind_first() {
        let text = screen(&busy(), 24);

        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= 23, "{text}");
        assert!(
            lines[0].starts_with("majorfault top: 500 of 500 processes lost time in file access, in 2.0 s"),
            "{text}"
        );
        let row =
            |word: &str| lines.iter().position(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {text}"));
        assert!(row("PROCESS") + 1 == row(" p1 ") && row(" p1 ") < row(" p2 ") && row("GROUP") + 1 == row(" g1 "));
        assert!(row("FILE") + 1 == row("/data/1 "));
        assert!(lines[row(" p1 ")].contains("50.0 %") && lines[row(" p1 ")].contains(" 100 "), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn a_higher_screen_shows_more_and_a_lower_one_no_less() {
        let lines = |height| screen(&busy(), height).lines().count();

        assert_eq!((lines(50), lines(10)), (49, lines(24)));
    }

    #[test]
    fn names_cannot_write_to_the_terminal() {
        let mut picture = busy();
        picture.processes[0].name = "a\x1b[2J".to_owned();
        picture.files[0].path = format!("/{}", "x".repeat(500));

        let text = screen(&picture, 24);

        assert!(!text.contains('\x1b') && text.contains("a?[2J") && text.contains("…xxx"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_null_and_not_nothing() {
        let document = document(&busy());

        assert_eq!(document["processes"][0]["fault_wait_ns"], 1_000_000_000);
        assert_eq!(document["processes"][0]["read_bytes"], Value::Null);
        assert_eq!(document["groups"][1]["name"], "g2");
        assert_eq!(document["stalled_for_devices_ns"], Value::Null);
        assert_eq!(document["files"].as_array().unwrap().len(), 32);
    }
}
