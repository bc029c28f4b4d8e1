//! The files for Grafana and Prometheus, held against what `/metrics` really exports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::stage::{SOON, Stage};

const PREFIX: &str = "onward_";

/// A file of the folder `ops`.
fn ops(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The metrics of a page, each with the labels that its rows have.
fn exported(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            all.entry(rest.split(' ').next().unwrap().to_owned()).or_default();
        } else if let Some((name, labels)) = line.split_once('{') {
            let labels = labels.split('}').next().unwrap().split(',');
            let names = labels.map(|label| label.split('=').next().unwrap().to_owned());
            all.entry(name.to_owned()).or_default().extend(names);
        }
    }
    all
}

/// The names of metrics in a text, and the labels that are said about the metric before.
fn named(text: &str) -> Vec<(String, Vec<String>)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut all = Vec::new();
    for (at, _) in text.match_indices(PREFIX) {
        let rest = &text[at..];
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let labels = after.strip_prefix('{').and_then(|inside| inside.split('}').next());
        let labels = labels.into_iter().flat_map(|inside| inside.split(','));
        let label = |text: &str| text.split(['=', '!']).next().unwrap().trim().to_owned();
        all.push((name.to_owned(), labels.map(label).collect()));
    }
    all
}

/// The labels that an expression groups by.
fn grouped(text: &str) -> Vec<String> {
    let lists = text.split("by (").skip(1).map(|rest| rest.split(')').next().unwrap());
    lists.flat_map(|list| list.split(',')).map(|label| label.trim().to_owned()).collect()
}

/// What every server exports once it has something to tell.
async fn page() -> String {
    let stage = Stage::open().await.working().await;
    stage.keyed("/api/v1/workflows/double/runs", "k", json!({ "input": 1 })).await;
    let queued = json!({ "input": 1, "queue": "nobody-serves-this" });
    stage.post("/api/v1/workflows/double/runs", queued).await;
    // Counts may be a second old.
    let looking = async {
        loop {
            let page = stage.get("/metrics").await.text;
            if page.contains("onward_queue_oldest_due_seconds{") {
                return page;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let page = tokio::time::timeout(SOON, looking).await.unwrap();
    stage.stop().await;
    page
}

#[tokio::test]
async fn alerts_and_dashboard_name_only_what_is_exported() {
    let exported = exported(&page().await);
    let labels: BTreeSet<&String> = exported.values().flatten().collect();
    let dashboard: Value = serde_json::from_str(&ops("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut said: Vec<String> =
        targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    let alerts = ops("alerts.yml");
    let lines = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    said.extend(lines.map(str::to_owned));
    assert!(said.len() > 15, "{said:?}");
    for expression in &said {
        let metrics = named(expression);
        assert!(!metrics.is_empty(), "{expression} names no metric of ours");
        for (name, own) in metrics {
            let known = exported.get(&name);
            let known = known.unwrap_or_else(|| panic!("{name} of {expression} is not exported"));
            for label in own {
                assert!(known.contains(&label), "{name} has no label {label}: {expression}");
            }
        }
        for label in grouped(expression) {
            assert!(labels.contains(&label), "nothing has the label {label}: {expression}");
        }
    }
    let used: BTreeSet<String> = said.iter().flat_map(|text| named(text)).map(|it| it.0).collect();
    let unused: Vec<_> = exported.keys().filter(|name| !used.contains(*name)).collect();
    assert!(unused.is_empty(), "{unused:?} is on no panel and in no alert");
}

#[tokio::test]
async fn the_page_about_the_server_has_every_metric() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/server.md");
    let docs = std::fs::read_to_string(path).unwrap();
    for name in exported(&page().await).keys() {
        assert!(docs.contains(&format!("| `{name}` |")), "{name} is not in docs/server.md");
    }
}

#[test]
fn names_and_labels_are_found() {
    let text = "sum by (queue, x) (rate(onward_a{state=~\"a|b\",to!=\"c\"}[5m])) > onward_b";
    let labels = vec!["state".to_owned(), "to".to_owned()];
    assert_eq!(named(text), [("onward_a".to_owned(), labels), ("onward_b".to_owned(), vec![])]);
    assert_eq!(grouped(text), ["queue", "x"]);
}
