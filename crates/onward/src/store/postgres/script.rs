//! Scripts of SQL, statement by statement.
//!
//! Owns: where a statement ends. Never sends one: some servers that speak as Postgres does take one statement
//! at a time where the schema is changed.

/// The statements of a script, without what separates them. A semicolon in a comment, a text or a body in
/// dollars ends nothing.
pub(super) fn statements(script: &str) -> impl Iterator<Item = &str> {
    let mut rest = script;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = end(rest);
        let statement = &rest[..end];
        rest = rest.get(end + 1..).unwrap_or_default();
        Some(statement)
    })
    .filter(|statement| says_something(statement))
}

/// Where the first statement of a script ends.
fn end(script: &str) -> usize {
    let mut at = 0;
    while let Some(next) = script[at..].chars().next() {
        let rest = &script[at..];
        at += match next {
            ';' => return at,
            '\'' | '"' => quoted(rest, &rest[..1]),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '$' => tag(rest).map_or(1, |tag| quoted(rest, tag)),
            other => other.len_utf8(),
        };
    }
    script.len()
}

/// The length of what begins with this mark and ends with the next. A mark within a text is two, which is
/// one text behind another here.
fn quoted(rest: &str, mark: &str) -> usize {
    let inner = &rest[mark.len()..];
    inner.find(mark).map_or(rest.len(), |found| found + 2 * mark.len())
}

/// The mark of a body in dollars, as `$$` or `$body$`; a parameter, as `$1`, is none.
fn tag(rest: &str) -> Option<&str> {
    let end = rest[1..].find('$')? + 1;
    let name = &rest[1..end];
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_name && !name.starts_with(|c: char| c.is_ascii_digit())).then(|| &rest[..=end])
}

fn says_something(statement: &str) -> bool {
    statement.lines().any(|line| !line.trim().is_empty() && !line.trim().starts_with("--"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(script: &str) -> Vec<&str> {
        statements(script).map(str::trim).collect()
    }

    #[test]
    fn statements_end_at_semicolons() {
        assert_eq!(split("select 1; select 2;\n"), ["select 1", "select 2"]);
        assert_eq!(split("select 1"), ["select 1"]);
        assert_eq!(split(" ;\n-- nothing; here\n;"), Vec::<&str>::new());
    }

    #[test]
    fn a_semicolon_within_something_ends_nothing() {
        for whole in [
            "select 'a;b'",
            "select 'it''s; so'",
            "select \"a;b\"",
            "-- first; then\nselect 1",
            "do $$ begin; end; $$",
            "do $body$ select '$$'; $body$ language sql",
            "select $1, $2",
            "select 'ü;'",
        ] {
            assert_eq!(split(&format!("{whole};select 3")), [whole, "select 3"]);
        }
    }

    #[test]
    fn what_is_not_closed_goes_to_the_end() {
        for whole in ["select 'a;", "do $$ a;", "-- a;", "select $a"] {
            let wanted = if whole.starts_with("--") { vec![] } else { vec![whole] };
            assert_eq!(split(whole), wanted);
        }
    }
}
