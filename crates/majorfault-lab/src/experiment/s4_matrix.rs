//! S4.matrix: mapped files against read and write calls, over sizes, blocks, cache states and orders.

mod published;

use super::claim::{Claim, Test, from, of};
use super::samples::{Found, Gap, Samples, Shown, digits};
use super::setting::method;
use super::table::{FigureTable, TableRow, TableSide};
use super::{Condition, Experiment, Figure, Judge, Planned, Row, RowKind, Scale, Setting};
use crate::record::Record;
use crate::stats;
use crate::trial::{CacheState, Choice, Data, Direction, Limits, Trial};
use majorfault::{Bytes, Result};
use published::{LINES, SIZES, TABLES, line};
use std::collections::BTreeSet;

pub(super) const EXPERIMENT: Experiment = Experiment {
    id: "S4.matrix",
    title: "Mapped files against read and write calls",
    source: "Thesis on file access policies for data-intensive applications, tables 4.2 and 4.3",
    question: "Is mmap faster than read(2) and write(2) when both process every byte, in each cell of a matrix?",
    room: |scale| Bytes((sizes(scale).iter().map(|size| size.0).sum::<u64>() + big_size(scale).0) * 5 / 4),
    memory: |scale| Bytes(sizes(scale).iter().map(|size| size.0).max().unwrap_or(0) * 3 / 2),
    repetitions: |scale| scale.of(1, 6, 6),
    cells,
    published: None,
    timelines: &[],
    table: Some(table),
    rows: ROWS,
    cannot_show: "The thesis's machines and kernels (3.10, 5.5). A cold cell whose device bytes do not match is refused, where the \
                  thesis's cold and warm figures of 256 MB were equal to three digits: its programs go through every byte by \
                  itself, which by its figures takes 2 to 4 ns and hides the device; our check adds up words of 8 bytes, some 0.01 ns a byte. \
                  Its clock runs during the accesses, and so does that of these rows; mapping, unmapping and the sync are beside it \
                  in S4.durable. The program that it began from (pm, at 6affee9) maps before its clock starts, never syncs, maps \
                  privately, so that its mapped writes never reach the file, and counts 2^30 bytes as a GB: what of that the thesis \
                  changed it does not say; ours are shared mappings. Which seeds gave which order there is not known either.",
};

fn sizes(scale: Scale) -> &'static [Bytes] {
    const QUICK: &[Bytes] = &[Bytes::mib(32)];
    const STANDARD: &[Bytes] = &[Bytes::mib(256), Bytes::gib(1)];
    const FULL: &[Bytes] = &[Bytes::mib(256), Bytes::gib(1), Bytes::gib(4)];
    scale.of(QUICK, STANDARD, FULL)
}

/// The thesis's block.
const BLOCK: Bytes = Bytes::kib(8);

/// Those that it chose it from.
fn other_blocks(scale: Scale) -> &'static [Bytes] {
    const NONE: &[Bytes] = &[];
    const FULL: &[Bytes] = &[Bytes::kib(4), Bytes::kib(16)];
    scale.of(NONE, NONE, FULL)
}

/// A file that is larger than the memory that it is given.
fn big_size(scale: Scale) -> Bytes {
    scale.of(Bytes::mib(128), Bytes::mib(512), Bytes::gib(16))
}

/// The thesis's seeds; the repetitions after them are for the verdicts, which need six.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// Our cells' words for what is compared, and the methods that do it.
const MODES: [(&str, &str); 2] = [("mmap", "mmap"), ("calls", "pread")];

/// Cells of other blocks name theirs, so that no claim about the published ones is judged by them.
fn name(mode: &str, block: Bytes, rest: &str) -> String {
    match block {
        BLOCK => format!("{mode} {rest}"),
        other => format!("{mode} by {other} {rest}"),
    }
}

fn cells(setting: &mut Setting<'_>) -> Result<Vec<Planned>> {
    let mut cells = Vec::new();
    let scale = setting.scale;
    for size in sizes(scale) {
        let data = setting.data(*size, 1)?;
        for block in [BLOCK].iter().chain(other_blocks(scale)) {
            cells.extend(of_size(setting, &data, *block));
        }
    }
    let big = setting.data(big_size(scale), 1)?;
    cells.extend(MODES.map(|(_, arm)| beyond_memory(setting, &big, arm)));
    Ok(cells)
}

