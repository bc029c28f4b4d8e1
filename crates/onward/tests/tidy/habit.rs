//! Habits: what no source of ours holds.

use crate::rust::code_of;
use crate::tree::{File, Finding, Tree};

const NOTES: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];

/// Repeated signs in a comment that make it a banner.
const BANNER_SIGNS_MIN: usize = 4;

fn sources(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| file.is_source() && !file.is_rule())
}

fn find(tree: &Tree, look: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    sources(tree).flat_map(|file| file.find(&look)).collect()
}

/// Notes to self.
pub(crate) fn notes_to_self(tree: &Tree) -> Vec<Finding> {
    find(tree, |line| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.find(|word| NOTES.contains(word)).map(|word| format!("{word}: do it, or file it"))
    })
}

/// Comments that are drawn, not written.
pub(crate) fn banners(tree: &Tree) -> Vec<Finding> {
    find(tree, |line| {
        let line = line.trim();
        let marks = ["//", "--", "#", "/*"];
        let comment = marks.iter().find_map(|mark| line.strip_prefix(mark))?;
        let comment = comment.trim_matches(['/', '!', '#', '*', '-', ' ']).is_empty();
        let signs = line.chars().filter(|c| "/-=#*~_+".contains(*c)).count();
        let drawn = ["====", "----", "****", "####", "~~~~", "////"];
        let ruled = drawn.iter().any(|rule| line.contains(rule)) && signs > BANNER_SIGNS_MIN;
        (ruled || (comment && signs > BANNER_SIGNS_MIN))
            .then(|| "a banner: a module is the heading".to_owned())
    })
}

/// Pictures in place of words.
pub(crate) fn emoji(tree: &Tree) -> Vec<Finding> {
    find(tree, |line| {
        let picture = line.chars().find(
            |c| matches!(*c as u32, 0x1F000..=0x1FAFF | 0x2700..=0x27BF | 0x2B50 | 0x2B55 | 0xFE0F),
        );
        picture.map(|c| format!("U+{:04X}: say it in words", c as u32))
    })
}

/// Unsafe code, or a workspace that does not forbid it.
pub(crate) fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = in_code(tree, |line| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| word == "unsafe").then(|| "unsafe is forbidden".to_owned())
    });
    if let Some(root) = tree.file("Cargo.toml")
        && !root.text.contains("unsafe_code = \"forbid\"")
    {
        findings.push(Finding::new(&root.path, 1, "unsafe_code is not forbidden"));
    }
    findings
}

const DRIVER: &str = "crates/onward/src/driver/";

/// Questions of a driver whether its lease is fresh, beside the first. It may turn between two of them: then
/// neither is a step begun, nor an alarm set that begins it, and the run hangs.
pub(crate) fn lease_asked_again(tree: &Tree) -> Vec<Finding> {
    let mut found = in_code(tree, |line| {
        line.contains(".is_fresh()")
            .then(|| "the driver asks that once a round, elsewhere".to_owned())
    });
    found.retain(|finding| finding.to_string().starts_with(DRIVER));
    found.split_off(found.len().min(1))
}

/// Tests that are switched off, or pass because something panics somewhere.
pub(crate) fn refused_attributes(tree: &Tree) -> Vec<Finding> {
    in_code(tree, |line| {
        let mut refused = ["ignore", "should_panic"].iter().filter(|name| {
            let attribute = format!("#[{name}");
            let conditional = line.contains("#[cfg_attr(") && line.contains(&format!(", {name}"));
            line.contains(&attribute) || conditional
        });
        refused.next().map(|name| format!("#[{name}] is not used here"))
    })
}

/// Looks at code without its comments and texts.
fn in_code(tree: &Tree, look: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let code = File { path: file.path.clone(), text: code_of(&file.text) };
        findings.extend(code.find(&look));
    }
    findings
}

/// Crates that set their own lints, or none.
pub(crate) fn crates_without_lints(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.files.iter().filter(|file| {
        (file.path.ends_with("/Cargo.toml") || file.path == "Cargo.toml")
            && file.text.lines().any(|line| line == "[package]")
    });
    let takes = |file: &&File| {
        let mut lines = file.text.lines().map(str::trim).skip_while(|line| *line != "[lints]");
        lines.next().is_some() && lines.next() == Some("workspace = true")
    };
    let what = "lacks [lints] workspace = true";
    let without = manifests.filter(|file| !takes(file));
    without.map(|file| Finding::new(&file.path, 1, what)).collect()
}

#[test]
fn notes_to_self_are_found() {
    let tree = Tree::of([("src/a.rs", "//\n// TODO: later\nlet TODO_LIST = 1;\n")]);
    assert_eq!(notes_to_self(&tree), [Finding::new("src/a.rs", 2, "TODO: do it, or file it")]);
}

#[test]
fn banners_are_found_and_comments_are_not() {
    let drawn = ["// -----", "// ==== Parts ====", "//////", "-- ----------", "# ======"];
    for line in drawn {
        assert_eq!(banners(&Tree::of([("a.rs", line)])).len(), 1, "{line}");
    }
    let plain = ["//! A module.", "/// A table: `a--b`.", "-- A promise.", "#[test]", "//", "--"];
    for line in plain {
        assert_eq!(banners(&Tree::of([("a.rs", line)])), [], "{line}");
    }
}

#[test]
fn emoji_are_found_and_letters_are_not() {
    let tree = Tree::of([("a.rs", "// é → … ☃\n// \u{1F680}\n// \u{2705}\n")]);
    assert_eq!(emoji(&tree).len(), 2);
}

#[test]
fn unsafe_code_is_found_and_the_word_is_not() {
    let text = "// unsafe\nlet x = \"unsafe\";\nunsafe { y() }\n";
    let tree = Tree::of([("a.rs", text), ("Cargo.toml", "[workspace]\n")]);
    let lines: Vec<_> = unsafe_code(&tree).iter().map(|f| f.to_string()).collect();
    assert_eq!(
        lines,
        ["a.rs:3: unsafe is forbidden", "Cargo.toml:1: unsafe_code is not forbidden"]
    );
}

#[test]
fn refused_attributes_are_found() {
    let text =
        "#[test]\n#[ignore = \"slow\"]\n#[should_panic]\n// #[ignore]\n#[cfg_attr(miri, ignore)]\n";
    assert_eq!(refused_attributes(&Tree::of([("a.rs", text)])).len(), 3);
}

#[test]
fn crates_without_lints_are_found() {
    let good = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
    let bad = "[package]\nname = \"b\"\n\n[lints.rust]\nmissing_docs = \"allow\"\n";
    let tree =
        Tree::of([("a/Cargo.toml", good), ("b/Cargo.toml", bad), ("Cargo.toml", "[workspace]")]);
    assert_eq!(crates_without_lints(&tree).len(), 1);
}

#[test]
fn a_second_look_at_the_lease_is_found() {
    let text = "held_back = !tenure.is_fresh();\n";
    let (one, two) = (format!("{DRIVER}round.rs"), format!("{DRIVER}mod.rs"));
    assert!(lease_asked_again(&Tree::of([(&*one, text), ("a.rs", text)])).is_empty());
    assert_eq!(lease_asked_again(&Tree::of([(&*one, text), (&*two, text)])).len(), 1);
}
