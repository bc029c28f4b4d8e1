//! One finding: what was looked at, what was found, and what to do.
//!
//! Owns: its two forms, for people and as JSON. Never looks at a store.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use onward::{Code, RunId};
use serde::Serialize;

use crate::problem::Problem;
use crate::text;

/// Runs that are named with a finding; more are found with `onward runs list`.
const RUNS_NAMED: usize = 5;

/// What one check found.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    /// What was looked at, as a stable name.
    pub(super) check: &'static str,
    /// Whether all is well with it.
    pub(super) ok: bool,
    /// What was found, in a sentence.
    pub(super) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) todo: Option<String>,
    /// The first of the runs that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) runs: Vec<RunId>,
}

impl Finding {
    /// All is well.
    pub(super) fn well(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, ok: true, found: found.into(), todo: None, runs: Vec::new() }
    }

    /// Something needs somebody.
    pub(super) fn bad(
        check: &'static str,
        found: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        let (found, todo) = (found.into(), Some(todo.into()));
        Self { check, ok: false, found, todo, runs: Vec::new() }
    }

    /// It is about these runs.
    pub(super) fn of_runs(mut self, runs: impl IntoIterator<Item = RunId>) -> Self {
        self.runs = runs.into_iter().take(RUNS_NAMED).collect();
        self
    }

    /// The store or the server could not be opened.
    pub(super) fn of_problem(problem: &Problem) -> Self {
        let code = match problem {
            Problem::Library(error) => Some(error.code()),
            Problem::Refused { code, .. } => *code,
            _ => None,
        };
        let of_schema = [Code::SchemaMissing, Code::SchemaTooOld, Code::SchemaTooNew];
        let check = match (code, problem) {
            (Some(code), _) if of_schema.contains(&code) => "schema",
            (_, Problem::NoServer { .. } | Problem::Untrusted { .. }) => "server",
            (_, Problem::WrongToken { .. } | Problem::Server(_)) => "server",
            _ => "store",
        };
        // The library's own sentence about a code says what to do, and stands at the end of its error;
        // the others say it themselves.
        let (said, todo) = (problem.to_string(), code.map(|code| code.advice().to_owned()));
        let found = todo.as_deref().and_then(|todo| said.strip_suffix(todo));
        let found = found.unwrap_or(&said).trim_end().to_owned();
        Self { check, ok: false, found, todo, runs: Vec::new() }
    }
}

/// Prints findings: a line each, and what to do below those that need somebody.
pub(super) fn write(out: &mut dyn Write, findings: &[Finding]) -> Result<(), Problem> {
    let (green, red) = (AnsiColor::Green.on_default(), AnsiColor::Red.on_default());
    for finding in findings {
        let (style, mark): (Style, _) = if finding.ok { (green, "ok") } else { (red, "NO") };
        let found = text::line(&finding.found);
        writeln!(out, "{style}{mark}{style:#}  {:<10} {found}", finding.check)?;
        for run in &finding.runs {
            writeln!(out, "                run {run}")?;
        }
        if let Some(todo) = &finding.todo {
            writeln!(out, "                {}", text::line(todo))?;
        }
    }
    Ok(out.flush()?)
}
