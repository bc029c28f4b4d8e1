//! What is said where a server is not there, does not know the caller, or cannot do it.

use std::io::{Read, Write};
use std::net::TcpListener;

use crate::place::server::{Server, serve};
use crate::place::{Ended, Place, text};

/// A well-formed id that no store has.
const NOBODY: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[test]
fn where_no_server_is_it_says_how_to_start_one() {
    let place = Place::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ended = place.onward(&["--server", &format!("http://{free}"), "runs", "list"]);
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    for part in ["onward serve", "--server", &free.to_string()] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn what_is_no_server_of_ours_is_told_so() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        let body = "<html>";
        write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .unwrap();
    });
    let ended = place.onward(&["--server", &url, "runs", "list"]);
    answering.join().unwrap();
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("404") && ended.stderr.contains("onward serve"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_token_is_needed_known_and_enough_and_never_typed() {
    let place = Place::new();
    let run = place.start(&["work"]);
    let file = place.path("tokens");
    let made =
        place.onward(&["tokens", "create", "ada", "--role", "operate", "--file", text(&file)]);
    let token = made.stdout.trim().to_owned();
    let server = Server::start(serve(&place, &["--token-file", text(&file)]));
    let url = server.url();
    let with = |token: &str, args: &[&str]| {
        let mut command = place.command(args);
        command.env("ONWARD_SERVER", &url).env("ONWARD_TOKEN", token);
        Ended::from(command.output().unwrap())
    };
    let none = with("", &["runs", "list"]);
    assert_eq!(none.code, 4, "{}", none.stderr);
    assert!(none.stderr.contains("wants a token"), "{}", none.stderr);
    let wrong = with("onw_wrong", &["runs", "list"]);
    assert_eq!(wrong.code, 4, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("does not know this token"), "{}", wrong.stderr);
    assert!(wrong.stderr.contains("ONWARD_TOKEN") && !wrong.stderr.contains("onw_wrong"));
    assert!(with(&token, &["runs", "list"]).stdout.contains(&run));
    let own = place.path("token");
    std::fs::write(&own, format!("{token}\n")).unwrap();
    let of_file = place.onward(&["--server", &url, "--token-file", text(&own), "stats"]);
    assert_eq!(of_file.code, 0, "{}", of_file.stderr);
    let hashes = place.onward(&["--server", &url, "--token-file", text(&file), "stats"]);
    assert_eq!(hashes.code, 2, "{}", hashes.stderr);
    assert!(hashes.stderr.contains("hashes"), "{}", hashes.stderr);
    let role = with(&token, &["audit", "list"]);
    assert_eq!(role.code, 1, "{}", role.stderr);
    assert!(role.stderr.contains("admin"), "{}", role.stderr);
}

#[test]
fn what_a_server_cannot_do_is_refused_before_anything_is_done() {
    let place = Place::new();
    place.start(&["work"]);
    let server = Server::of(&place);
    let url = server.url();
    for args in [
        &["keys", "steps", "--keys", "redis://localhost"][..],
        &["ops", "start", "retry"],
        &["ops", "start", "retry", NOBODY, "--state", "failed"],
        &["--store", "memory:", "runs", "list"],
        &["stats", "-o", "ids"],
        &["runs", "cancel", NOBODY, "--watch"],
    ] {
        let ended = place.onward(&[&["--server", &url], args].concat());
        assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
    }
    let keys = place.onward(&["--server", &url, "keys", "steps", "--keys", "redis://localhost"]);
    assert!(keys.stderr.contains("leave --keys out"), "{}", keys.stderr);
    for wrong in ["localhost:7171", "ftp://host", "http://ada:hunter2@host"] {
        let ended = place.onward(&["--server", wrong, "runs", "list"]);
        assert_eq!(ended.code, 2, "{wrong}: {}", ended.stderr);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    for args in [
        &["runs", "show", NOBODY][..],
        &["runs", "delete", NOBODY],
        &["ops", "show", NOBODY],
        &["workers", "show", NOBODY],
        &["keys", "show", "w", "no-such-key"],
        &["keys", "step", "no-such-key"],
        &["schedules", "show", "no-such-schedule"],
        &["signals", "send", NOBODY, "go"],
    ] {
        let ended = place.onward(&[&["--server", &url], args].concat());
        assert_eq!(ended.code, 3, "{args:?}: {}", ended.stderr);
    }
}