/// Every cell of a size, in the order of the thesis's tables.
fn of_size(setting: &Setting<'_>, data: &Data, block: Bytes) -> Vec<Planned> {
    let of_line = |line: &published::TableLine| {
        let (_, arm) = MODES.iter().find(|(mode, _)| *mode == line.mode).expect("both modes are listed");
        let rest = format!("{} {} {} {}", line.test, Bytes(data.size_bytes), line.cache, line.order);
        let trial = Trial {
            workload: Choice::plain(if line.order == "random" { "uniform" } else { "sequential" }),
            direction: if line.test == "read" { Direction::Read } else { Direction::Write },
            block_bytes: block.0,
            // As many accesses as there are blocks, whatever the order.
            limits: Limits { runtime_ns: None, accesses: Some(data.size_bytes / block.0), time_based: false },
            cache: if line.cache == "cold" { CacheState::Cold } else { CacheState::Warm },
            ..setting.reads(data, method(arm), 0.0)
        };
        Planned { name: name(line.mode, block, &rest), trial }
    };
    LINES.iter().map(of_line).collect()
}

fn beyond_memory(setting: &Setting<'_>, big: &Data, arm: &str) -> Planned {
    let trial = Trial {
        workload: Choice::plain("sequential"),
        block_bytes: BLOCK.0,
        limits: Limits { runtime_ns: None, accesses: None, time_based: false },
        memory_bytes: Some((big.size_bytes / 4).max(32 << 20)),
        ..setting.reads(big, method(arm), 0.0)
    };
    Planned { name: format!("beyond memory {arm}"), trial }
}

/// What the thesis's clock saw: the accesses alone.
const ACCESSES: Figure = Figure::BytesPerNs;

const ROWS: &[Row] = &[
    Row {
        id: "S4.matrix",
        kind: RowKind::Published,
        says: "mean and deviation of every cell of mode, test, size, cache and order, blocks of 8 KiB, every byte processed, seeds 1 to \
               5: in the table below",
        published: "tables 4.2 and 4.3, 48 cells each",
        rests_on: &[],
        judge: Judge::Measured(matrix),
    },
    Row {
        id: "S4.blocks*",
        kind: RowKind::Control,
        says: "the same with blocks of 4 and of 16 KiB, over the rates of 8 KiB",
        published: "8 KiB deemed best of three after 720 tests; figures not shown",
        rests_on: &[],
        judge: Judge::Measured(blocks),
    },
    Row {
        id: "S4.mmapwins",
        kind: RowKind::Published,
        says: "mmap is faster in every read cell that was run",
        published: "1.08–4.39 x (table 4.2), 1.21–14.2 x (4.3)",
        rests_on: &[],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[faster("mmap read *", "calls read *", ACCESSES)] },
            |samples| wins(samples, "read", &[ACCESSES, Figure::PerSecond]),
        ),
    },
    Row {
        id: "S4.writes",
        kind: RowKind::Published,
        says: "mmap is faster in every write cell that was run but 4 GB in order, the sync outside the clock",
        published: "so in table 4.2: 0.87 and 0.94 x at 4 GB in order, 1.04–1.60 x elsewhere; in 4.3 the calls win the four of 256 MB \
                    (0.52–0.81 x), mmap the others (1.17–3.05 x)",
        rests_on: &[],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[faster("mmap write *", "calls write *", ACCESSES)
                    .except(&["4g cold sequential", "4g warm sequential"])],
            },
            |samples| wins(samples, "write", &[ACCESSES]),
        ),
    },
    Row {
        id: "S4.durable*",
        kind: RowKind::Control,
        says: "mmap is faster in every write cell that was run, mapping, sync and unmapping inside the clock",
        published: "outside the clock there",
        rests_on: &[],
        judge: Judge::Claim(
            Claim { needs: &[], tests: &[faster("mmap write *", "calls write *", Figure::PerSecond)] },
            |samples| wins(samples, "write", &[Figure::PerSecond]),
        ),
    },
    Row {
        id: "S4.big",
        kind: RowKind::OurOwn,
        says: "files larger than memory work as well: twice the limit and more is read completely, every byte right",
        published: "16 GB; not shown, the calls took too long there",
        rests_on: &[Condition::Memory],
        judge: Judge::Claim(
            Claim {
                needs: &[],
                tests: &[
                    Test::every_run(of(BIG_MAPPED, Figure::WholeAndRight), [1.0, 1.0]),
                    Test::every_run(of(BIG_CALLS, Figure::WholeAndRight), [1.0, 1.0]),
                    Test::every_run(of(BIG_MAPPED, Figure::DataOverMemory), from(2.0)),
                    Test::every_run(of(BIG_CALLS, Figure::DataOverMemory), from(2.0)),
                ],
            },
            big,
        ),
    },
];

