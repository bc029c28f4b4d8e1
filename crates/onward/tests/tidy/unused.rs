//! Futures and builders that do nothing unless they are used: the compiler has to warn.

use std::collections::BTreeMap;

use crate::rust::{code_of, product_part};
use crate::tree::{File, Finding, Tree};

/// What the code of a file says of public types.
#[derive(Default)]
struct Seen {
    /// Public types: where each is, and whether its users are warned.
    types: BTreeMap<String, (usize, bool)>,
    /// Types that are awaited.
    awaited: Vec<String>,
    /// Methods that give their builder back, with its type, of which nobody is warned.
    built: Vec<(String, usize)>,
}

/// Public types of a crate that are awaited, or give themselves back from a method that takes them,
/// and are not `#[must_use]`. One method may be marked alone, where its type has a use without it.
pub(crate) fn unwarned(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for files in crates(tree).into_values() {
        let seen: Vec<_> = files.iter().map(|file| (&*file.path, Seen::of(&file.text))).collect();
        for (path, here) in &seen {
            // A name may be another type's elsewhere.
            let own = |name: &str| here.types.get(name).map(|of_type| (*path, of_type));
            let found = |name: &str| own(name).or_else(|| defined(&seen, name));
            for name in &here.awaited {
                if let Some((path, (line, false))) = found(name) {
                    let what = format!("{name} is awaited: say so with #[must_use]");
                    findings.push(Finding::new(path, *line, what));
                }
            }
            for (name, line) in &here.built {
                if !matches!(found(name), Some((_, (_, true)))) {
                    let what = format!("{name} is a builder: say so with #[must_use]");
                    findings.push(Finding::new(path, *line, what));
                }
            }
        }
    }
    findings
}

/// Where a type of this name is defined.
fn defined<'a>(seen: &'a [(&str, Seen)], name: &str) -> Option<(&'a str, &'a (usize, bool))> {
    seen.iter().find_map(|(path, seen)| Some((*path, seen.types.get(name)?)))
}

/// The sources of each crate.
fn crates(tree: &Tree) -> BTreeMap<&str, Vec<&File>> {
    let mut crates: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for file in tree.rust() {
        if let Some((name, _)) = file.path.split_once("/src/") {
            crates.entry(name).or_default().push(file);
        }
    }
    crates
}

impl Seen {
    fn of(source: &str) -> Self {
        let code = code_of(product_part(source));
        let (mut seen, mut attributes, mut owner) = (Self::default(), String::new(), String::new());
        let lines: Vec<&str> = code.lines().collect();
        for (before, line) in lines.iter().enumerate() {
            let (line, number) = (line.trim(), before + 1);
            let warned = attributes.contains("must_use");
            if line.starts_with("#[") {
                attributes.push_str(line);
                continue;
            } else if let Some(name) = public_type(line) {
                seen.types.insert(name, (number, warned));
            } else if let Some((of_trait, of_type)) = implementation(line) {
                if of_trait.ends_with("Future") {
                    seen.awaited.push(of_type.clone());
                }
                owner = of_type;
            } else if line.starts_with("macro_rules!") {
                // Its methods are those of whoever uses it.
                owner.clear();
            } else if gives_itself_back(&lines[before..], &owner) && !warned {
                seen.built.push((owner.clone(), number));
            }
            if !line.is_empty() {
                attributes.clear();
            }
        }
        seen
    }
}

/// The word at the start of this.
fn word(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The name of the public type that a line defines.
fn public_type(line: &str) -> Option<String> {
    let defined = ["pub struct ", "pub enum "].iter().find_map(|start| line.strip_prefix(start))?;
    Some(word(defined))
}

/// The trait, if any, and the type that a line begins to implement.
fn implementation(line: &str) -> Option<(String, String)> {
    let rest = line.strip_prefix("impl").filter(|rest| rest.starts_with(['<', ' ']))?;
    let rest = without_parameters(rest).trim_start();
    let (of_trait, of_type) = rest.split_once(" for ").unwrap_or(("", rest));
    let of_trait = of_trait.split('<').next().unwrap_or_default();
    Some((of_trait.to_owned(), word(of_type)))
}

/// What comes after the parameters in angle brackets.
fn without_parameters(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { text } else { &text[at + 1..] };
        }
    }
    text
}

