//! Lengths of files and functions, and how modules open.

use crate::rust::{Function, code_of, functions, product_part};
use crate::tree::{File, Finding, Tree};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const FUNCTION_LINES_P95_MAX: usize = 40;

fn product(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.rust().filter(|file| !file.is_test())
}

/// Files outside tests that are too long; a file's own test module does not count.
pub(crate) fn long_files(tree: &Tree) -> Vec<Finding> {
    let long = product(tree).filter_map(|file| {
        let lines = product_part(&file.text).lines().count();
        let what = format!("{lines} lines, at most {FILE_LINES_MAX}: give a part its own file");
        (lines > FILE_LINES_MAX).then(|| Finding::new(&file.path, lines, what))
    });
    long.collect()
}

/// Functions that are too long, in tests too.
pub(crate) fn long_functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for Function { name, line, lines } in functions(&code_of(&file.text)) {
            if lines > FUNCTION_LINES_MAX {
                let what = format!("{name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

/// The length that nineteen of twenty functions stay within, over the whole product.
pub(crate) fn long_p95(tree: &Tree) -> Vec<Finding> {
    let mut all: Vec<(usize, &str, usize)> = Vec::new();
    for file in product(tree) {
        let functions = functions(&code_of(product_part(&file.text)));
        all.extend(functions.into_iter().map(|f| (f.lines, file.path.as_str(), f.line)));
    }
    all.sort_unstable();
    let place = all.len().saturating_sub(1) * 95 / 100;
    match all.get(place) {
        Some((lines, path, line)) if *lines > FUNCTION_LINES_P95_MAX => {
            let what =
                format!("p95 of function lengths is {lines}, at most {FUNCTION_LINES_P95_MAX}");
            vec![Finding::new(path, *line, what)]
        }
        _ => Vec::new(),
    }
}

/// Modules that open without a word, and modules of the library that do not say what they own. Its
/// root is a user's first page, and the cases of the conformance suite are tests.
pub(crate) fn bare_modules(tree: &Tree) -> Vec<Finding> {
    let modules = product(tree).filter(|file| file.path.contains("/src/"));
    let bare = modules.filter_map(|file| {
        let head = head(&file.text);
        let what = if head.is_empty() {
            "opens without //!"
        } else if owns(&file.path) && !head.contains("Owns:") {
            "does not say what it owns"
        } else {
            return None;
        };
        Some(Finding::new(&file.path, 1, what))
    });
    bare.collect()
}

/// The `//!` lines that a file opens with.
fn head(text: &str) -> String {
    text.trim_start().lines().take_while(|line| line.starts_with("//!")).collect()
}

/// Whether a module of this path has to say what it owns.
fn owns(path: &str) -> bool {
    path.strip_prefix("crates/onward/src/")
        .is_some_and(|module| module != "lib.rs" && !module.starts_with("conformance/"))
}

#[test]
fn a_long_file_is_found_without_its_tests() {
    let (long, short) = ("//\n".repeat(501), "//\n".repeat(500));
    let tested = format!("{short}#[cfg(test)]\nmod tests {{\n}}\n");
    let files = [("src/a.rs", &*long), ("src/b.rs", &*tested), ("x/tests/c.rs", &*long)];
    let findings = long_files(&Tree::of(files));
    assert_eq!(findings.len(), 1);
    assert!(findings[0].to_string().starts_with("src/a.rs:501: 501 lines"));
}

#[test]
fn a_long_function_is_found_by_name() {
    let long = format!("\nfn long() {{\n{}}}\nfn short() {{}}\n", "    x();\n".repeat(69));
    let findings = long_functions(&Tree::of([("src/a.rs", &long)]));
    assert_eq!(findings, [Finding::new("src/a.rs", 2, "long has 71 lines, at most 70")]);
}

#[test]
fn too_many_longish_functions_are_found() {
    let longish = format!("fn f() {{\n{}}}\n", "    x();\n".repeat(40));
    assert_eq!(long_p95(&Tree::of([("src/a.rs", &longish.repeat(2))])).len(), 1);
    let mixed = format!("{longish}{}", "fn g() {}\n".repeat(30));
    assert_eq!(long_p95(&Tree::of([("src/a.rs", &mixed)])).len(), 0);
}

#[test]
fn a_bare_module_is_found() {
    let tree = Tree::of([("a/src/b.rs", "use c;\n"), ("a/src/d.rs", "//! D.\n")]);
    assert_eq!(bare_modules(&tree), [Finding::new("a/src/b.rs", 1, "opens without //!")]);
}

#[test]
fn a_module_of_the_library_that_owns_nothing_is_found() {
    let tree = Tree::of([
        ("crates/onward/src/a.rs", "//! A.\n\n// Owns: too late.\n"),
        ("crates/onward/src/b.rs", "//! B.\n//!\n//! Owns: bees. Never honey.\n"),
        ("crates/onward/src/lib.rs", "//! The library.\n"),
        ("crates/onward-cli/src/a.rs", "//! A.\n"),
    ]);
    let what = "does not say what it owns";
    assert_eq!(bare_modules(&tree), [Finding::new("crates/onward/src/a.rs", 1, what)]);
}
