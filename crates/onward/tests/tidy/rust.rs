//! As much of Rust as the rules need: code without its comments and texts, and its functions.

/// The code with comments, texts and characters blanked, newlines kept.
pub(crate) fn code_of(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = at + skipped(&chars[at..], at.checked_sub(1).map(|before| chars[before]));
        if end == at {
            code.push(chars[at]);
            at += 1;
        } else {
            let blanks = chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' });
            code.extend(blanks);
            at = end;
        }
    }
    code
}

/// How many characters at the start of `rest` are a comment, a text or a character.
fn skipped(rest: &[char], before: Option<char>) -> usize {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    match rest {
        ['/', '/', ..] => rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['r', '"' | '#', ..] if !in_word => raw_text(rest),
        ['b', 'r', '"' | '#', ..] if !in_word => match raw_text(&rest[1..]) {
            0 => 0,
            length => length + 1,
        },
        ['"', ..] => text(rest),
        ['\'', '\\', ..] => {
            2 + rest[2..].iter().skip(1).position(|c| *c == '\'').map_or(0, |n| n + 2)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at + 1 < rest.len() {
        match (rest[at], rest[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') if depth == 1 => return at + 2,
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

fn text(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a raw text; zero for a raw name such as `r#type`.
fn raw_text(rest: &[char]) -> usize {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let start = hashes + 2;
    let closes = |at: &usize| {
        rest[*at] == '"'
            && rest[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    (start..rest.len()).find(closes).map_or(rest.len(), |at| at + 1 + hashes)
}

/// A function, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// The line of its `fn`, from 1.
    pub(crate) line: usize,
    /// Lines from `fn` to the closing brace.
    pub(crate) lines: usize,
}

/// The functions with a body, in code whose comments and texts are blanked.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let starts = code.match_indices("fn ").map(|(at, _)| at);
    let starts =
        starts.filter(|at| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    starts.filter_map(|at| function(code, at)).collect()
}

fn function(code: &str, at: usize) -> Option<Function> {
    let named = code[at + 3..].trim_start();
    let name: String = named.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if name.is_empty() {
        return None;
    }
    let open = at + body_start(&code[at..])?;
    let close = open + body_length(&code[open..])?;
    let lines_in = |text: &str| text.matches('\n').count();
    Some(Function { name, line: lines_in(&code[..at]) + 1, lines: lines_in(&code[at..close]) + 1 })
}

/// Where the body's brace is, if there is a body.
fn body_start(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

fn body_length(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// What comes before the file's own test module.
pub(crate) fn product_part(source: &str) -> &str {
    let mut from = 0;
    while let Some(found) = source[from..].find("#[cfg(test)]") {
        let at = from + found;
        let starts_line = at == 0 || source[..at].ends_with('\n');
        let mut after = source[at..].lines().skip(1).skip_while(|line| line.starts_with("#["));
        if starts_line && after.next().is_some_and(|line| line.starts_with("mod ")) {
            return &source[..at];
        }
        from = at + 1;
    }
    source
}

#[test]
fn comments_and_texts_are_blanked() {
    let source = r##"a("{ // }", 'x', '\'', '{') /* { /* } */ { */ b<'a>(r#"{"}"#) // }
c"##;
    let code = code_of(source);
    assert!(!code.contains(['{', '}', 'x']), "{code}");
    assert!(code.contains("b<'a>(") && code.ends_with("\nc"), "{code}");
    assert_eq!(code.chars().count(), source.chars().count());
}

#[test]
fn raw_names_and_bytes_are_told_apart() {
    assert_eq!(code_of("r#type br\"{\" b"), "r#type       b");
}

#[test]
fn functions_are_measured_from_their_name_to_their_brace() {
    let code = "fn a();\nfn b(x: [u8; 2]) -> u8 {\n    {}\n}\nfn c() {}\ntype D = fn (u8);\n";
    let named = |name: &str, line, lines| Function { name: name.to_owned(), line, lines };
    assert_eq!(functions(code), [named("b", 2, 3), named("c", 5, 1)]);
}

#[test]
fn the_test_module_is_no_product() {
    assert_eq!(product_part("a\n#[cfg(test)]\n#[allow(x)]\nmod tests {}\n"), "a\n");
    assert_eq!(product_part("a\n#[cfg(test)]\nuse b;\n"), "a\n#[cfg(test)]\nuse b;\n");
}
