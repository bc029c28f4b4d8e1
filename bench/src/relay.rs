//! What a store sends to its server, counted on the way.
//!
//! Owns: a port before the server. It knows as much of the protocol as it needs to see where a
//! message ends. Never changes what it passes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::bench::Fallible;

/// The second word of a first message that asks for encryption, of either kind.
const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];

/// The bytes of a first message up to and with its second word.
const FIRST_BYTES: usize = 8;

/// The bytes that open every other message: its type and its length.
const HEAD_BYTES: usize = 5;

/// A port that leads to the server of a URL, for as long as the program lasts.
pub(crate) struct Relay {
    /// The same database, through the port.
    pub(crate) url: String,
    asked: Arc<AtomicU64>,
}

impl Relay {
    pub(crate) async fn to(url: &str) -> Fallible<Self> {
        let config: Config = url.split('?').next().unwrap_or(url).parse()?;
        let (Some(Host::Tcp(host)), Some(port)) =
            (config.get_hosts().first(), config.get_ports().first())
        else {
            return Err("only what goes over TCP, to a port that the URL names, is counted".into());
        };
        let server = format!("{host}:{port}");
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = url.replacen(&server, &listener.local_addr()?.to_string(), 1);
        let asked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server.clone(), Arc::clone(&counted)));
            }
        });
        Ok(Self { url, asked })
    }

    /// How often the server was asked so far: a single statement, or several in one message.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn pass(client: TcpStream, server: String, asked: Arc<AtomicU64>) -> Fallible<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    tokio::select! {
        sent = send(from_client, to_server, &asked) => sent,
        answered = tokio::io::copy(&mut from_server, &mut to_client) => Ok(answered.map(drop)?),
    }
}

/// Passes a client's messages on, and counts those after which the server answers.
async fn send(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, asked: &AtomicU64) -> Fallible<()> {
    loop {
        let mut first = [0; FIRST_BYTES];
        from.read_exact(&mut first).await?;
        to.write_all(&first).await?;
        let length = from_be(&first[..4]);
        copy(&mut from, &mut to, length.saturating_sub(FIRST_BYTES as u32)).await?;
        // After an answer of a single byte, which must be a no, the client begins anew.
        if !ENCRYPTION.contains(&from_be(&first[4..])) {
            break;
        }
    }
    loop {
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head).await?;
        to.write_all(&head).await?;
        copy(&mut from, &mut to, from_be(&head[1..]).saturating_sub(4)).await?;
        // A `Query`, or the `Sync` that ends what is said in parts.
        if matches!(head[0], b'Q' | b'S') {
            asked.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn copy(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, bytes: u32) -> Fallible<()> {
    tokio::io::copy(&mut from.take(u64::from(bytes)), to).await?;
    Ok(())
}

fn from_be(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
}
