//! The rules described from their declarations: for `majorfault list rules`, for programs, for documents.

use crate::doctor::rule::{Arms, Gain, Part, Proof, Remedy, Rule, Threshold};
use crate::doctor::rules;
use serde_json::{Value, json};

/// Every rule, for programs.
pub fn document() -> Value {
    rules::ALL.iter().map(|rule| described(rule)).collect()
}

fn described(rule: &Rule) -> Value {
    json!({
        "name": rule.name,
        "summary": rule.summary,
        "looks_at": rule.looks_at.iter().map(|part| json!({ "what": part.words(), "options": part.options() }))
            .collect::<Vec<_>>(),
        "thresholds": rule.thresholds.iter().map(threshold).collect::<Vec<_>>(),
        "trouble": rule.trouble,
        "remedies": rule.remedies.iter().map(|it| remedy(it)).collect::<Vec<_>>(),
        "explains": rule.explains.iter().map(|rule| rule.name).collect::<Vec<_>>(),
        "gain": match rule.gain {
            Gain::Waits => "waits",
            Gain::Failure => "failure",
            Gain::Unknown => "unknown",
        },
    })
}

fn threshold(threshold: &Threshold) -> Value {
    let Threshold { name, says, value, unit } = threshold;
    json!({ "name": name, "value": value, "unit": unit.word(), "says": says.trim() })
}

fn remedy(remedy: &Remedy) -> Value {
    let Remedy { when, says, proof, backing, symptom: _ } = remedy;
    let (replay, command) = match proof {
        Proof::Replay(Arms { now, remedy, .. }) => (Some(json!({ "now": now, "remedy": remedy })), None),
        Proof::Command(command) => (None, Some(command)),
    };
    json!({ "when": when, "says": says, "backing": backing.word(), "replay": replay, "command": command })
}

/// Every rule as rows of two columns: its name and what it finds, then the rest of its declaration.
pub fn rows() -> Vec<[String; 2]> {
    rules::ALL.iter().flat_map(|rule| rows_of(rule)).collect()
}

fn rows_of(rule: &Rule) -> Vec<[String; 2]> {
    let head = [rule.name.to_owned(), rule.summary.to_owned()];
    let parts = rule.looks_at.iter().map(|part| with_options(*part, "")).collect::<Vec<_>>().join(", ");
    let thresholds = rule.thresholds.iter().map(|it| [format!("  {}", it.figure()), format!("  {}", it.says.trim())]);
    let remedies = rule.remedies.iter().flat_map(|remedy| {
        let proof = match &remedy.proof {
            Proof::Replay(arms) => ["  --prove".to_owned(), format!("  {}", replayed(arms, ""))],
            Proof::Command(command) => ["  $".to_owned(), format!("  {command}")],
        };
        [[format!("  → {}", remedy.when), format!("  {}", remedy.says)], proof]
    });
    let looks_at = ["  looks at".to_owned(), format!("  {parts}")];
    [head, looks_at].into_iter().chain(thresholds).chain(remedies).collect()
}

/// A part with the options that make it visible, between `quote`s.
fn with_options(part: Part, quote: &str) -> String {
    let options: Vec<String> = part.options().iter().map(|option| format!("{quote}{option}{quote}")).collect();
    if options.is_empty() { part.words().to_owned() } else { format!("{} ({})", part.words(), options.join(" or ")) }
}

fn replayed(arms: &Arms, quote: &str) -> String {
    let now = arms.now.map_or("as mapped".to_owned(), |now| format!("{quote}{now}{quote}"));
    format!("{now} → {quote}{}{quote}", arms.remedy)
}

/// Every rule as a table in Markdown, by name.
pub fn markdown() -> String {
    let mut all: Vec<&Rule> = rules::ALL.to_vec();
    all.sort_by_key(|rule| rule.name);
    let rows: String = all.into_iter().map(row).collect();
    format!(
        "| rule | what it finds | it looks at | thresholds | `--prove` replays |\n| --- | --- | --- | --- | --- |\n{rows}"
    )
}

