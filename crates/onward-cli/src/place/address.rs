//! The address of a server, as it is typed: `http://HOST[:PORT][/PATH]` or `https://…`.
//!
//! Owns: what a URL of a server is. Never takes a secret in one.

use hyper::Uri;

use crate::problem::Problem;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The name or number of the machine, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Whether it is spoken to over TLS.
    pub(super) tls: bool,
    /// The `Host` that it is asked by.
    pub(super) authority: String,
    /// The path that it is mounted at, without a slash at its end.
    pub(super) mount: String,
}

impl Address {
    /// Reads a URL.
    pub(super) fn of(url: &str) -> Result<Self, Problem> {
        let wrong = |why: &str| {
            // A password in it is not repeated on the screen.
            let shown = if url.contains('@') { "this URL" } else { url };
            Problem::Usage(format!("--server {shown:?}: {why}; write it as http://HOST:7171"))
        };
        let uri: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it does not begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("a token goes into ONWARD_TOKEN or --token-file, never into a URL"));
        }
        if uri.query().is_some() {
            return Err(wrong("it has a query"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self {
            host,
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            tls,
            authority: authority.as_str().to_owned(),
            mount: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// As it is shown.
    pub(super) fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.mount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_host_port_and_mount() {
        let plain = Address::of("http://localhost:7171").unwrap();
        assert_eq!((plain.host.as_str(), plain.port, plain.tls), ("localhost", 7171, false));
        assert_eq!(plain.mount, "");
        let mounted = Address::of("https://app.example.com/workflows/").unwrap();
        assert_eq!((mounted.port, mounted.mount.as_str()), (443, "/workflows"));
        assert_eq!(mounted.url(), "https://app.example.com/workflows");
        assert_eq!(Address::of("http://[::1]:1").unwrap().host, "::1");
    }

    #[test]
    fn what_is_no_url_of_a_server_is_refused_and_no_secret_is_repeated() {
        for wrong in ["localhost:7171", "ftp://a", "http://", "http://a/?token=x", "nonsense"] {
            assert!(Address::of(wrong).is_err(), "{wrong}");
        }
        let secret = Address::of("http://ada:hunter2@host").unwrap_err().to_string();
        assert!(secret.contains("ONWARD_TOKEN") && !secret.contains("hunter2"), "{secret}");
    }
}
