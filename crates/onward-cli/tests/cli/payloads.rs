//! Encrypted payloads on the command line: read with the keys, and the rest without them.

use crate::place::{Ended, Place, text};

const KEYS: &str = "current k1
key k1 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=
fingerprint AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=
";

/// A place with a file of keys.
fn place() -> (Place, String) {
    let place = Place::new();
    let path = place.path("keys");
    std::fs::write(&path, KEYS).unwrap();
    let path = text(&path).to_owned();
    (place, path)
}

fn with(place: &Place, keys: &str, args: &[&str]) -> Ended {
    place.onward(&[&["--payload-keys", keys], args].concat())
}

fn started(ended: &Ended) -> String {
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended.stdout.trim().to_owned()
}

#[test]
fn a_payload_is_encrypted_with_the_keys_and_read_with_them() {
    let (place, keys) = place();
    let input = "{\"secret\":\"canary\"}";
    let start = ["start", "-o", "ids", "w", "--key", "k", "--input", input];
    let id = started(&with(&place, &keys, &start));
    assert_eq!(started(&with(&place, &keys, &start)), id, "the same key and input");
    let file = std::fs::read(place.database()).unwrap();
    assert!(!String::from_utf8_lossy(&file).contains("canary"));

    let shown = with(&place, &keys, &["runs", "show", &id]);
    assert!(shown.stdout.contains(input), "{}", shown.stdout);
    let mut command = place.command(&["runs", "show", &id]);
    let shown: Ended = command.env("ONWARD_PAYLOAD_KEYS", KEYS).output().unwrap().into();
    assert!(shown.stdout.contains(input), "{}", shown.stdout);
    let mut command = place.command(&["runs", "show", &id]);
    let shown: Ended = command.env("ONWARD_PAYLOAD_KEYS_FILE", &keys).output().unwrap().into();
    assert!(shown.stdout.contains(input), "{}", shown.stdout);
}

#[test]
fn without_the_keys_a_run_is_shown_all_the_same() {
    let (place, keys) = place();
    let start = ["start", "-o", "ids", "w", "--input", "\"canary\"", "--tag", "tenant=acme"];
    let id = started(&with(&place, &keys, &start));
    let shown = place.onward(&["runs", "show", &id]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("(encrypted with key \"k1\")"), "{}", shown.stdout);
    assert!(shown.stdout.contains("tenant=acme"), "{}", shown.stdout);
    assert_eq!(place.onward(&["runs", "cancel", &id]).code, 0);
}

#[test]
fn a_copy_needs_no_keys() {
    let (place, keys) = place();
    let id = started(&with(&place, &keys, &["start", "-o", "ids", "w", "--input", "\"canary\""]));
    let copy = format!("sqlite:{}", place.path("copy.db").display());
    let copied = place.onward(&["copy", "--from", &place.url(), "--to", &copy]);
    assert_eq!(copied.code, 0, "{}", copied.stderr);
    let shown = with(&place, &keys, &["--store", &copy, "runs", "show", &id]);
    assert!(shown.stdout.contains("\"canary\""), "{}", shown.stdout);
}

#[test]
fn what_was_compressed_is_read_without_a_flag() {
    let place = Place::new();
    let input = format!("\"{}\"", "again and ".repeat(200));
    let start = ["--compress-payloads", "start", "-o", "ids", "w", "--input", &input];
    let id = started(&place.onward(&start));
    let file = std::fs::read(place.database()).unwrap();
    assert!(!String::from_utf8_lossy(&file).contains("again and again and again and again"));
    let shown = place.onward(&["runs", "show", &id]);
    assert!(shown.stdout.contains("again and again and"), "{}", shown.stdout);
}

#[test]
fn wrong_keys_are_told_and_not_shown() {
    let (place, keys) = place();
    std::fs::write(&keys, KEYS.replace("key k1", "key k2")).unwrap();
    let refused = with(&place, &keys, &["start", "w"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("invalid_key_ring"), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("the current key \"k1\" has no key line"),
        "{}",
        refused.stderr
    );
    assert!(!refused.stderr.contains("AQEB"), "{}", refused.stderr);
    let refused = with(&place, "nowhere", &["start", "w"]);
    assert!(refused.stderr.contains("nowhere"), "{}", refused.stderr);
    assert!(!place.database().exists(), "nothing is created");
}