const fn faster(first: &'static str, second: &'static str, figure: Figure) -> Test {
    Test::ratio(of(first, figure), of(second, figure), from(1.0))
}

const BIG_MAPPED: &str = "beyond memory mmap";
const BIG_CALLS: &str = "beyond memory pread";

/// The word of a cell's name that is its size: `mmap read 1g cold random`; nothing of cells of other blocks.
fn size_in(cell: &str) -> Option<&str> {
    let words: Vec<&str> = cell.split(' ').collect();
    let [mode, _, size, _, _] = words[..] else { return None };
    MODES.iter().any(|(known, _)| *known == mode).then_some(size)
}

/// The sizes that were run, the published ones in their order, then others.
fn sizes_run<'s>(samples: &Samples<'s>) -> Vec<&'s str> {
    let run: BTreeSet<&str> = samples.names().filter_map(size_in).collect();
    let known = SIZES.iter().filter_map(|size| run.get(size).copied());
    known.chain(run.iter().copied().filter(|size| !SIZES.contains(size))).collect()
}

fn matrix(samples: &Samples<'_>) -> Found<Shown> {
    let sizes = sizes_run(samples);
    if sizes.is_empty() {
        return Err(Gap::NotRun("no cell of the matrix".to_owned()));
    }
    let cells: Vec<&str> = samples.names().filter(|cell| size_in(cell).is_some()).collect();
    let counted = cells.iter().filter(|cell| samples.gap(cell).is_none()).count();
    let runs: usize = cells.iter().map(|cell| of_seeds(samples, cell).len()).sum();
    let is_published = |cell: &&&str| size_in(cell).is_some_and(|size| SIZES.contains(&size));
    let published = cells.iter().filter(|cell| samples.gap(cell).is_none()).filter(is_published).count();
    Ok(Shown::new(format!(
        "{counted} cells in {runs} runs with the seeds 1 to 5; {published} of the {} published cells",
        SIZES.len() * LINES.len()
    ))
    .because(left_out(&sizes, samples)))
}

/// What of the published matrix was not run.
fn left_out(sizes: &[&str], samples: &Samples<'_>) -> String {
    let missing: Vec<&str> = SIZES.iter().filter(|size| !sizes.contains(size)).copied().collect();
    let mut parts: Vec<String> = Vec::new();
    if !missing.is_empty() {
        parts.push(format!("files of {}", missing.join(", ")));
    }
    if !samples.names().any(|cell| cell.contains(" by ")) {
        parts.push("blocks of 4 and 16 KiB".to_owned());
    }
    match parts.is_empty() {
        true => "nothing is left out".to_owned(),
        false => format!("left out here: {} (--scale full has them)", parts.join("; ")),
    }
}

/// GB a second of a cell's valid runs with the thesis's seeds: GB of 2^30 bytes, as the program that it began from counts.
fn of_seeds(samples: &Samples<'_>, cell: &str) -> Vec<f64> {
    let is_seed = |record: &&Record| SEEDS.contains(&record.trial.seed);
    let rate = |record: &Record| ACCESSES.of(record).map(|rate| rate * 1e9 / (1u64 << 30) as f64);
    samples.valid(cell).filter(is_seed).filter_map(rate).collect()
}

