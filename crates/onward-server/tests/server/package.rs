//! What is published: the dashboard as it was built, and nothing that builds it again.

use std::process::Command;

/// Fails where a build or a `cargo install` would need Node.
#[test]
fn the_package_has_the_dashboard_and_no_build_script() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let listed = Command::new(env!("CARGO"))
        .args(["package", "--list", "--allow-dirty", "--offline", "--manifest-path", manifest])
        .output()
        .unwrap();
    let files = String::from_utf8(listed.stdout).unwrap();
    let has = |file: &str| files.lines().any(|line| line == file);
    for built in ["dist/app.js", "dist/app.css", "dist/index.html"] {
        assert!(has(built), "{built} is not in it: {files}");
    }
    assert!(!has("build.rs"), "{files}");
    assert!(!std::fs::read_to_string(manifest).unwrap().contains("build ="));
}
