//! The dashboard's files, which are a part of the program.
//!
//! Owns: which file a path has, and how it is sent. Never reads a file of the disk.

use std::io::Write;
use std::sync::OnceLock;

use axum::extract::Request;
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    VARY,
};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use onward::{Code, Fingerprint};

use crate::endpoint::{API, Endpoint};
use crate::problem::Problem;
use crate::request::Mount;

/// Any path that nothing else has. Anybody may have the files: they hold nothing of the store.
pub(crate) static ENDPOINT: Endpoint = Endpoint {
    name: "dashboard",
    method: "get",
    path: "/",
    summary: "The dashboard",
    role: None,
    params: &["*"],
    takes: None,
    gives: &[(200, "Text")],
    kind: "text/html",
};

/// What stands in the page for the path that the router is mounted at.
const BASE: &str = "/__base__/";

const PAGE: &str = include_str!("../dist/index.html");

struct File {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    packed: OnceLock<Packed>,
}

/// A file as it is sent, made when it is first asked for.
struct Packed {
    tag: String,
    gzip: Option<Vec<u8>>,
}

const fn file_of(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> File {
    File { name, kind, bytes, packed: OnceLock::new() }
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

static FILES: [File; 4] = [
    file_of("/app.js", SCRIPT, include_bytes!("../dist/app.js")),
    file_of("/live.js", SCRIPT, include_bytes!("../dist/live.js")),
    file_of("/app.css", "text/css; charset=utf-8", include_bytes!("../dist/app.css")),
    file_of("/icons.svg", "image/svg+xml", include_bytes!("../dist/icons.svg")),
];

/// `GET` of any path that nothing else has: a file, or the page, which has a path for each of its
/// views.
pub(crate) async fn file(mount: Mount, request: Request) -> Result<Response, Problem> {
    let (path, headers) = (request.uri().path(), request.headers());
    if let Some(file) = FILES.iter().find(|file| file.name == path) {
        return Ok(file.sent(headers));
    }
    let wants_page = headers.get(ACCEPT).is_some_and(|kinds| {
        let kinds = kinds.to_str().unwrap_or_default();
        kinds.contains("text/html") || (path == "/" && kinds.contains("*/*"))
    });
    if wants_page && !path.starts_with(API) {
        return Ok(page(&mount, headers));
    }
    Err(Problem::new(Code::NoSuchPath, format!("there is nothing at {path}")))
}

fn page(mount: &Mount, headers: &HeaderMap) -> Response {
    let text = PAGE.replace(BASE, &escaped(&format!("{}/", mount.0)));
    let tag = tag(text.as_bytes());
    if is_known(headers, &tag) {
        return (StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response();
    }
    let head = head("text/html; charset=utf-8", tag);
    (head, text).into_response()
}

/// A path inside an attribute.
fn escaped(path: &str) -> String {
    path.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

impl File {
    fn sent(&'static self, headers: &HeaderMap) -> Response {
        let packed =
            self.packed.get_or_init(|| Packed { tag: tag(self.bytes), gzip: gzip(self.bytes) });
        if is_known(headers, &packed.tag) {
            return (StatusCode::NOT_MODIFIED, [(ETAG, packed.tag.clone())]).into_response();
        }
        let head = head(self.kind, packed.tag.clone());
        let takes = headers.get(ACCEPT_ENCODING).and_then(|kinds| kinds.to_str().ok());
        match packed.gzip.as_deref().filter(|_| takes.is_some_and(|kinds| kinds.contains("gzip"))) {
            Some(gzip) => (head, [(CONTENT_ENCODING, "gzip")], gzip).into_response(),
            None => (head, self.bytes).into_response(),
        }
    }
}

fn head(kind: &'static str, tag: String) -> [(HeaderName, String); 4] {
    // A file has the same name in every build, so it is asked for each time whether it is the same.
    [
        (CONTENT_TYPE, kind.to_owned()),
        (ETAG, tag),
        (CACHE_CONTROL, "no-cache".to_owned()),
        (VARY, "Accept-Encoding".to_owned()),
    ]
}

fn tag(bytes: &[u8]) -> String {
    let mut hash = Fingerprint::of(bytes).to_string();
    hash.truncate(32);
    format!("\"{hash}\"")
}

fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    known.is_some_and(|tags| tags.split(',').any(|it| it.trim().trim_start_matches("W/") == tag))
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes).ok()?;
    packed.finish().ok()
}
