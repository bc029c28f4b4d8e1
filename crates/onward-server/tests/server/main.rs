//! The server as its users meet it: a real port, a real store, and bytes of HTTP.
//!
//! Owns: what each endpoint answers, the same over SQLite and over Postgres, and what is published of
//! this crate.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test panics where it fails")]

mod http;
mod http_postgres;
mod package;
