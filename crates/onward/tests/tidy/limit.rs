//! docs/limits.md says what the limits are: each constant of the library and of the server, with its value.

use std::collections::HashMap;

use crate::tree::{File, Finding, Tree};

const PAGE: &str = "docs/limits.md";
const SOURCES: [&str; 2] = ["crates/onward/src/limits.rs", "crates/onward-server/src/limits.rs"];

/// The units of times, in milliseconds.
const TIMES: [(&str, f64); 7] = [
    ("ms", 1.0),
    ("s", 1e3),
    ("min", 6e4),
    ("h", 3.6e6),
    ("day", 8.64e7),
    ("days", 8.64e7),
    ("years", 365.0 * 8.64e7),
];
/// The units of sizes, in bytes.
const SIZES: [(&str, f64); 2] = [("KiB", 1024.0), ("MiB", 1024.0 * 1024.0)];

/// What stands in a source.
struct Constant<'a> {
    name: &'a str,
    line: usize,
    kind: &'a str,
    value: &'a str,
}

/// Limits that are not in the table, rows of the table that are no limit, and rows with another value.
pub(crate) fn undocumented(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else { return vec![Finding::new(PAGE, 1, "is missing")] };
    let rows: Vec<_> = page.lines().filter_map(|(line, text)| row(line, text)).collect();
    let (mut findings, mut known) = (Vec::new(), HashMap::new());
    for source in SOURCES {
        let Some(file) = tree.file(source) else {
            findings.push(Finding::new(source, 1, "is missing"));
            continue;
        };
        for constant in constants(file) {
            let value = value(&constant, &known);
            if let Some(number) = value {
                known.insert(constant.name, number);
            }
            let row = rows.iter().find(|(_, name, _)| *name == constant.name);
            findings.extend(match row {
                None => {
                    let what = format!("{} is not in {PAGE}", constant.name);
                    Some(Finding::new(source, constant.line, what))
                }
                Some((line, _, said)) => compare(&constant, value, *line, said),
            });
            known.entry(constant.name).or_insert(f64::NAN);
        }
    }
    let unknown = rows.iter().filter(|(_, name, _)| !known.contains_key(name));
    findings.extend(
        unknown.map(|(line, name, _)| {
            Finding::new(PAGE, *line, format!("{name} is not in limits.rs"))
        }),
    );
    findings
}

/// A row of a table about a constant: its line, the constant and the cell with its value.
fn row(line: usize, text: &str) -> Option<(usize, &str, &str)> {
    let (name, rest) = text.strip_prefix("| `")?.split_once("` |")?;
    Some((line, name, rest.split('|').next()?.trim()))
}

/// The limits of a file.
pub(crate) fn names(file: &File) -> Vec<&str> {
    constants(file).iter().map(|constant| constant.name).collect()
}

fn constants(file: &File) -> Vec<Constant<'_>> {
    let begins = file.lines().filter(|(_, text)| text.starts_with("pub const "));
    let lines: Vec<_> = begins.map(|(line, _)| line).collect();
    let texts = file.text.split("\npub const ").skip(1);
    lines.into_iter().zip(texts).filter_map(|(line, text)| constant(line, text)).collect()
}

fn constant(line: usize, text: &str) -> Option<Constant<'_>> {
    let (name, rest) = text.split_once(':')?;
    let (kind, rest) = rest.split_once('=')?;
    let (value, _) = rest.split_once(';')?;
    Some(Constant { name, line, kind: kind.trim(), value: value.trim() })
}

/// A finding where the page gives a constant another value.
fn compare(
    constant: &Constant<'_>,
    value: Option<f64>,
    line: usize,
    said: &str,
) -> Option<Finding> {
    let units: &[_] = if constant.kind == "Duration" { &TIMES } else { &SIZES };
    let agrees = match value {
        Some(value) => number(said, units).is_some_and(|here| (here - value).abs() < 0.5),
        None => said == constant.value.replace('"', "`"),
    };
    let what = format!("{} is {}, and here {said:?}", constant.name, constant.value);
    (!agrees).then(|| Finding::new(PAGE, line, what))
}