/// Ours beside both tables, in their order. Published sizes that were not run are shown where others of them were.
fn table(samples: &Samples<'_>) -> FigureTable {
    let run = sizes_run(samples);
    let shown: Vec<&str> = match run.iter().any(|size| SIZES.contains(size)) {
        true => SIZES.iter().copied().chain(run.iter().copied().filter(|size| !SIZES.contains(size))).collect(),
        false => run.clone(),
    };
    let halves = LINES.iter().filter(|line| line.mode == MODES[0].0);
    let cells = halves.flat_map(|line| shown.iter().map(move |size| (line, *size)));
    let rows = cells.map(|(line, size)| row(samples, line, size)).collect();
    FigureTable {
        title: "Every cell: mean and standard deviation, beside the thesis's",
        unit: "GB/s (2^30 bytes), of the accesses alone",
        sides: &["mmap", "calls"],
        sources: TABLES,
        samples: SEEDS.count(),
        rows,
        notes: vec![
            "here: the runs with the seeds 1 to 5, as published, deviation with n - 1; the published one of table 4.2 is of 5 \
             runs, table 4.3 has none; verdicts rest on six runs and medians"
                .to_owned(),
            "table 4.2: Xeon Gold 6130, SATA SSD, Linux 3.10; table 4.3: i7-8550U, NVMe, Linux 5.5".to_owned(),
            left_out(&run, samples),
        ],
    }
}

fn row(samples: &Samples<'_>, of: &published::TableLine, size: &str) -> TableRow {
    let rest = format!("{} {size} {} {}", of.test, of.cache, of.order);
    let side = |(mode, _): (&str, &str)| {
        let cell = name(mode, BLOCK, &rest);
        let found = of_seeds(samples, &cell);
        let nothing = || samples.gap(&cell).unwrap_or_else(|| samples.uncounted(&cell, ACCESSES));
        let published = line(mode, of.test, of.cache, of.order).map(|line| line.of(size)).unwrap_or_default();
        TableSide { here: stats::spread(&found).map(|spread| (spread, found.len())).ok_or_else(nothing), published }
    };
    TableRow { sides: MODES.map(side).to_vec(), cell: rest }
}

/// Ratios of a test's cells: the first cell over the second, both of the same rest; lowest first.
fn ratios(samples: &Samples<'_>, [first, second]: [&str; 2], figure: Figure) -> Vec<(f64, String)> {
    let ratio = |cell: &str| {
        let rest = cell.strip_prefix(first)?.to_owned();
        let found = samples.ratio(cell, &format!("{second}{rest}"), figure).ok()?;
        Some((found.median, rest))
    };
    let mut ratios: Vec<(f64, String)> = samples.names().filter_map(ratio).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    ratios
}

fn ends(ratios: &[(f64, String)]) -> Option<String> {
    let (lowest, highest) = (ratios.first()?, ratios.last()?);
    Some(format!("{} to {} x in {} cells", digits(lowest.0), digits(highest.0), ratios.len()))
}

/// Lowest and highest ratio of mmap to calls over the cells of a test, by the first figure; by a second one as the control.
fn wins(samples: &Samples<'_>, test: &str, figures: &[Figure]) -> Found<Shown> {
    let sides = [format!("mmap {test} "), format!("calls {test} ")];
    let by = |figure: Figure| ratios(samples, [&sides[0], &sides[1]], figure);
    let found = by(figures[0]);
    let Some(ours) = ends(&found) else { return Err(Gap::NotRun(format!("no {test} cell has figures of both"))) };
    let lost: Vec<String> = found
        .iter()
        .filter(|(ratio, _)| *ratio < 1.0)
        .map(|(ratio, cell)| format!("{cell} {} x", digits(*ratio)))
        .collect();
    let evidence = match lost.is_empty() {
        true => format!("lowest {}, highest {}", found[0].1, found[found.len() - 1].1),
        false => format!("the calls are faster in {}: {}", lost.len(), lost.join(", ")),
    };
    let whole = figures.get(1).and_then(|figure| ends(&by(*figure)));
    let control = whole.map(|ends| format!("mapping and unmapping inside the clock: {ends}")).unwrap_or_default();
    Ok(Shown::new(ours).because(evidence).control(control))
}

