//! The code of the guide, compiled, and executed where the page executes it. On the page it stands without
//! the stage around it, which a reader would have to read past.
#![allow(dead_code, reason = "much of it only has to compile")]
#![allow(clippy::unwrap_used, clippy::unit_arg, reason = "a test panics; code of a page is short")]

mod first;
mod readme;
mod second;

/// The code of a page, block by block, without indentation and blank lines.
fn blocks(page: &str) -> Vec<Vec<String>> {
    let (mut blocks, mut inside) = (Vec::new(), false);
    for line in page.lines() {
        match line {
            "```rust" => {
                inside = true;
                blocks.push(Vec::new());
            }
            "```" => inside = false,
            line if inside && !line.trim().is_empty() => {
                blocks.last_mut().unwrap().push(line.trim().to_owned());
            }
            _ => {}
        }
    }
    blocks
}

/// The modules of a file, one for each block of the page, in its order.
fn parts(source: &str) -> Vec<&str> {
    source.split("#[rustfmt::skip]").skip(1).collect()
}

/// Fails where a page has a line that its parts have not, or has it in another order.
fn assert_compiled(page: &str, sources: &[&str]) {
    let blocks = blocks(page);
    let parts: Vec<_> = sources.iter().flat_map(|source| parts(source)).collect();
    assert_eq!(blocks.len(), parts.len(), "each block has a part, and each part a block");
    for (number, (block, part)) in blocks.iter().zip(&parts).enumerate() {
        let mut lines = part.lines().map(str::trim);
        for line in block {
            let there = lines.any(|own| own == line);
            assert!(there, "block {number} of the page has a line that its part has not: {line}");
        }
    }
}

#[test]
fn every_line_of_the_guide_is_compiled_in_its_order() {
    let sources = [include_str!("guide/first.rs"), include_str!("guide/second.rs")];
    assert_compiled(include_str!("../../../../docs/guide.md"), &sources);
}

#[test]
fn every_line_of_the_readme_is_compiled_in_its_order() {
    assert_compiled(include_str!("../../../../README.md"), &[include_str!("guide/readme.rs")]);
}

#[test]
fn nobody_has_to_read_past_lines_of_the_guide_or_the_readme() {
    let pages = [include_str!("../../../../docs/guide.md"), include_str!("../../../../README.md")];
    for line in pages.iter().flat_map(|page| blocks(page)).flatten() {
        assert!(!line.starts_with("# "), "it is there for the tests alone: {line}");
    }
}
