//! `onward new`: the project that it makes compiles, does its work, and passes its test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::place::{Place, text};

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Cargo in the project, with what the workspace has built and downloaded.
fn cargo(dir: &Path, args: &[&str]) -> Output {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    // What cargo told this test about its own crate is no business of the other.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
    // As the workspace has it: with another, every dependency is compiled again.
    let profile = [
        r#"profile.dev.debug="line-tables-only""#,
        r#"profile.dev.package."*".debug=false"#,
        "profile.dev.package.base64.debug=false",
        "profile.dev.package.base64.opt-level=3",
        "profile.dev.package.sha2.debug=false",
        "profile.dev.package.sha2.opt-level=3",
    ];
    command.args(profile.iter().flat_map(|setting| ["--config", setting]));
    // One core: the other tests have limits of time.
    command.env("CARGO_TARGET_DIR", target).args(args).args(["-j1", "--offline"]).current_dir(dir);
    command.output().unwrap()
}

fn good(output: &Output) -> String {
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    String::from_utf8(out.clone()).unwrap()
}

#[test]
fn a_new_project_runs_twice_and_charges_once() {
    let place = Place::new();
    let dir = place.path("shop");
    let made = place.onward(&["new", text(&dir)]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stderr.contains("cargo run"), "{}", made.stderr);
    // The versions of the workspace, so that nothing is downloaded.
    std::fs::copy(root().join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
    let first = good(&cargo(&dir, &["run", "--quiet"]));
    assert!(first.contains("charging 4200 cents"), "{first}");
    assert!(first.contains("on its way, with a receipt for 4200 cents"), "{first}");
    let second = good(&cargo(&dir, &["run", "--quiet"]));
    assert!(!second.contains("charging"), "it was charged twice: {second}");
    assert!(second.contains("on its way"), "{second}");
    let tested = good(&cargo(&dir, &["test", "--quiet"]));
    assert!(tested.contains("1 passed"), "{tested}");
}

#[test]
fn nothing_is_overwritten_and_a_name_must_fit() {
    let place = Place::new();
    let dir = place.path("mine");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("thesis.txt"), "all of it").unwrap();
    let library = root().join("crates/onward");
    let path = ["--path", text(&library)];
    let full = place.onward(&[&["new", text(&dir)][..], &path].concat());
    assert_eq!(full.code, 2, "{}", full.stderr);
    assert!(full.stderr.contains("not empty"), "{}", full.stderr);
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    let odd = place.onward(&[&["new", "7 shops"][..], &path].concat());
    assert_eq!(odd.code, 2, "{}", odd.stderr);
    assert!(odd.stderr.contains("--name"), "{}", odd.stderr);
    assert!(!place.path("7 shops").exists());
    let named = place.onward(&[&["new", "7 shops", "--name", "shops"][..], &path].concat());
    assert_eq!(named.code, 0, "{}", named.stderr);
    let manifest = std::fs::read_to_string(place.path("7 shops/Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"shops\"") && manifest.contains("onward = { path"));
    let stranger = place.onward(&["new", "shop", "--path", "."]);
    assert_eq!(stranger.code, 2, "{}", stranger.stderr);
    assert!(stranger.stderr.contains("is not the library"), "{}", stranger.stderr);
    let lost = place.onward(&["new", "shop", "--path", "no-such-folder"]);
    assert_eq!(lost.code, 1, "{}", lost.stderr);
    assert!(lost.stderr.contains("no-such-folder"), "{}", lost.stderr);
    assert!(!place.path("shop").exists(), "what cannot be built is not made");
}
