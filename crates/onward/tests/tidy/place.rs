//! Where things are: nothing of a developer's machine, and nothing unknown in the root.

use std::collections::BTreeSet;

use crate::tree::{Finding, Tree};

/// Folders of a machine, not of the project.
const MACHINE: [&str; 5] = ["/home/", "/root/", "/work/", "/tmp/", "/Users/"];

/// What the root may hold.
const ROOT: [&str; 20] = [
    ".ci",
    ".config",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "bench",
    "clippy.toml",
    "crates",
    "deny.toml",
    "docs",
    "examples",
    "ops",
    "rustfmt.toml",
    "scripts",
];

/// What comes with later parts of the design.
const ROOT_LATER: [&str; 2] = ["dashboard", "sdks"];

/// The one registry, as Cargo writes it into its lock file.
const REGISTRY: &str = "registry+https://github.com/rust-lang/";

/// What names a registry, or puts another in its place.
const REGISTRY_MARKS: [&str; 5] =
    ["registry+", "sparse+", "replace-with", " registry = \"", "\"resolved\": \"http"];

/// Paths of a developer's machine, outside tests.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let ours = tree.files.iter().filter(|file| !file.is_test());
    let look = |line: &str| {
        let mut held = MACHINE.iter().filter(|folder| starts_a_path(line, folder));
        held.next().map(|folder| format!("a path under {folder}"))
    };
    ours.flat_map(|file| file.find(look)).collect()
}

/// Whether `folder` stands in the line as the start of a path, and not inside another one.
fn starts_a_path(line: &str, folder: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "._-}".contains(c);
    line.match_indices(folder).any(|(at, _)| !line[..at].ends_with(inside))
}

/// Registries other than the public one.
pub(crate) fn other_registries(tree: &Tree) -> Vec<Finding> {
    let look = |line: &str| {
        let known = line.contains(REGISTRY);
        let named = REGISTRY_MARKS.iter().any(|mark| line.contains(mark));
        (named && !known).then(|| "names a registry of somebody's own".to_owned())
    };
    let ours = tree.files.iter().filter(|file| !file.is_rule());
    ours.flat_map(|file| file.find(look)).collect()
}

/// Files and folders in the root that nobody announced.
pub(crate) fn strangers_in_the_root(tree: &Tree) -> Vec<Finding> {
    let names = tree.files.iter().filter_map(|file| file.path.split('/').next());
    let names: BTreeSet<&str> = names.collect();
    let strangers =
        names.into_iter().filter(|name| !ROOT.contains(name) && !ROOT_LATER.contains(name));
    let what = "does not belong in the root, or should be listed in this rule";
    strangers.map(|name| Finding::new(name, 1, what)).collect()
}

#[test]
fn machine_paths_are_found_outside_tests() {
    let text = "let a = \"/home/ada/x\";\nlet b = \"{dir}/tmp/x\";\nlet c = \"a/work/b\";\n";
    let tree = Tree::of([("src/a.rs", text), ("a/tests/b.rs", text)]);
    assert_eq!(machine_paths(&tree), [Finding::new("src/a.rs", 1, "a path under /home/")]);
}

#[test]
fn other_registries_are_found() {
    let lock = format!("source = \"{REGISTRY}\"\nsource = \"sparse+https://mirror.example/\"\n");
    let tree =
        Tree::of([("Cargo.lock", &lock), (".cargo/config.toml", "replace-with = \"mine\"\n")]);
    assert_eq!(other_registries(&tree).len(), 2);
}

#[test]
fn strangers_in_the_root_are_found() {
    let tree = Tree::of([("README.md", ""), ("notes.txt", ""), ("crates/a/notes.txt", "")]);
    let lines: Vec<_> = strangers_in_the_root(&tree).iter().map(|f| f.to_string()).collect();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("notes.txt:1:"));
}
