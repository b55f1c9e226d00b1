//! Alerts for Prometheus on the metrics of a node: one for each rule of the doctor that finds more than notes, whose annotation is the remedy.

use crate::doctor::Severity;
use crate::doctor::rule::Rule;
use crate::doctor::rules;
use serde_json::{Value, json};

/// The document of alerting rules.
pub fn document() -> Value {
    let alerts: Vec<Value> = rules::ALL.iter().filter(|rule| rule.alerts).map(|rule| alert(rule)).collect();
    json!({ "groups": [{ "name": "majorfault", "rules": alerts }] })
}

fn alert(rule: &Rule) -> Value {
    let severities = [Severity::Warning, Severity::Critical].map(Severity::word).join("|");
    let found = format!(r#"majorfault_finding{{rule="{}",severity=~"{severities}"}}"#, rule.name);
    json!({
        "alert": format!("Majorfault{}", joined(rule.name)),
        "expr": format!("max by (instance, groupname, severity) ({found}) == 1"),
        "for": "5m",
        "labels": { "severity": "{{ $labels.severity }}" },
        "annotations": {
            "summary": format!("{{{{ $labels.groupname }}}} on {{{{ $labels.instance }}}}: {}", rule.summary),
            "remedy": remedy(rule),
            "look": "majorfault doctor --all on the node names the processes, files and figures",
        },
    })
}

/// `map_count` as `MapCount`.
fn joined(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(capital).collect()
}

/// The remedies, each with the case that it is for; what only a finding knows stands between angle brackets.
fn remedy(rule: &Rule) -> String {
    let one = |when: &str, says: &str| if when.is_empty() { says.to_owned() } else { format!("{when}: {says}") };
    let all: Vec<String> = rule.remedies.iter().map(|remedy| one(remedy.when, remedy.says)).collect();
    all.join(" · ").replace('{', "<").replace('}', ">")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_find_more_than_notes_have_an_alert_with_its_remedy() {
        let document = document();
        let alerts = document["groups"][0]["rules"].as_array().unwrap();

        assert_eq!(alerts.len(), rules::ALL.iter().filter(|rule| rule.alerts).count());
        assert!(alerts.iter().all(|alert| alert["alert"] != "MajorfaultScatteredReads"));
        let thrash = alerts.iter().find(|alert| alert["alert"] == "MajorfaultThrash").unwrap();
        assert_eq!(
            thrash["expr"],
            r#"max by (instance, groupname, severity) (majorfault_finding{rule="thrash",severity=~"warning|critical"}) == 1"#
        );
        let remedy = thrash["annotations"]["remedy"].as_str().unwrap();
        assert!(remedy.starts_with("in order: <more>; or scan with O_DIRECT") && !remedy.contains('{'), "{remedy}");
    }
}
