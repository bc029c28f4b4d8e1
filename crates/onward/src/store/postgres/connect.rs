//! Connections to the server.
//!
//! Owns: how one is made, with or without TLS, to which of several hosts, and within what time. Never
//! keeps one; the pool, the lanes and the link do.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::fault::Fault;
use super::host::named;
use super::options::Tls;
use crate::store::Outage;

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector {
    /// One for each host, in the order of the URL.
    hosts: Vec<Config>,
    /// Which of them answered last: it is asked first.
    latest: Arc<AtomicUsize>,
    tls: Option<MakeRustlsConnect>,
    /// For each host.
    timeout: Duration,
}

/// A connection that sends and hears whenever it is polled, and says what the server says of itself;
/// after an end or an error it must not be polled again.
pub(super) type Undriven = Box<
    dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, tokio_postgres::Error>>> + Send,
>;

/// What the server says of itself on a connection.
pub(super) type Messages = mpsc::UnboundedReceiver<AsyncMessage>;

impl Connector {
    pub(super) fn new(config: Config, tls: &Tls, timeout: Duration) -> Result<Self, crate::Error> {
        let tls = match tls {
            Tls::Off => None,
            Tls::Encrypt => Some(MakeRustlsConnect::new(client_config(Verify::Nothing)?)),
            Tls::Verify { root } => {
                let roots = roots(root.as_deref())?;
                Some(MakeRustlsConnect::new(client_config(Verify::Against(roots))?))
            }
        };
        let hosts = super::host::each(&config);
        Ok(Self { hosts, latest: Arc::default(), tls, timeout })
    }

    /// Connects, and drives the connection on the runtime that this is called on.
    pub(super) async fn connect(&self) -> Result<Client, Fault> {
        Ok(self.listen().await?.0)
    }

    /// Connects, and hands on what the server says of itself.
    pub(super) async fn listen(&self) -> Result<(Client, Messages), Fault> {
        let (client, connection) = self.undriven().await?;
        Ok((client, drive(connection)))
    }

    /// Connects, and leaves it to the caller to drive the connection. Hosts are tried one after the
    /// other: one that is silent must not keep the next, which took over from it, from being found.
    pub(super) async fn undriven(&self) -> Result<(Client, Undriven), Fault> {
        let (count, first) = (self.hosts.len(), self.latest.load(Ordering::Relaxed));
        let mut faults = Vec::new();
        for place in (0..count).map(|after| (first + after) % count) {
            match self.connect_to(&self.hosts[place]).await {
                Ok(connected) => {
                    self.latest.store(place, Ordering::Relaxed);
                    return Ok(connected);
                }
                Err(fault) => faults.push(fault),
            }
        }
        Err(super::host::none_answered(faults))
    }

    async fn connect_to(&self, host: &Config) -> Result<(Client, Undriven), Fault> {
        let connecting = async {
            match &self.tls {
                None => {
                    let (client, connection) = host.connect(NoTls).await?;
                    Ok((client, undriven(connection)))
                }
                Some(tls) => {
                    let (client, connection) = host.connect(tls.clone()).await?;
                    Ok((client, undriven(connection)))
                }
            }
        };
        match tokio::time::timeout(self.timeout, connecting).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(unreached(error, host)),
            Err(_) => {
                let why = format!("{}: no connection within {:?}", named(host), self.timeout);
                Err(Fault::no_answer(why))
            }
        }
    }
}

/// Why there is no connection, whatever the kind of error: a refused one says it in its sources.
fn unreached(error: tokio_postgres::Error, host: &Config) -> Fault {
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let text = inner.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        source = inner.source();
    }
    let met = ADVICE.iter().find(|(sign, _)| why.contains(sign));
    let advice = met.map_or(String::new(), |(_, advice)| format!("; {advice}"));
    let outage = match Fault::from(error) {
        Fault::Outage(outage, _) => outage,
        _ => Outage::NoAnswer,
    };
    Fault::Outage(outage, format!("{}: {why}{advice}", named(host)))
}

/// What to change where the two sides do not agree about encryption, or there is no other side, by a
/// part of the error.
const ADVICE: [(&str, &str); 6] = [
    ("password missing", "write it into the URL, as postgres://USER:PASSWORD@HOST/DATABASE"),
    ("no encryption", "the server takes encrypted connections only: add sslmode=require"),
    ("does not support TLS", "turn ssl on at the server, or write sslmode=disable"),
    ("UnknownIssuer", "name the file of the authority that signed it with sslrootcert="),
    ("not valid for name", "use a name that the certificate is made for"),
    (
        "Connection refused",
        "no server listens there: see that it is up, and the URL's host and port",
    ),
];

/// Forgets of what kind a connection is.
fn undriven<S, T>(mut connection: tokio_postgres::Connection<S, T>) -> Undriven
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    Box::new(move |cx| connection.poll_message(cx))
}

fn drive(mut connection: Undriven) -> Messages {
    let (sender, messages) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(&mut connection).await {
            match message {
                // Nobody listens on most connections.
                Ok(message) => drop(sender.send(message)),
                Err(error) => {
                    tracing::debug!(%error, "a connection to Postgres ended");
                    return;
                }
            }
        }
    });
    messages
}

enum Verify {
    Nothing,
    Against(RootCertStore),
}

fn client_config(verify: Verify) -> Result<ClientConfig, crate::Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(invalid)?;
    Ok(match verify {
        Verify::Against(roots) => builder.with_root_certificates(roots).with_no_client_auth(),
        Verify::Nothing => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
            .with_no_client_auth(),
    })
}

/// The authorities to trust: those in a file, or the machine's.
fn roots(file: Option<&str>) -> Result<RootCertStore, crate::Error> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            let unread = |error| {
                let about = format!("sslrootcert={file} cannot be read");
                crate::Error::new(crate::Code::InvalidOption).about(about).because(error)
            };
            for certificate in CertificateDer::pem_file_iter(file).map_err(unread)? {
                roots.add(certificate.map_err(unread)?).map_err(invalid)?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        let about = "no certificate authority was found to verify the server by; name a file \
                     with sslrootcert=";
        return Err(crate::Error::new(crate::Code::InvalidOption).about(about));
    }
    Ok(roots)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> crate::Error {
    crate::Error::new(crate::Code::InvalidOption).about("TLS").because(error)
}

/// Takes any certificate, as `sslmode=require` does: against listeners, not against impostors.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl std::fmt::Debug for Connector {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(named).collect();
        f.debug_struct("Connector").field("hosts", &hosts).finish_non_exhaustive()
    }
}

/// Why the store's thread could not be started.
pub(super) fn no_thread(error: io::Error) -> crate::Error {
    crate::Error::new(crate::Code::StoreUnavailable).because(error)
}
