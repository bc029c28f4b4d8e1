//! A proxy between a store and Postgres, which makes the connection fail on command.
//!
//! Owns: the port that the store is told, the connections through it, and what happens to them.
//! It knows as much of the protocol as it needs to lose the answer to a commit. Never changes what
//! it passes on.

mod relay;
mod wire;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Connections that may wait to be accepted: more than the pools of all workers of a test.
const BACKLOG: u32 = 1_024;

/// A proxy. It ends, and so do its connections, when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
    /// Keeps the port while nobody listens at it.
    _port: TcpSocket,
}

/// What passes, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Whether anything passes.
    pub passage: Passage,
    /// How much later what the client sends arrives.
    pub delay_up: Duration,
    /// How much later what the server answers arrives.
    pub delay_down: Duration,
}

/// Whether anything passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passage {
    /// Everything does.
    #[default]
    Free,
    /// New connections are accepted and old ones stay open, but nothing passes. What was sent
    /// meanwhile passes when the way is free again, as on a network that was away.
    BlackHole,
    /// New connections are refused, as by a machine on which nobody listens. Old ones go on.
    Refusing,
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// With a reset, as when the other machine has forgotten the connection.
    Reset,
    /// In order, as when the server ends its process.
    Finish,
}

/// What the proxy did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that were cut on command, those with a lost answer included.
    pub cut: u64,
    /// Answers to commits that were swallowed.
    pub swallowed: u64,
    /// What the server answered: a statement, or several that were sent together. Its first answer
    /// on each connection is one too.
    pub answered: u64,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    speaks: Speaks,
    weather: watch::Sender<Weather>,
    /// Counts the commands to cut; a connection obeys those that come after it.
    cuts: watch::Sender<(u64, Cut)>,
    trap: Mutex<Option<Trap>>,
    accepted: AtomicU64,
    cut: AtomicU64,
    swallowed: AtomicU64,
    answered: AtomicU64,
}

/// What is spoken through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    Anything,
    Postgres,
}

type Matches = Box<dyn Fn(&str) -> bool + Send>;

/// A commit whose answer is to be lost.
struct Trap {
    matches: Matches,
    /// How many more that match pass before it.
    passing: u32,
    cut: Cut,
    sprung: oneshot::Sender<String>,
}

impl std::fmt::Debug for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trap").field("passing", &self.passing).finish_non_exhaustive()
    }
}

/// Resolves, with the statements of the transaction, when an answer was swallowed.
pub type Sprung = oneshot::Receiver<String>;

impl Proxy {
    /// A proxy for whatever is spoken with `server`.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn plain(server: SocketAddr) -> io::Result<Self> {
        Self::start(server, Speaks::Anything)
    }

    /// A proxy for a Postgres server, which can also lose the answer to a commit.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn postgres(server: SocketAddr) -> io::Result<Self> {
        Self::start(server, Speaks::Postgres)
    }

    fn start(server: SocketAddr, speaks: Speaks) -> io::Result<Self> {
        let port = bound((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = port.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            speaks,
            weather: watch::Sender::default(),
            cuts: watch::Sender::new((0, Cut::Reset)),
            trap: Mutex::default(),
            accepted: AtomicU64::default(),
            cut: AtomicU64::default(),
            swallowed: AtomicU64::default(),
            answered: AtomicU64::default(),
        });
        let listener = listen(address)?;
        let accepting = tokio::spawn(accept(Arc::clone(&shared), address, listener));
        Ok(Self { address, shared, accepting, _port: port })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what passes from now on.
    pub fn set(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// Lets everything pass, without delay.
    pub fn pass(&self) {
        self.set(Weather::default());
    }

    /// Keeps connections open and lets nothing pass.
    pub fn black_hole(&self) {
        self.set(Weather { passage: Passage::BlackHole, ..Weather::default() });
    }

    /// Refuses new connections, and cuts those that there are.
    pub fn refuse(&self) {
        self.set(Weather { passage: Passage::Refusing, ..Weather::default() });
        self.cut(Cut::Reset);
    }

    /// Cuts every connection.
    pub fn cut(&self, how: Cut) {
        self.shared.cuts.send_modify(|(count, cut)| (*count, *cut) = (*count + 1, how));
    }

    /// Loses the answer to a commit, once: of the transactions that are committed from now on and
    /// whose statements `matches` accepts, lets `passing` pass, then swallows the answer of the
    /// next one and cuts its connection. A later call replaces an earlier one.
    pub fn swallow_commit(
        &self,
        passing: u32,
        cut: Cut,
        matches: impl Fn(&str) -> bool + Send + 'static,
    ) -> Sprung {
        let (sprung, waiting) = oneshot::channel();
        *self.shared.trap() = Some(Trap { matches: Box::new(matches), passing, cut, sprung });
        waiting
    }

    /// What the proxy did so far.
    pub fn counts(&self) -> Counts {
        Counts {
            accepted: self.shared.accepted.load(Ordering::SeqCst),
            cut: self.shared.cut.load(Ordering::SeqCst),
            swallowed: self.shared.swallowed.load(Ordering::SeqCst),
            answered: self.shared.answered.load(Ordering::SeqCst),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut(Cut::Reset);
    }
}

impl Shared {
    fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        self.trap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the answer to this transaction may have to be swallowed.
    fn may_swallow(&self, transaction: &str) -> bool {
        self.trap().as_ref().is_some_and(|trap| (trap.matches)(transaction))
    }

    /// Whether the answer to this transaction, which is committed, is swallowed; and how its
    /// connection is cut then.
    fn swallows(&self, transaction: &str) -> Option<Cut> {
        let mut trap = self.trap();
        let armed = trap.as_mut().filter(|trap| (trap.matches)(transaction))?;
        if armed.passing > 0 {
            armed.passing -= 1;
            return None;
        }
        let Trap { cut, sprung, .. } = trap.take()?;
        self.swallowed.fetch_add(1, Ordering::SeqCst);
        let _ = sprung.send(transaction.to_owned());
        Some(cut)
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // So that the port stays ours while the listener is closed.
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    bound(address)?.listen(BACKLOG)
}

/// Accepts connections while it may; without a listener, the system refuses them.
async fn accept(shared: Arc<Shared>, address: SocketAddr, listener: TcpListener) {
    let mut listener = Some(listener);
    let mut weather = shared.weather.subscribe();
    loop {
        let refusing = weather.borrow_and_update().passage == Passage::Refusing;
        if refusing {
            listener = None;
        } else if listener.is_none() {
            listener = listen(address).ok();
        }
        tokio::select! {
            changed = weather.changed() => if changed.is_err() { return },
            accepted = next(listener.as_ref()) => if let Ok(client) = accepted {
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(relay::relay(Arc::clone(&shared), client));
            },
        }
    }
}

async fn next(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => Ok(listener.accept().await?.0),
        None => std::future::pending().await,
    }
}