/// The number that a cell begins with, with its unit.
fn number(said: &str, units: &[(&str, f64)]) -> Option<f64> {
    let mut words = said.split(' ');
    let digits = words.next()?.trim_end_matches(',').replace(',', "");
    let unit = words.next().unwrap_or_default().trim_end_matches(',');
    let factor = units.iter().find(|(name, _)| *name == unit).map_or(1.0, |(_, factor)| *factor);
    Some(digits.parse::<f64>().ok()? * factor)
}

/// The value of a constant that is a number or a time, in milliseconds: a sum of products.
fn value<'a>(constant: &Constant<'a>, known: &HashMap<&'a str, f64>) -> Option<f64> {
    let text = constant.value;
    let (text, factor) = match text.strip_prefix("Duration::from_") {
        Some(rest) => {
            let (unit, rest) = rest.strip_suffix(')')?.split_once('(')?;
            (rest, if unit == "millis" { 1.0 } else { 1e3 })
        }
        None => (text, 1.0),
    };
    let part = |part: &str| {
        let part = part.trim();
        part.replace('_', "").parse().ok().or_else(|| known.get(part).copied())
    };
    let product = |text: &str| text.split('*').map(part).product::<Option<f64>>();
    Some(text.split('+').map(product).sum::<Option<f64>>()? * factor)
}

#[test]
fn limits_and_rows_are_compared_both_ways() {
    let first = "//! Limits.\n\npub const A_MAX: u32 = 1;\npub const B_MAX: u32 = 2;\n\
                 const OWN: u32 = 3;\n";
    let second = "//! Limits.\n\npub const D_MAX: u32 = 4;\n";
    let page = "| constant | value |\n|---|---|\n| `A_MAX` | 1 |\n| `C_MAX` | 3 |\n";
    let expected = [
        Finding::new(SOURCES[0], 4, "B_MAX is not in docs/limits.md"),
        Finding::new(SOURCES[1], 3, "D_MAX is not in docs/limits.md"),
        Finding::new(PAGE, 4, "C_MAX is not in limits.rs"),
    ];
    assert_eq!(
        undocumented(&Tree::of([(SOURCES[0], first), (SOURCES[1], second), (PAGE, page)])),
        expected
    );
}

#[test]
fn values_are_compared_in_every_unit() {
    let source = "//! Limits.\n\npub const A: usize = 2 * 1024 * 1024;\n\
                  pub const B: usize = A + 256 * 1024;\npub const C: u64 = 10_000;\n\
                  pub const D: Duration = Duration::from_secs(24 * 60 * 60);\n\
                  pub const E: Duration = Duration::from_millis(250);\n\
                  pub const F: &str = \"default\";\npub const G: u32 = f(1);\n";
    let good = "| `A` | 2 MiB |\n| `B` | 2.25 MiB |\n| `C` | 10,000 per run |\n| `D` | 24 h |\n\
                | `E` | 250 ms, or less |\n| `F` | `default` |\n";
    let bad = "| `A` | 2 |\n| `B` | 2 MiB |\n| `C` | 1,000 |\n| `D` | 24 s |\n| `E` | some |\n\
               | `F` | default |\n| `G` | 1 |\n";
    let told = |page: &str| -> Vec<String> {
        let tree = Tree::of([(SOURCES[0], source), (SOURCES[1], ""), (PAGE, page)]);
        let told = undocumented(&tree).iter().map(Finding::to_string).collect::<Vec<_>>();
        told.into_iter().filter(|finding| finding.starts_with(PAGE)).collect()
    };
    assert!(told(good).is_empty(), "{:?}", told(good));
    for (line, finding) in (1..=7).zip(told(bad)) {
        assert!(finding.starts_with(&format!("{PAGE}:{line}: ")), "{finding}");
    }
    assert_eq!(told(bad).len(), 7);
}
