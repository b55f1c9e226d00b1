//! What others run beside us: alerts, a dashboard and a DaemonSet, checked as far as a machine without a cluster can.

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod world;

use majorfault_lab::node::{alerts, metrics::NodeTotals};
use serde_yaml_ng::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use world::{World, facility};

fn contrib(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(contrib(path)).unwrap()
}

const ALERTS: &str = "prometheus/alerts.yml";

const HEAD: &str = "# One alert for each rule of the doctor that finds more than notes, on the metrics of majorfault doctor --all --openmetrics; generated.\n";

#[test]
fn the_alerts_are_those_of_the_rules() {
    let made = HEAD.to_owned() + &serde_yaml_ng::to_string(&alerts::document()).unwrap();
    if std::env::var_os("MAJORFAULT_WRITE_DOCS").is_some() {
        std::fs::write(contrib(ALERTS), &made).unwrap();
    }

    let advice = "make it again: MAJORFAULT_WRITE_DOCS=1 cargo test -p majorfault-lab --test contrib";
    assert!(made == text(ALERTS), "contrib/{ALERTS} is another one; {advice}");
}

/// What promtool says in a directory; none where it is not installed.
fn promtool(world: &World, words: &[&str]) -> Option<(bool, String)> {
    let output = Command::new("promtool").args(words).current_dir(world.path("")).output();
    let found = output.as_ref().map(|_| ()).map_err(|_| "promtool is not installed (Debian: prometheus)".to_owned());
    if !facility("promtool", found) {
        return None;
    }
    let output = output.unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn prometheus_takes_the_alerts_and_fires_with_the_remedy() {
    let world = World::new();
    std::fs::copy(contrib(ALERTS), world.path("alerts.yml")).unwrap();
    let alerts: Value = serde_yaml_ng::from_str(&text(ALERTS)).unwrap();
    let rules = alerts["groups"][0]["rules"].as_sequence().unwrap();
    let thrash = rules.iter().find(|rule| rule["alert"] == "MajorfaultThrash").unwrap();
    let annotation = |name: &str| serde_json::to_string(thrash["annotations"][name].as_str().unwrap()).unwrap();
    let (remedy, look) = (annotation("remedy"), annotation("look"));
    let summary = thrash["annotations"]["summary"].as_str().unwrap().rsplit("}}: ").next().unwrap();
    let series = |severity: &str| {
        format!(
            r#"majorfault_finding{{groupname="{severity}.service",rule="thrash",severity="{severity}",instance="n"}}"#
        )
    };
    let planted = format!(
        r#"
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{ series: '{}', values: '1x10' }}
      - {{ series: '{}', values: '1x10' }}
    alert_rule_test:
      - eval_time: 4m
        alertname: MajorfaultThrash
        exp_alerts: []
      - eval_time: 6m
        alertname: MajorfaultThrash
        exp_alerts:
          - exp_labels: {{ severity: critical, groupname: critical.service, instance: n }}
            exp_annotations:
              summary: {}
              remedy: {remedy}
              look: {look}
"#,
        series("critical"),
        series("note"),
        serde_json::to_string(&format!("critical.service on n: {summary}")).unwrap(),
    );
    std::fs::write(world.path("fires.yml"), planted).unwrap();

    for words in [["check", "rules", "alerts.yml"], ["test", "rules", "fires.yml"]] {
        if let Some((is_good, said)) = promtool(&world, &words) {
            assert!(is_good, "{said}");
        }
    }
}

/// Words that begin like our metrics.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("majorfault_")).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_shows_metrics_that_there_are() {
    let dashboard: serde_json::Value = serde_json::from_str(&text("grafana/majorfault.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries: String = panels.iter().map(|panel| panel["targets"][0]["expr"].as_str().unwrap()).collect();
    let exported = NodeTotals::new(true).render().unwrap();
    let types = exported.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: BTreeSet<String> = types
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();

    let asked = metrics_in(&(queries + &dashboard["templating"].to_string()));

    assert!(asked.len() > 6, "{asked:?}");
    assert!(asked.is_subset(&names), "{:?} is not among {names:?}", asked.difference(&names));
}

#[test]
fn the_daemonset_starts_our_command_with_rights_that_linux_has() {
    let set: Value = serde_yaml_ng::from_str(&text("kubernetes/daemonset.yaml")).unwrap();
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let words = |value: &Value| {
        let each = value.as_sequence().unwrap().iter();
        each.map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    assert_eq!(set["spec"]["selector"]["matchLabels"], set["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(pod["hostPID"], true);
    let rights = words(&container["securityContext"]["capabilities"]["add"]);
    assert_eq!(rights, ["PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"]);
    let header = text("kubernetes/daemonset.yaml");
    assert!(rights.iter().all(|right| header.contains(&format!("#   {right} "))), "each right is explained");
    // Its command is one of ours, which ends where an output is refused.
    let mut command = words(&container["args"]);
    command.extend(["--textfile".to_owned(), "/no/such.prom".to_owned()]);
    let said = World::new().majorfault(&command.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.errors.contains("/no/such.prom"), "{}", said.errors);
}
