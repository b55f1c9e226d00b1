//! What runs that took turns gave, by row: shown are the median, and the least and the most.
#![allow(dead_code, reason = "not every bench shows everything")]

/// A row of the table: its name, unit, and what each run gave.
pub struct Row {
    name: String,
    unit: &'static str,
    runs: Vec<f64>,
}

/// Puts a figure into the row of this name.
pub fn note(rows: &mut Vec<Row>, name: String, unit: &'static str, figure: f64) {
    match rows.iter_mut().find(|row| row.name == name) {
        Some(row) => row.runs.push(figure),
        None => rows.push(Row { name, unit, runs: vec![figure] }),
    }
}

/// Prints every row.
pub fn print(rows: &[Row]) {
    for Row { name, unit, runs } in rows {
        let mut runs = runs.clone();
        runs.sort_by(f64::total_cmp);
        let median = (runs[(runs.len() - 1) / 2] + runs[runs.len() / 2]) / 2.0;
        let (least, most) = (runs[0], runs[runs.len() - 1]);
        println!("{name:<60} {median:>10.3} {unit:<6} [{least:.3} – {most:.3}], {} runs", runs.len());
    }
}

/// The figures of one row, run by run.
pub fn runs<'a>(rows: &'a [Row], name: &str) -> &'a [f64] {
    rows.iter().find(|row| row.name == name).map_or(&[], |row| &row.runs)
}

/// The number behind `--name`, or the default.
pub fn number(name: &str, default: usize) -> usize {
    let words: Vec<String> = std::env::args().collect();
    let given = words.iter().position(|word| word == name).map(|at| words[at + 1].parse());
    given.map_or(default, |number| number.unwrap_or_else(|_| panic!("{name} NUMBER")))
}
