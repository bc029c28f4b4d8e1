//! `onward serve`, `dev` and `tokens` as processes of their own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::place::server::{SOON, Server, serve};
use crate::place::{Place, text};

#[test]
fn a_server_shows_the_store_and_stops_when_it_is_told_to() {
    let place = Place::new();
    let run = place.start(&["index", "--input", "7"]);
    let server = Server::start(serve(&place, &[]));
    assert_eq!(server.get("/readyz"), (200, "ok\n".to_owned()));
    let (status, body) = server.get(&format!("/api/v1/runs/{run}"));
    assert_eq!(status, 200);
    assert!(body.contains("\"input\":7"), "{body}");
    // A stream that is open does not keep it.
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(stream, "GET /api/v1/stream HTTP/1.1\r\nHost: {}\r\n\r\n", server.address).unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(server.stop("-TERM"), 0);
}

#[test]
fn a_server_for_others_needs_tokens() {
    let place = Place::new();
    let refused = place.onward(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("--token-file"), "{}", refused.stderr);

    let lost = place.onward(&["serve", "--listen", "127.0.0.1:0", "--token-file", ""]);
    assert_eq!(lost.code, 2, "{}", lost.stderr);
    assert!(lost.stderr.contains("--token-file is empty"), "{}", lost.stderr);

    let file = place.path("tokens");
    let made = place.onward(&["tokens", "create", "ada", "--role", "read", "--file", text(&file)]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let token = made.stdout.trim().to_owned();
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept.starts_with("ada read ") && !kept.contains(&token), "{kept}");

    let mut command = place.command(&["serve", "--listen", "0.0.0.0:0", "-vv"]);
    let log = std::fs::File::create(place.path("log")).unwrap();
    command.args(["--token-file", text(&file)]).stderr(log);
    let mut server = Server::start(command);
    server.address = server.address.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(server.get("/api/v1/meta").0, 401);
    let head = format!("GET /api/v1/meta HTTP/1.1\r\nAuthorization: Bearer {token}");
    let (status, body) = server.ask(&head);
    assert_eq!(status, 200);
    assert!(body.contains("\"role\":\"read\"") && body.contains("\"who\":\"ada\""), "{body}");
    let wrong = format!("GET /api/v1/meta HTTP/1.1\r\nAuthorization: Bearer {token}0");
    assert_eq!(server.ask(&wrong).0, 401);
    std::fs::write(&file, "").unwrap();
    let begun = Instant::now();
    while server.ask(&head).0 == 200 {
        assert!(begun.elapsed() < SOON, "a token that was taken away still counts");
    }
    assert_eq!(server.stop("-TERM"), 0);
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(!log.contains(&token) && !log.contains("onw_"), "the log holds a token: {log}");
}