fn row(rule: &Rule) -> String {
    let parts: Vec<String> = rule.looks_at.iter().map(|part| with_options(*part, "`")).collect();
    let figures: Vec<String> = rule.thresholds.iter().map(figure).collect();
    let mut replays: Vec<String> = rule.remedies.iter().filter_map(|remedy| replay(remedy)).collect();
    replays.dedup();
    let cells = [parts.join(", "), figures.join("; "), replays.join("; ")];
    format!("| `{}` | {} | {} |\n", rule.name, rule.summary, cells.join(" | "))
}

/// `50`: Fewer waits than this may be chance.
fn figure(threshold: &Threshold) -> String {
    format!("`{}`: {}", threshold.figure(), threshold.says.trim().trim_end_matches('.'))
}

fn replay(remedy: &Remedy) -> Option<String> {
    match &remedy.proof {
        Proof::Replay(arms) => Some(replayed(arms, "`")),
        Proof::Command(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::rule::{Backing, Sight, ThresholdUnit};

    const RULE: Rule = Rule {
        name: "made_up",
        summary: "something is wrong",
        looks_at: &[Part::Faults, Part::AdviceInForce],
        thresholds: &[
            Threshold {
                name: "FEWEST",
                says: " Waits below which it is chance.",
                value: 50.0,
                unit: ThresholdUnit::Count,
            },
            Threshold { name: "MUCH", says: " Share that is much.", value: 0.1, unit: ThresholdUnit::Share },
        ],
        trouble: "{share} is wrong",
        remedies: &[
            &Remedy {
                when: "in order",
                says: "do it",
                proof: Proof::Replay(Arms { now: None, remedy: "uring", workload: None }),
                symptom: None,
                backing: Backing::Try,
            },
            &Remedy {
                when: "without",
                says: "leave it",
                proof: Proof::Command("look {pid}"),
                symptom: None,
                backing: Backing::Decided,
            },
        ],
        alerts: true,
        gain: Gain::Waits,
        explains: &[],
        look: Sight::Each(|_| Vec::new()),
        example: Default::default,
    };

    #[test]
    fn a_rule_is_one_row_of_the_table() {
        assert_eq!(
            row(&RULE),
            "| `made_up` | something is wrong | page faults, advice in force (`--deep` or `--advice`) | \
             `50`: Waits below which it is chance; `10 %`: Share that is much | as mapped → `uring` |\n"
        );
    }

    #[test]
    fn a_rule_is_listed_with_all_that_it_declares() {
        let rows = rows_of(&RULE).into_iter().map(|row| row.join("|")).collect::<Vec<_>>();

        assert_eq!(
            rows,
            [
                "made_up|something is wrong",
                "  looks at|  page faults, advice in force (--deep or --advice)",
                "  50|  Waits below which it is chance.",
                "  10 %|  Share that is much.",
                "  → in order|  do it",
                "  --prove|  as mapped → uring",
                "  → without|  leave it",
                "  $|  look {pid}"
            ]
        );
    }

    #[test]
    fn a_rule_is_described_for_programs() {
        assert_eq!(
            described(&RULE),
            json!({
                "name": "made_up", "summary": "something is wrong",
                "looks_at": [
                    { "what": "page faults", "options": [] },
                    { "what": "advice in force", "options": ["--deep", "--advice"] },
                ],
                "thresholds": [
                    { "name": "FEWEST", "value": 50.0, "unit": "count", "says": "Waits below which it is chance." },
                    { "name": "MUCH", "value": 0.1, "unit": "share", "says": "Share that is much." },
                ],
                "trouble": "{share} is wrong",
                "remedies": [
                    { "when": "in order", "says": "do it", "backing": "try",
                      "replay": { "now": null, "remedy": "uring" }, "command": null },
                    { "when": "without", "says": "leave it", "backing": "decided", "replay": null,
                      "command": "look {pid}" },
                ],
                "explains": [],
                "gain": "waits",
            })
        );
    }
}