fn blocks(samples: &Samples<'_>) -> Found<Shown> {
    let mut parts = Vec::new();
    for block in other_blocks(Scale::Full) {
        let of = |mode: &str| ratios(samples, [&format!("{mode} by {block} "), &format!("{mode} ")], ACCESSES);
        for (mode, _) in MODES {
            parts.extend(ends(&of(mode)).map(|ends| format!("{mode} by {block}: {ends}")));
        }
    }
    match parts.is_empty() {
        true => Err(Gap::NotRun("blocks of 4 and 16 KiB; --scale full has them".to_owned())),
        false => Ok(Shown::new(parts.join("; "))),
    }
}

fn big(samples: &Samples<'_>) -> Found<Shown> {
    let mapped = samples.figure(BIG_MAPPED, Figure::PerSecond)?;
    let calls = samples.figure(BIG_CALLS, Figure::PerSecond)?;
    let over = samples.figure(BIG_MAPPED, Figure::DataOverMemory)?;
    Ok(Shown::new(format!("{} x memory", digits(over.median))).because(format!(
        "{} blocks/s mapped, {} by calls",
        digits(mapped.median),
        digits(calls.median)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Making, Store, Verdict, ledger};
    use crate::record::Cell;
    use crate::report::synthetic::Run;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    fn planned(scale: Scale) -> Vec<Planned> {
        let (stop, mut store, making) = (AtomicBool::new(false), Store::default(), Making::Nothing);
        let mut setting =
            Setting { scale, cpus: 2, dir: Path::new("/nowhere"), others: &[], stop: &stop, store: &mut store, making };
        cells(&mut setting).unwrap()
    }

    /// 256 MiB visited in so many milliseconds by each repetition in turn, closed in 9 s.
    fn lasting(cell: &str, visits_ms: &[u64]) -> Vec<Record> {
        let run = |(turn, ms): (u32, &u64)| {
            let [experiment, name, scale] = ["S4.matrix", cell, "standard"].map(str::to_owned);
            let run = Run::of("mmap").repetition(turn).block(8192).accesses(32_768).phases_ms(5, *ms, 9_000);
            run.edit(|record| {
                record.cell = Some(Cell { experiment, name, scale });
                record.trial.seed = 1 + u64::from(turn);
            })
        };
        (0..).zip(visits_ms).map(|it| run(it).record()).collect()
    }

    fn made(records: &[Record]) -> FigureTable {
        table(&Samples::of("S4.matrix", &records.iter().collect::<Vec<_>>()))
    }

    fn judged(id: &str, records: &[Record]) -> (Verdict, String) {
        let entry = ledger(records, &[id.to_owned()]).into_iter().find(|it| it.row.id.trim_end_matches('*') == id);
        let judged = entry.unwrap().judged;
        (judged.verdict, judged.shown.ours)
    }

    #[test]
    fn the_full_scale_has_every_published_cell_and_the_smaller_ones_say_what_they_have() {
        let names = |scale: Scale| planned(scale).into_iter().map(|it| it.name).collect::<BTreeSet<String>>();
        let [quick, standard, full] = [Scale::Quick, Scale::Standard, Scale::Full].map(names);

        // Two modes, two tests, two states and two orders make 16 of each size and block, and two go beyond memory.
        assert_eq!((quick.len(), standard.len(), full.len()), (16 + 2, 2 * 16 + 2, 3 * 3 * 16 + 2));
        for name in ["mmap read 256m cold sequential", "calls write 1g warm random"] {
            assert!(standard.contains(name) && full.contains(name), "{name}");
        }
        for name in
            ["mmap read 4g warm random", "calls by 16k write 4g cold sequential", "mmap by 4k read 1g cold random"]
        {
            assert!(full.contains(name) && !standard.contains(name), "{name}");
        }
    }

    #[test]
    fn the_first_five_repetitions_have_the_published_seeds() {
        assert!(planned(Scale::Full).iter().all(|it| it.trial.seed == 1));
        assert_eq!(SEEDS.count(), 5);
    }

    #[test]
    fn a_cell_has_the_mean_and_deviation_of_the_accesses_of_its_published_seeds() {
        // 0.25, 0.25, 0.5, 0.5, 0.25 GB/s; squares of the differences from 0.35 add up to 0.075, a quarter is 0.01875.
        let records = lasting("mmap read 256m cold sequential", &[1000, 1000, 500, 500, 1000, 1]);

        let found = made(&records);

        let row = found.rows.iter().find(|row| row.cell == "read 256m cold sequential").unwrap();
        let (here, runs) = row.sides[0].here.clone().unwrap();
        assert!((here.mean - 0.35).abs() < 1e-12 && (here.deviation.unwrap() - 0.01875f64.sqrt()).abs() < 1e-12);
        assert_eq!((runs, row.sides[0].published[0].unwrap().mean), (5, 0.269));
        assert_eq!(row.sides[0].published[1].unwrap().mean, 0.507);
        assert_eq!(row.sides[1].here.clone().unwrap_err().short(), "not run");
        assert_eq!(row.sides[1].published[0].unwrap().mean, 0.22);
    }

    #[test]
    fn published_cells_that_were_not_run_stand_in_the_table_and_other_sizes_stand_alone() {
        let of = |cell: &str| made(&lasting(cell, &[1000])).rows.into_iter().map(|row| row.cell).collect::<Vec<_>>();

        let (published, own) = (of("mmap read 256m cold sequential"), of("mmap read 32m cold sequential"));

        assert_eq!(published.len(), 24);
        assert_eq!(published[..3], ["256m", "1g", "4g"].map(|size| format!("read {size} cold sequential")));
        assert_eq!(own.len(), 8);
        assert!(own.iter().all(|cell| cell.contains(" 32m ")), "{own:?}");
    }

    #[test]
    fn what_a_scale_leaves_out_is_said_in_its_row() {
        let said = |records: &[Record]| {
            let entry = ledger(records, &["S4.matrix".to_owned()]).remove(0);
            (entry.judged.shown.ours, entry.judged.shown.evidence)
        };
        let small = lasting("mmap read 256m cold sequential", &[1000; 6]);
        let sizes = ["1g", "4g"].map(|size| lasting(&format!("mmap read {size} cold sequential"), &[1000]));
        let all = [small.clone(), sizes.concat(), lasting("mmap by 4k read 1g cold random", &[1000])].concat();

        let (ours, evidence) = said(&small);
        assert_eq!(ours, "1 cells in 5 runs with the seeds 1 to 5; 1 of the 48 published cells");
        assert_eq!(evidence, "left out here: files of 1g, 4g; blocks of 4 and 16 KiB (--scale full has them)");
        assert_eq!(said(&all).1, "nothing is left out");
    }

    #[test]
    fn writes_are_judged_by_the_accesses_alone_but_for_4_gb_in_order_and_durable_ones_by_all() {
        let cells = |rest: &str, mapped: u64| {
            [lasting(&format!("mmap write {rest}"), &[mapped; 6]), lasting(&format!("calls write {rest}"), &[400; 6])]
                .concat()
        };
        let won = cells("1g cold random", 100);
        let excepted = [won.clone(), cells("4g cold sequential", 800)].concat();
        let lost = [won.clone(), cells("4g cold random", 800)].concat();

        assert_eq!(judged("S4.writes", &won), (Verdict::Holds, "4.00 to 4.00 x in 1 cells".to_owned()));
        assert_eq!(judged("S4.writes", &excepted).0, Verdict::Holds);
        assert_eq!(judged("S4.writes", &lost).0, Verdict::DoesNotHold);
        assert_eq!(judged("S4.durable", &excepted).0, Verdict::DoesNotHold);
        // 9 405 ms over 9 105 ms.
        assert_eq!(judged("S4.durable", &won), (Verdict::Holds, "1.03 to 1.03 x in 1 cells".to_owned()));
    }

    #[test]
    fn cells_of_other_blocks_have_no_say_in_claims_about_the_published_ones() {
        let pair = |block: &str, mapped: u64| {
            let cell = |mode: &str, ms: u64| lasting(&format!("{mode}{block} read 1g cold random"), &[ms; 6]);
            [cell("mmap", mapped), cell("calls", 400)].concat()
        };
        let records = [pair("", 100), pair(" by 4k", 800)].concat();

        assert_eq!(judged("S4.mmapwins", &records).0, Verdict::Holds);
        let ours = judged("S4.blocks", &records).1;
        assert_eq!(ours, "mmap by 4k: 0.125 to 0.125 x in 1 cells; calls by 4k: 1.00 to 1.00 x in 1 cells");
    }
}
