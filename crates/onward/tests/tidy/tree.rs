//! The files of the repository, and what is found in them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that are never ours: of tools, of others, and what is built from our sources.
const FOREIGN_FOLDERS: [&str; 4] = [".git", "target", "node_modules", "dist"];

/// How the names of our sources end, scripts aside.
const SOURCES: [&str; 10] = ["rs", "sql", "toml", "html", "css", "js", "mjs", "ts", "tsx", "py"];

/// A text file, by its path from the root.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The files that git would track.
pub(crate) struct Tree {
    pub(crate) files: Vec<File>,
}

/// A rule that is broken, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl Finding {
    /// A finding in a line, counted from 1.
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl File {
    pub(crate) fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|own| own == extension)
    }

    /// Whether it was written as code, by us.
    pub(crate) fn is_source(&self) -> bool {
        let script = self.path.starts_with("scripts/") || self.path.starts_with(".ci/");
        script || SOURCES.iter().any(|extension| self.is(extension))
    }

    /// Whether it belongs to the tests, and not to what users get.
    pub(crate) fn is_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests")
    }

    /// Whether it is one of the rules, which name what they forbid.
    pub(crate) fn is_rule(&self) -> bool {
        self.path.starts_with("crates/onward/tests/tidy/")
    }

    /// The lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(before, line)| (before + 1, line))
    }

    /// A finding for each line in which `look` sees something.
    pub(crate) fn find(&self, look: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
        self.lines()
            .filter_map(|(number, line)| Some(Finding::new(&self.path, number, look(line)?)))
            .collect()
    }
}

impl Tree {
    /// The workspace that this test belongs to.
    pub(crate) fn of_workspace() -> Self {
        let root = root();
        let ignored = Ignored::read(&root);
        let mut files = Vec::new();
        walk(&root, &root, &ignored, &mut files);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        assert!(files.len() > 50, "{} is not the workspace", root.display());
        Self { files }
    }

    /// A tree that is made up.
    pub(crate) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        let file = |(path, text): (&str, &str)| File { path: path.to_owned(), text: text.into() };
        Self { files: files.map(file).into() }
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is("rs"))
    }

    pub(crate) fn sql(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is("sql"))
    }

    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }
}

fn root() -> PathBuf {
    // Cargo sets it when the test runs, so that a checkout may be moved after it was built.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    package.ancestors().nth(2).expect("a crate is two folders deep").to_owned()
}

fn walk(root: &Path, folder: &Path, ignored: &Ignored, files: &mut Vec<File>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let at_root = folder == root;
        if FOREIGN_FOLDERS.contains(&name.as_str()) || ignored.holds(&name, at_root) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            walk(root, &path, ignored, files);
        } else {
            // A picture is there, and has no lines to look at.
            let text = fs::read_to_string(&path).unwrap_or_default();
            let path = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
            files.push(File { path, text });
        }
    }
}

/// The patterns of `.gitignore`, in the few forms that ours has: `/name`, `*end`, `name`, each
/// also with a slash at its end.
struct Ignored(Vec<String>);

impl Ignored {
    fn read(root: &Path) -> Self {
        let text = fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        Self::of(&text)
    }

    fn of(text: &str) -> Self {
        let lines = text.lines().map(|line| line.trim().trim_end_matches('/'));
        Self(
            lines
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .map(Into::into)
                .collect(),
        )
    }

    fn holds(&self, name: &str, at_root: bool) -> bool {
        self.0.iter().any(|pattern| match (pattern.strip_prefix('/'), pattern.strip_prefix('*')) {
            (Some(own), _) => at_root && own == name,
            (_, Some(end)) => name.ends_with(end),
            _ => pattern == name,
        })
    }
}

#[test]
fn ignored_files_are_not_looked_at() {
    let ignored = Ignored::of("/out\n*.db\n*.db-workers/\n# a comment\nscratch\n");
    assert!(ignored.holds("out", true) && !ignored.holds("out", false));
    assert!(ignored.holds("a.db", false) && ignored.holds("a.db-workers", false));
    assert!(ignored.holds("scratch", false) && !ignored.holds("a.rs", true));
}
