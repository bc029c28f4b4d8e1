//! Whether a request comes from where it may.
//!
//! Owns: `Host` against names that lead to this server (DNS rebinding), and `Origin` against pages of
//! somebody else (CSRF). Never looks at who sends it.

use std::net::IpAddr;

use axum::http::Method;
use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use onward::Code;

use crate::options::Options;
use crate::problem::Problem;

fn refused(text: String) -> Problem {
    Problem::new(Code::Forbidden, text)
}

/// Refuses a name that this server does not answer to.
pub(super) fn check_host(parts: &Parts, options: &Options) -> Result<(), Problem> {
    if options.hosts.iter().any(|host| host == "*") {
        return Ok(());
    }
    let Some(host) = host(parts) else {
        return Err(refused("the request has no Host".to_owned()));
    };
    let name = without_port(host);
    if is_loopback(&name) || options.hosts.contains(&name) {
        return Ok(());
    }
    let text = format!(
        "this server does not answer to the name {name:?}; tell it its names with --host, \
         ONWARD_HOSTS or Options::hosts"
    );
    Err(refused(text))
}

/// Refuses what a page of another site sends, but for a link that is followed: that leaves the page, which
/// learns nothing of what is shown.
pub(super) fn check_origin(parts: &Parts) -> Result<(), Problem> {
    let is = |name: &str, value: &str| parts.headers.get(name).is_some_and(|own| own == value);
    let is_followed = parts.method == Method::GET
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document");
    if is("sec-fetch-site", "cross-site") && !is_followed {
        return Err(refused("the request comes from a page of another site".to_owned()));
    }
    let Some(origin) = parts.headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let of_host = origin.split_once("://").map(|(_, authority)| authority.to_lowercase());
    let own = host(parts).map(str::to_lowercase);
    if of_host.is_some() && of_host == own {
        return Ok(());
    }
    Err(refused(format!("the request comes from a page of {origin:?}")))
}

fn host(parts: &Parts) -> Option<&str> {
    let header = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    header.or_else(|| parts.uri.authority().map(|authority| authority.as_str()))
}

fn without_port(host: &str) -> String {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.trim_end_matches('.').to_lowercase()
}

fn is_loopback(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;
    use crate::options::{Access, Role};

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_known_names_are_answered_to() {
        let options = Options::new(Access::Open(Role::Read)).hosts(["App.example.com"]);
        let answers = |host: &str| check_host(&parts(&[("host", host)]), &options).is_ok();
        for host in
            ["localhost", "localhost:7171", "127.0.0.1:1", "127.8.9.1", "[::1]:80", "LOCALHOST."]
        {
            assert!(answers(host), "{host}");
        }
        assert!(answers("app.example.com:443"));
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example", ""]
        {
            assert!(!answers(host), "{host}");
        }
        assert!(check_host(&parts(&[]), &options).is_err());
        assert!(check_host(&parts(&[("host", "x")]), &options.hosts(["*"])).is_ok());
    }

    #[test]
    fn pages_of_others_are_refused() {
        let with = |origin: &str| check_origin(&parts(&[("host", "a:1"), ("origin", origin)]));
        assert!(with("http://a:1").is_ok());
        for origin in ["http://b:1", "http://a:2", "http://a", "null", "a:1", "http://a:1.evil"] {
            assert!(with(origin).is_err(), "{origin}");
        }
        assert!(check_origin(&parts(&[("host", "a")])).is_ok());
        assert!(check_origin(&parts(&[("host", "a"), ("sec-fetch-site", "cross-site")])).is_err());
        assert!(check_origin(&parts(&[("host", "a"), ("sec-fetch-site", "same-origin")])).is_ok());
    }
}
