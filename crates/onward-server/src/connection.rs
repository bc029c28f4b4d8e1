//! The connections of a server of its own.
//!
//! Owns: accepting them, how long a client may take to send the head of a request, and their gentle
//! end. Never looks into a request.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service;

use crate::app::Phase;
use crate::limits::CONNECTIONS_MAX;

/// The pause after the machine could not give another connection, as when it is out of files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// How connections are served.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) router: Router,
    /// How long the head of a request may take.
    pub(crate) head_max: Duration,
    /// Says when the server closes.
    pub(crate) phase: watch::Receiver<Phase>,
}

impl Serving {
    /// Accepts connections until the server closes, then lets those that are open finish.
    pub(crate) async fn accept(self, listener: TcpListener) {
        let mut open = JoinSet::new();
        let mut phase = self.phase.clone();
        loop {
            tokio::select! {
                biased;
                () = closed(&mut phase) => break,
                Some(_) = open.join_next() => {}
                accepted = listener.accept(), if open.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, peer)) => {
                        open.spawn(self.clone().connection(stream, peer));
                    }
                    Err(error) => not_accepted(error).await,
                },
            }
        }
        drop(listener);
        while open.join_next().await.is_some() {}
    }

    /// Answers the requests of one connection, until it ends or the server closes.
    async fn connection(mut self, stream: TcpStream, peer: SocketAddr) {
        let router = self.router;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            let mut router = router.clone();
            async move { router.call(request).await }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.head_max);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = closed(&mut self.phase) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, %peer, "a connection broke");
        }
    }
}

/// Resolves when the server closes.
async fn closed(phase: &mut watch::Receiver<Phase>) {
    // Whoever would say so is gone too where this fails.
    let _ = phase.wait_for(|phase| *phase == Phase::Closing).await;
}

/// One connection that was not made is the client's affair; otherwise the machine needs a moment.
async fn not_accepted(error: io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if ![ConnectionAborted, ConnectionRefused, ConnectionReset].contains(&error.kind()) {
        tracing::warn!(%error, "no connection can be accepted; again soon");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}