#[test]
fn a_flag_counts_before_the_environment_and_that_before_the_file() {
    let place = Place::new();
    let settings = "store = \"memory:\"\n[server]\nlisten = \"127.0.0.1:0\"\nread_only = true\n";
    std::fs::write(place.path("onward.toml"), settings).unwrap();
    let store = |server: &Server| {
        let body = server.get("/api/v1/meta").1;
        let meta: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(meta["read_only"], true);
        meta["store"].as_str().unwrap().to_owned()
    };
    let mut of_file = place.command(&["serve"]);
    of_file.env_remove("ONWARD_STORE").env("DATABASE_URL", "sqlite:other.db");
    assert_eq!(store(&Server::start(of_file)), "memory");
    assert_eq!(store(&Server::start(place.command(&["serve"]))), "sqlite");
    let flag = place.command(&["serve", "--store", "memory:"]);
    assert_eq!(store(&Server::start(flag)), "memory");
    std::fs::write(place.path("onward.toml"), "[server]\nread_only = true\n").unwrap();
    let mut last = place.command(&["serve", "--listen", "0"]);
    last.env_remove("ONWARD_STORE").env("DATABASE_URL", "sqlite:other.db");
    assert_eq!(store(&Server::start(last)), "sqlite");
    assert!(place.path("other.db").exists(), "DATABASE_URL counts when nothing else is said");
    std::fs::write(place.path("onward.toml"), "[server]\nlisen = \"1\"\n").unwrap();
    let wrong = place.onward(&["serve"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.stderr.contains("lisen"), "{}", wrong.stderr);
}

#[test]
fn dev_takes_the_next_port_and_shows_orders_at_work() {
    let place = Place::new();
    let first = Server::start(place.command(&["dev"]));
    let second = Server::start(place.command(&["dev", "--demo"]));
    assert_ne!(first.address, second.address);
    let begun = Instant::now();
    loop {
        let (status, body) = second.get("/api/v1/runs?workflow=demo-order&state=completed");
        assert_eq!(status, 200);
        if body.contains("demo-order") {
            break;
        }
        assert!(begun.elapsed() < SOON, "no order was completed: {body}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(second.stop("-INT"), 0);
    assert_eq!(first.stop("-TERM"), 0);
}

/// A server that was given the keys shows what it decodes; one without them says what it cannot read.
#[test]
fn a_server_with_the_keys_shows_decoded_payloads() {
    const KEYS: &str = "current k1
key k1 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=
fingerprint AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=
";
    let place = Place::new();
    let path = place.path("keys");
    std::fs::write(&path, KEYS).unwrap();
    let keys = ["--payload-keys", text(&path)];
    let start = ["start", "-o", "ids", "index", "--input", "{\"secret\":\"canary\"}"];
    let started = place.onward(&[&keys[..], &start].concat());
    assert_eq!(started.code, 0, "{}", started.stderr);
    let run = format!("/api/v1/runs/{}", started.stdout.trim());

    let server = Server::start(serve(&place, &keys));
    let (status, body) = server.get(&run);
    assert_eq!(status, 200);
    assert!(body.contains("\"input\":{\"secret\":\"canary\"}"), "{body}");
    assert_eq!(server.stop("-TERM"), 0);

    let server = Server::start(serve(&place, &[]));
    let (status, body) = server.get(&run);
    assert_eq!(status, 200, "the rest is shown all the same");
    assert!(!body.contains("canary"), "{body}");
    assert_eq!(server.stop("-TERM"), 0);
}

/// Waits for one request, answers it, and gives all of it.
#[cfg(feature = "opentelemetry")]
fn collected(collector: &std::net::TcpListener) -> Vec<u8> {
    collector.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    let mut stream = loop {
        match collector.accept() {
            Ok((stream, _)) => break stream,
            Err(_) => assert!(begun.elapsed() < SOON, "nothing was sent"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut some).unwrap();
        all.extend_from_slice(&some[..read]);
        let text = String::from_utf8_lossy(&all).to_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.split_once("content-length: ").unwrap().1;
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        if read == 0 || all.len() >= head.len() + 4 + length {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            return all;
        }
    }
}

#[cfg(feature = "opentelemetry")]
#[test]
fn spans_are_sent_to_the_collector_that_is_named() {
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Place::new();
    let mut command = serve(&place, &[]);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", collector.local_addr().unwrap()));
    command.env("NO_PROXY", "127.0.0.1");
    let server = Server::start(command);
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let head = format!("GET /api/v1/meta HTTP/1.1\r\ntraceparent: 00-{trace}-b7ad6b7169203331-01");
    assert_eq!(server.ask(&head).0, 200);
    let received = std::thread::spawn(move || collected(&collector));
    assert_eq!(server.stop("-TERM"), 0);
    let sent = received.join().unwrap();
    let holds = |part: &[u8]| sent.windows(part.len()).any(|window| window == part);
    assert!(sent.starts_with(b"POST /v1/traces"), "{}", String::from_utf8_lossy(&sent));
    assert!(holds(b"GET /api/v1/meta") && holds(b"onward"), "{}", String::from_utf8_lossy(&sent));
    let id: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&trace[2 * at..2 * at + 2], 16).unwrap()).collect();
    assert!(holds(&id), "it is in the trace of its caller");
}

#[test]
fn tokens_are_listed_by_name_and_revoked() {
    let place = Place::new();
    let file = place.path("tokens");
    let file = text(&file);
    for (name, role) in [("ada", "admin"), ("bob", "read"), ("ada", "read")] {
        let made = place.onward(&["tokens", "create", name, "--role", role, "--file", file]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        let had = made.stderr.contains("ada had 1 token before (admin), and each of them goes on");
        assert_eq!(had, role == "read" && name == "ada", "{}", made.stderr);
    }
    let listed = place.onward(&["tokens", "list", "--file", file]);
    assert_eq!(listed.stdout, "NAME  ROLE\nada   admin\nbob   read\nada   read\n");
    let unknown = place.onward(&["tokens", "revoke", "eve", "--file", file]);
    assert_eq!(unknown.code, 3, "{}", unknown.stderr);
    assert!(unknown.stderr.contains("onward tokens list"), "{}", unknown.stderr);
    use std::os::unix::fs::PermissionsExt;
    // A server of another user may read it by its group.
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let revoked = place.onward(&["tokens", "revoke", "ada", "--file", file]);
    assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(place.onward(&["tokens", "list", "--file", file, "-o", "ids"]).stdout, "bob\n");
    let missing = place.onward(&["tokens", "list", "--file", "no-such-file"]);
    assert_eq!(missing.code, 1, "{}", missing.stderr);
    assert!(missing.stderr.contains("no-such-file"), "{}", missing.stderr);
}

/// A token that comes from a file of secrets often has the end of its line.
#[test]
fn a_token_from_the_environment_is_taken_without_its_line_end() {
    let place = Place::new();
    let mut command = serve(&place, &[]);
    command.env("ONWARD_TOKEN", "a-token-that-nobody-guesses\n");
    let server = Server::start(command);
    let head = "GET /api/v1/meta HTTP/1.1\r\nAuthorization: Bearer a-token-that-nobody-guesses";
    assert_eq!(server.ask(head).0, 200);
    assert_eq!(server.get("/api/v1/meta").0, 401);
}

#[test]
fn a_demo_writes_no_orders_into_the_database_of_the_application() {
    let place = Place::new();
    let mut dev = place.command(&["dev", "--demo", "--listen", "127.0.0.1:0"]);
    let url = format!("sqlite:{}", place.path("app.db").display());
    let refused = dev.env_remove("ONWARD_STORE").env("DATABASE_URL", url).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("--store"), "{said}");
    assert!(!place.path("app.db").exists());
}

/// What the server says of itself.
fn meta(server: &Server) -> serde_json::Value {
    serde_json::from_str(&server.get("/api/v1/meta").1).unwrap()
}

#[test]
fn a_variable_that_says_no_counts_before_a_file_that_says_yes() {
    let place = Place::new();
    let settings = "[server]\nread_only = true\nhide_payloads = true\ninsecure = true\n";
    std::fs::write(place.path("onward.toml"), settings).unwrap();
    let mut silent = serve(&place, &[]);
    for name in ["ONWARD_CONFIG", "ONWARD_TOKEN_FILE", "ONWARD_HOSTS", "ONWARD_READ_ONLY"] {
        silent.env(name, "");
    }
    let of_file = meta(&Server::start(silent));
    assert_eq!((&of_file["read_only"], &of_file["hide_payloads"]), (&true.into(), &true.into()));
    let mut command = serve(&place, &["--hide-payloads=no"]);
    command.env("ONWARD_READ_ONLY", "0");
    let told = meta(&Server::start(command));
    assert_eq!((&told["read_only"], &told["hide_payloads"]), (&false.into(), &false.into()));
    let mut open = place.command(&["serve", "--listen", "0.0.0.0:0"]);
    let refused = open.env("ONWARD_INSECURE", "false").output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "it is not to be insecure");
}

#[test]
fn a_server_that_is_to_stop_says_so_for_a_while_before_it_closes() {
    let place = Place::new();
    let mut server = Server::start(serve(&place, &["--stop-delay", "3s"]));
    assert_eq!(server.get("/readyz").0, 200);
    let pid = server.child.id().to_string();
    let kill = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(kill.success());
    let begun = Instant::now();
    while server.get("/readyz").0 == 200 {
        assert!(begun.elapsed() < SOON, "it does not say that it stops");
    }
    // Each on a connection of its own, as a balancer that has not heard of it yet.
    assert_eq!(server.get("/readyz"), (503, "stopping\n".to_owned()));
    assert_eq!(server.get("/api/v1/meta").0, 200, "it serves meanwhile");
    let exit = loop {
        if let Some(status) = server.child.try_wait().unwrap() {
            break status.code();
        }
        assert!(begun.elapsed() < SOON, "it does not stop");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(exit, Some(0));
    assert!(begun.elapsed() >= Duration::from_secs(2), "it closed at once");
    let wrong = place.onward(&["serve", "--stop-delay", "soon"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
}

#[test]
fn a_server_listens_where_the_environment_says_and_asks_for_keys() {
    let place = Place::new();
    let mut command = place.command(&["serve"]);
    command.env("ONWARD_LISTEN", "127.0.0.2:0").env("ONWARD_REQUIRE_KEY", "bill,pay");
    let server = Server::start(command);
    assert!(server.address.starts_with("127.0.0.2:"), "{}", server.address);
    let start = |workflow: &str| {
        let head = "Content-Type: application/json\r\nContent-Length: 2";
        let stream = format!("POST /api/v1/workflows/{workflow}/runs HTTP/1.1\r\n{head}");
        let mut socket = TcpStream::connect(&server.address).unwrap();
        let host = &server.address;
        write!(socket, "{stream}\r\nHost: {host}\r\nConnection: close\r\n\r\n{{}}").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    let refused = start("pay");
    assert!(
        refused.starts_with("HTTP/1.1 400") && refused.contains("Idempotency-Key"),
        "{refused}"
    );
    assert!(start("index").starts_with("HTTP/1.1 201"));
}

#[test]
fn dev_opens_its_address_in_a_browser() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let (programs, opened) = (place.path("bin"), place.path("opened"));
    std::fs::create_dir(&programs).unwrap();
    let name = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let browser = programs.join(name);
    let at = text(&opened);
    let script = format!("#!/bin/sh\necho \"$1\" > {at}.new\nmv {at}.new {at}\n");
    std::fs::write(&browser, script).unwrap();
    std::fs::set_permissions(&browser, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", text(&programs), std::env::var("PATH").unwrap());
    let mut command = place.command(&["dev", "--open", "--listen", "127.0.0.1:0"]);
    command.env("PATH", path);
    let server = Server::start(command);
    let begun = Instant::now();
    while !opened.exists() {
        assert!(begun.elapsed() < SOON, "no browser was opened");
        std::thread::sleep(Duration::from_millis(20));
    }
    let address = std::fs::read_to_string(&opened).unwrap();
    assert_eq!(address.trim(), format!("http://{}", server.address));
}

/// A command that looked elsewhere than the server beside it would say that all is well.
#[test]
fn every_command_looks_at_the_store_that_a_server_would_serve() {
    let place = Place::new();
    let ids = |of: &str, store: Option<&str>| {
        let mut command = place.command(&["runs", "list", "-o", "ids"]);
        command.env_remove("ONWARD_STORE").env("DATABASE_URL", of);
        if let Some(store) = store {
            command.env("ONWARD_STORE", store);
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let start = |store: &str| place.start(&["work", "--store", store]);
    let (one, two, three) =
        (start("sqlite:one.db"), start("sqlite:two.db"), start("sqlite:three.db"));
    assert_eq!(
        ids("sqlite:one.db", None),
        one,
        "the application's database, where nothing is said"
    );
    std::fs::write(place.path("onward.toml"), "store = \"sqlite:two.db\"\n").unwrap();
    assert_eq!(ids("sqlite:one.db", None), two, "the file counts before it");
    assert_eq!(ids("sqlite:one.db", Some("sqlite:three.db")), three);
    assert_eq!(ids("sqlite:one.db", Some("")), two, "an empty variable says nothing");
    let mut doctor = place.command(&["doctor", "-o", "json", "--config", "other.toml"]);
    std::fs::write(place.path("other.toml"), "store = \"sqlite:nowhere.db\"\n").unwrap();
    doctor.env_remove("ONWARD_STORE");
    let found = String::from_utf8(doctor.output().unwrap().stdout).unwrap();
    assert!(found.contains("nowhere.db"), "{found}");
}
