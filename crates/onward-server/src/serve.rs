//! A server of its own, as `onward serve` starts it.
//!
//! Owns: the listener, the refusal to be open to everybody, and the end. Never decides who may do
//! what; the options do.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use onward::Onward;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::app::{App, Phase};
use crate::connection::Serving;
use crate::limits::{DRAIN_MAX, HEAD_MAX};
use crate::options::Options;
use crate::routes;

/// How a server is started.
///
/// ```
/// use onward_server::{Access, Options, Role, ServeOptions};
///
/// let options = ServeOptions::new(Options::new(Access::Open(Role::Operate)));
/// assert_eq!(options.listen.to_string(), "127.0.0.1:7171");
/// ```
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where it listens: the machine itself only, on port 7171, unless set.
    pub listen: SocketAddr,
    /// Whether it may be open to everybody who reaches its address.
    pub insecure: bool,
    /// What it shows to whom.
    pub options: Options,
    /// How long a client may take to send the head of a request: [`HEAD_MAX`], unless set.
    pub head_max: Duration,
    /// How long it serves on after it is asked to stop, while `/readyz` says so: none, unless set. A
    /// balancer that looks there needs as long to send nothing more.
    pub stop_delay: Duration,
}

impl ServeOptions {
    /// On this machine only, with these options.
    pub fn new(options: Options) -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 7171));
        let stop_delay = Duration::ZERO;
        Self { listen, insecure: false, options, head_max: HEAD_MAX, stop_delay }
    }
}

/// Why a server does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// It would be open to everybody who reaches this address.
    Open(SocketAddr),
    /// The address cannot be listened on.
    Io(SocketAddr, io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Open(address) => write!(
                f,
                "{address} is reached from other machines, and nobody would have to say who they \
                 are. Give it tokens, listen on 127.0.0.1, or say that it is meant to be insecure"
            ),
            ServeError::Io(address, error) => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServeError::Io(_, error) => Some(error),
            ServeError::Open(_) => None,
        }
    }
}

/// A server that listens, and does not answer yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    onward: Onward,
    options: Options,
    head_max: Duration,
    stop_delay: Duration,
}

/// Listens, so that the address is known before anything is answered.
///
/// ```
/// # use onward::Onward;
/// # use onward_server::{Access, Options, Role, ServeOptions};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let onward = Onward::open("memory:").await?;
/// let mut options = ServeOptions::new(Options::new(Access::Open(Role::Operate)));
/// options.listen.set_port(0); // any that is free
/// let bound = onward_server::bind(onward, options).await?;
/// println!("http://{}", bound.address());
/// bound.serve(async { /* until this ends */ }).await;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ServeError::Open`] for an address that others reach, without tokens and not said to be
/// insecure; [`ServeError::Io`] when it cannot be listened on.
pub async fn bind(onward: Onward, options: ServeOptions) -> Result<Bound, ServeError> {
    let ServeOptions { listen, insecure, options, head_max, stop_delay } = options;
    if !listen.ip().is_loopback() && !options.asks() && !insecure {
        return Err(ServeError::Open(listen));
    }
    let io = |error| ServeError::Io(listen, error);
    let listener = TcpListener::bind(listen).await.map_err(io)?;
    let address = listener.local_addr().map_err(io)?;
    Ok(Bound { listener, address, onward, options, head_max, stop_delay })
}

/// Listens and answers until `end`, then lets what is under way finish.
///
/// # Errors
/// As [`bind`].
pub async fn serve(
    onward: Onward,
    options: ServeOptions,
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    bind(onward, options).await?.serve(end).await;
    Ok(())
}

impl Bound {
    /// The address, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `end`, says for the pause that was set that it stops, then lets what is under way
    /// finish, for a while.
    pub async fn serve(self, end: impl Future<Output = ()> + Send + 'static) {
        let (enter, phase) = watch::channel(Phase::Up);
        let app = App::new(self.onward, self.options, phase.clone());
        app.operate().await;
        let router = routes::of_app(app.clone());
        let serving = Serving { router, head_max: self.head_max, phase };
        let serving = serving.accept(self.listener);
        let mut serving = std::pin::pin!(serving);
        let leaving = async {
            end.await;
            enter.send_replace(Phase::Leaving);
            tokio::time::sleep(self.stop_delay).await;
        };
        // It accepts until it is told to close.
        tokio::select! {
            () = serving.as_mut() => app.rest().await,
            () = leaving => {
                enter.send_replace(Phase::Closing);
                let drained = async {
                    if tokio::time::timeout(DRAIN_MAX, serving).await.is_err() {
                        tracing::warn!("requests were still under way after {DRAIN_MAX:?}");
                    }
                };
                // At once: either may take nearly all the time that a supervisor gives.
                tokio::join!(drained, app.rest());
            }
        }
    }
}
