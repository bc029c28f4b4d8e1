//! Every command line of the README, executed.

use std::path::Path;

use crate::copy::Schema;
use crate::place::server::Server;
use crate::place::{Place, text};

const README: &str = include_str!("../../../../README.md");

/// The database of the README's command lines that are about Postgres.
const POSTGRES: &str = "postgres://app@db/shop";

/// The command lines of the page, without their comments: those of its blocks, and those in its text.
fn command_lines() -> Vec<String> {
    let mut blocks = README.split("```");
    let mut lines = Vec::new();
    while let Some(prose) = blocks.next() {
        let quoted = prose.split('`').skip(1).step_by(2);
        let is_command = |code: &&str| code.contains(' ') || code.starts_with("./");
        let programs = ["cargo ", "onward ", "./scripts/", "scripts/"];
        let commands = quoted
            .filter(is_command)
            .filter(|code| programs.iter().any(|program| code.starts_with(program)));
        lines.extend(commands.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")));
        if let Some(block) = blocks.next().and_then(|block| block.strip_prefix("sh\n")) {
            let code = block.lines().map(|line| line.split(" #").next().unwrap_or_default());
            lines.extend(code.map(|line| line.trim().to_owned()));
        }
    }
    lines
}

#[test]
fn the_build_that_is_measured_has_the_dependencies_of_the_readme() {
    let measured = include_str!("../../../../scripts/build-times");
    let block = README.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines: Vec<_> = block.lines().filter(|line| !line.starts_with("onward ")).collect();
    assert_eq!(lines.len(), 3, "{block}");
    assert!(lines.iter().all(|line| measured.contains(line)), "{lines:?}");
}

/// Executes a line that is about the store in a folder, and gives its exit code.
fn execute(line: &str, place: &Place) {
    let args: Vec<_> = line.split(' ').skip(1).collect();
    let mut command = place.command(&args);
    let output = command.env_remove("ONWARD_STORE").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

#[test]
fn every_command_line_of_the_readme_is_executed() {
    let place = Place::new();
    place.start(&["index-attachment", "--key", "attachment-7"]);
    let schema = Schema::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let lines = command_lines();
    assert!(lines.len() > 8, "{lines:?}");
    for line in lines {
        match line.as_str() {
            // Executed by the tests of `onward-demo`, whose program this is.
            "cargo run -p onward-demo" => assert!(root.join("crates/onward-demo").exists()),
            // What makes the program that this test executes, and what executes this test.
            "cargo install --path crates/onward-cli" => {
                let manifest = root.join("crates/onward-cli/Cargo.toml");
                assert!(std::fs::read_to_string(manifest).unwrap().contains("name = \"onward\""));
            }
            "./scripts/test" => assert!(root.join("scripts/test").exists()),
            // Executed in `new.rs`, in a folder of the test's.
            "onward new ../shop && cd ../shop && cargo run" => {}
            // Executed by hand: they need a quiet machine, and the one beside dbos crates of its own. The other
            // is compiled with the tests.
            bench if bench.contains("-p onward-bench") || bench.contains("bench/peers") => {
                assert!(root.join("bench/peers/dbos/compare").exists());
            }
            "onward dev --open" => {
                let mut dev = place.command(&["dev", "--open", "--listen", "127.0.0.1:0"]);
                dev.env_remove("ONWARD_STORE");
                let mut server = Server::start(dev);
                let (status, _) = server.get("/api/v1/runs");
                assert_eq!(status, 200);
                server.child.kill().unwrap();
                server.child.wait().unwrap();
            }
            copy if copy.starts_with("onward copy ") => {
                assert!(copy.contains(POSTGRES), "{copy}");
                execute(&copy.replace(POSTGRES, &schema.url()), &place);
            }
            other if other.starts_with("onward ") => execute(other, &place),
            other => panic!("{other:?} is executed by no test"),
        }
    }
    assert!(text(&place.database()).ends_with("onward.db"), "the README's store");
}
