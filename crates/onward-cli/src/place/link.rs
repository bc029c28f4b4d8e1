//! The way to a server: one connection for each call.
//!
//! Owns: connecting, TLS, the token, and the bounds of an answer. Never logs a token, follows no
//! redirect, and repeats only what the server refused for coming too often.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;

use super::address::Address;
use super::call::{Call, answered};
use crate::problem::Problem;

/// How long a connection may take: longer than any network that is worth using.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How long an answer may take: longer than the server's own longest, a backfill of 25 seconds.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Bytes of an answer: a page of a history has 8 MiB of payloads, and one record more.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How often a call is repeated that came too often.
const AGAIN_MAX: u32 = 10;

/// The longest wait before such a repeat.
const AGAIN_WAIT_MAX: Duration = Duration::from_secs(10);

/// A server, and the token that it is asked with.
pub(super) struct Link {
    address: Address,
    authorization: Option<HeaderValue>,
    /// What this machine trusts, read at the first call that needs it: the machine's store of
    /// certificates is large.
    trust: OnceCell<Arc<ClientConfig>>,
}

/// An answer: status, seconds until a repeat makes sense, and body.
struct Answer {
    status: u16,
    wait: Option<Duration>,
    body: Bytes,
}

impl Link {
    pub(super) fn new(url: &str, token: Option<String>) -> Result<Self, Problem> {
        let header = |token: String| {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| {
                Problem::Usage("the token holds characters that no token has".to_owned())
            })?;
            value.set_sensitive(true);
            Ok::<_, Problem>(value)
        };
        let (address, authorization) = (Address::of(url)?, token.map(header).transpose()?);
        Ok(Self { address, authorization, trust: OnceCell::new() })
    }

    /// Makes one call, and reads what it answers.
    pub(super) async fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Problem> {
        for _ in 0..AGAIN_MAX {
            let answer = self.answer(call).await?;
            if answer.status != 429 {
                return answered(answer.status, &answer.body).map_err(|error| self.named(error));
            }
            tokio::time::sleep(answer.wait.unwrap_or(Duration::from_secs(1))).await;
        }
        let why = "it is asked too often; wait a while, or give this caller a token of its own";
        Err(self.unreached(why))
    }

    async fn answer(&self, call: &Call) -> Result<Answer, Problem> {
        let connecting = tokio::time::timeout(CONNECT_MAX, self.connect());
        let late = |_| self.unreached("it did not take the connection within 10 seconds");
        let io = connecting.await.map_err(late)??;
        let asking = tokio::time::timeout(ANSWER_MAX, self.exchange(io, call));
        asking.await.map_err(|_| self.unreached("it did not answer within a minute"))?
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Problem> {
        let Address { host, port, tls, .. } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.map_err(|error| self.unreached(&error.to_string()))?;
        if !tls {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.clone());
        let name = name.map_err(|error| self.untrusted(&error.to_string()))?;
        let tls = TlsConnector::from(self.trusted().await?);
        let stream = tls.connect(name, stream).await;
        Ok(Box::new(stream.map_err(|error| self.untrusted(&error.to_string()))?))
    }

    /// What this machine trusts, the same for every call.
    async fn trusted(&self) -> Result<Arc<ClientConfig>, Problem> {
        let read = async || trust().map(Arc::new).map_err(|why| self.untrusted(&why));
        self.trust.get_or_try_init(read).await.cloned()
    }

    async fn exchange(&self, io: Box<dyn Stream>, call: &Call) -> Result<Answer, Problem> {
        let broken = |error: hyper::Error| self.unreached(&error.to_string());
        let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(broken)?;
        // It ends with the answer, or with an error that the answer has too.
        let driving = tokio::spawn(connection);
        let response = sender.send_request(self.request(call)?).await.map_err(broken)?;
        let (status, wait) = (response.status().as_u16(), wait_of(&response));
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        driving.abort();
        let body = body.map_err(|error| self.unreached(&error.to_string()))?.to_bytes();
        Ok(Answer { status, wait, body })
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, Problem> {
        let body = call.body.clone().unwrap_or_default();
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", self.address.mount, call.path()))
            .header(HOST, &self.address.authority)
            .header(USER_AGENT, concat!("onward-cli/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key);
        }
        let unsent = |error| Problem::Usage(format!("this cannot be sent to a server: {error}"));
        request.body(Full::from(body)).map_err(unsent)
    }

    fn unreached(&self, why: &str) -> Problem {
        Problem::NoServer { url: self.address.url(), why: why.to_owned() }
    }

    fn untrusted(&self, why: &str) -> Problem {
        Problem::Untrusted { url: self.address.url(), why: why.to_owned() }
    }

    /// A refused token, with what to do about it.
    fn named(&self, problem: Problem) -> Problem {
        match problem {
            Problem::Refused { code: Some(onward::Code::Unauthorized), .. } => {
                Problem::WrongToken { url: self.address.url(), sent: self.authorization.is_some() }
            }
            Problem::Server(text) => Problem::Server(format!("{}: {text}", self.address.url())),
            problem => problem,
        }
    }
}

/// A connection, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

fn wait_of<T>(response: &Response<T>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(AGAIN_WAIT_MAX))
}

/// The authorities that this machine trusts.
fn trust() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this machine has no certificate authorities to know it by".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_the_machine_trusts_is_read_once() {
        let link = Link::new("https://app.example.com", None).unwrap();
        // A machine without authorities has nothing to read.
        if let (Ok(one), Ok(two)) = (link.trusted().await, link.trusted().await) {
            assert!(Arc::ptr_eq(&one, &two));
        }
    }
}