/// Whether these lines begin with a public method that takes its type and gives it back.
fn gives_itself_back(lines: &[&str], owner: &str) -> bool {
    if owner.is_empty() || !lines[0].trim().starts_with("pub fn ") {
        return false;
    }
    let mut head = String::new();
    for line in lines {
        head.push_str(line.trim());
        head.push(' ');
        if line.contains(['{', ';']) {
            break;
        }
    }
    let takes = ["(self", "( self", "(mut self", "( mut self"].iter().any(|it| head.contains(it));
    let given = head.rsplit_once("-> ").map(|(_, given)| word(given));
    takes && given.is_some_and(|given| given == "Self" || given == owner)
}

#[test]
fn futures_and_builders_without_a_warning_are_found() {
    let bare = "/// A sleep.\npub struct Sleep;\nimpl Future for Sleep {}\n";
    let apart =
        "pub struct Start<O>(O);\n#[must_use = \"a\"]\npub struct Warned;\npub struct Job;\n";
    let here = "impl<O: Fn() -> u8> IntoFuture for Start<O> {}\nimpl IntoFuture for Warned {}\n\
        impl Job {\n    pub fn key(\n        mut self,\n        key: u8,\n    ) -> Self {}\n\
        #[must_use]\n    pub fn tag(self) -> Job {}\n    pub fn run(self) -> u8 {}\n}\n\
        impl Warned {\n    pub fn key(self) -> Self {}\n}\n";
    let tree =
        [("crates/a/src/a.rs", bare), ("crates/b/src/a.rs", apart), ("crates/b/src/b.rs", here)];
    let found: Vec<_> = unwarned(&Tree::of(tree)).iter().map(Finding::to_string).collect();
    assert_eq!(
        found,
        [
            "crates/a/src/a.rs:2: Sleep is awaited: say so with #[must_use]",
            "crates/b/src/a.rs:1: Start is awaited: say so with #[must_use]",
            "crates/b/src/b.rs:4: Job is a builder: say so with #[must_use]",
        ]
    );
}

/// The rule reads code as text: these are some that it must have seen.
#[test]
fn the_futures_and_builders_of_the_library_are_seen() {
    let tree = Tree::of_workspace();
    let files = crates(&tree).remove("crates/onward").expect("the library is there");
    let seen: Vec<_> = files.iter().map(|file| Seen::of(&file.text)).collect();
    let mut awaited: Vec<_> = seen.iter().flat_map(|seen| &seen.awaited).collect();
    awaited.sort();
    awaited.dedup();
    let known = [
        "All",
        "AllResults",
        "Backfill",
        "CallbackFuture",
        "ChildResult",
        "ChildStarted",
        "CopyTo",
        "ForkRun",
        "Note",
        "Open",
        "ScheduleStart",
        "SendSignal",
        "SignalFuture",
        "SignalWithin",
        "Sleep",
        "Start",
        "StartChild",
        "StartMany",
        "SteerMany",
        "StepFuture",
        "TransactionFuture",
        "Waiter",
    ];
    let public = |name: &&&String| seen.iter().any(|seen| seen.types.contains_key(**name));
    let listed: Vec<_> = awaited.iter().filter(public).map(|name| name.as_str()).collect();
    assert_eq!(listed, known, "a new one is added here");
    let builders = |name: &str| seen.iter().any(|seen| seen.built.iter().any(|(it, _)| it == name));
    for name in ["StepFuture", "WorkerBuilder", "Once", "QueueSetup", "ScheduleSetup", "RetrySafe"]
    {
        assert!(builders(name), "{name} is not seen");
    }
}
