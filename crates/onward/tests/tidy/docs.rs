//! The documents say what the code has: every code, and links that lead somewhere.

use std::collections::BTreeSet;

use onward::Code;

use crate::tree::{File, Finding, Tree};

const ERRORS: &str = "docs/errors.md";

/// What each section about a code says.
const PARTS: [&str; 3] = ["**What happened.**", "**Why.**", "**What to do.**"];

/// Codes without a section, sections without a code, sections that lack a part.
pub(crate) fn codes(tree: &Tree) -> Vec<Finding> {
    let codes: Vec<&str> = Code::all().iter().map(|code| code.as_str()).collect();
    match tree.file(ERRORS) {
        Some(file) => compare_codes(file, &codes),
        None => vec![Finding::new(ERRORS, 1, "is missing")],
    }
}

fn compare_codes(file: &File, codes: &[&str]) -> Vec<Finding> {
    let sections = sections(file);
    let mut findings = Vec::new();
    for (at, section) in sections.iter().enumerate() {
        let mut note = |what: String| findings.push(Finding::new(&file.path, section.line, what));
        if !codes.contains(&section.title) {
            note(format!("{:?} is not a code", section.title));
        }
        if sections[..at].iter().any(|earlier| earlier.title == section.title) {
            note(format!("a second section about {:?}", section.title));
        }
        for part in PARTS.iter().filter(|part| !section.text.contains(**part)) {
            note(format!("the section about {:?} lacks {part}", section.title));
        }
    }
    let titles: BTreeSet<_> = sections.iter().map(|section| section.title).collect();
    for code in codes.iter().filter(|code| !titles.contains(*code)) {
        findings.push(Finding::new(&file.path, 1, format!("no section about {code:?}")));
    }
    findings
}

struct Section<'a> {
    title: &'a str,
    line: usize,
    text: String,
}

/// The sections under headings of the second level, by the code that is their title.
fn sections(file: &File) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for (line, text) in file.lines() {
        if let Some(title) = text.strip_prefix("## ") {
            let title = title.trim_matches('`');
            sections.push(Section { title, line, text: String::new() });
        } else if let Some(section) = sections.last_mut() {
            section.text.push_str(text);
            section.text.push('\n');
        }
    }
    sections
}

/// Links to files of the repository, and to sections of its pages, that are not there.
pub(crate) fn dead_links(tree: &Tree) -> Vec<Finding> {
    let pages = tree.files.iter().filter(|file| file.is("md"));
    pages.flat_map(|file| file.find(|line| dead_link(tree, &file.path, line))).collect()
}

fn dead_link(tree: &Tree, page: &str, line: &str) -> Option<String> {
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let mut inside = targets.filter(|target| !target.contains("://"));
    let dead = inside.find(|target| !leads_somewhere(tree, page, target));
    dead.map(|target| format!("the link to {target:?} leads nowhere"))
}

fn leads_somewhere(tree: &Tree, page: &str, target: &str) -> bool {
    let (path, section) = target.split_once('#').unwrap_or((target, ""));
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = if path.is_empty() { page.to_owned() } else { resolve(folder, path) };
    let under = format!("{path}/");
    let mut found = tree.files.iter().filter(|file| file.path == path);
    match found.next() {
        Some(file) if !section.is_empty() && file.is("md") => has_section(&file.text, section),
        Some(_) => true,
        None => tree.files.iter().any(|file| file.path.starts_with(&under)),
    }
}

/// Whether a page has a heading that this anchor leads to.
fn has_section(text: &str, anchor: &str) -> bool {
    let mut in_code = false;
    text.lines().any(|line| {
        in_code ^= line.starts_with("```");
        !in_code && line.starts_with('#') && anchor_of(line.trim_start_matches('#')) == anchor
    })
}

/// The anchor of a heading: small letters, hyphens for spaces, and no other marks.
fn anchor_of(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let text = heading.trim().chars().filter(kept).collect::<String>();
    text.to_lowercase().replace(' ', "-")
}

fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn codes_and_sections_are_compared_both_ways() {
    let body = "**What happened.** **Why.** **What to do.**\n";
    let page = format!("# Codes\n## `known`\n{body}## `gone`\n{body}## `known`\n**Why.**\n");
    let tree = Tree::of([(ERRORS, &page)]);
    let findings = compare_codes(tree.file(ERRORS).unwrap(), &["known", "undocumented"]);
    let lines: Vec<_> = findings.iter().map(|f| f.to_string()).collect();
    let found = |text: &str| lines.iter().any(|line| line.contains(text));
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(found("errors.md:4: \"gone\" is not a code"), "{lines:?}");
    assert!(found("errors.md:6: a second section"), "{lines:?}");
    assert!(found("\"known\" lacks **What happened.**"), "{lines:?}");
    assert!(found("no section about \"undocumented\""), "{lines:?}");
    assert_eq!(codes(&Tree::of([])).len(), 1);
}

#[test]
fn dead_links_are_found() {
    let page = "# An `i`, and more\n[a](b.md#x-y) [c](../README.md) [d](https://e.f/g) [h](#an-i-and-more)\n\
        [j](../gone.md)\n[k](b.md#z)\n[l](#z)\n";
    let other = "## X y\n```sh\n# z\n```\n";
    let tree = Tree::of([("docs/a.md", page), ("docs/b.md", other), ("README.md", "")]);
    let dead =
        |line, link| Finding::new("docs/a.md", line, format!("the link to {link:?} leads nowhere"));
    assert_eq!(dead_links(&tree), [dead(3, "../gone.md"), dead(4, "b.md#z"), dead(5, "#z")]);
}
