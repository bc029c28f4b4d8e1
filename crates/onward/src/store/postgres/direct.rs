//! Whether a connection leads to the server itself.
//!
//! A pooler hands each transaction to whichever session is free. A statement that was prepared in one
//! is missing in the next, or is another client's there. The server names its session's process when it
//! lets a client in, and the session knows its own; most poolers let clients in by themselves and make a
//! number up.
//!
//! Owns: the comparison of the two numbers. Never a proof: a pooler may repeat what a server said to it,
//! so that what is prepared must be harmless in a foreign session too, which `line` sees to.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{CancelToken, Client};

use super::Shared;
use super::fault::Fault;
use super::tx::query;

/// Room for a request to cancel with the longest secret that the protocol has, 256 bytes: whoever writes
/// it need not wait until it is read.
const REQUEST_BYTES_MAX: usize = 512;

/// The bytes of a request for encryption: its length, and which request it is.
const HEAD_BYTES: usize = 8;

/// What such a request is, and the answer that lets the client go on.
const ENCRYPTION: [u8; 4] = 80_877_103_i32.to_be_bytes();
const ENCRYPTION_GRANTED: u8 = b'S';

/// The bytes of a process's number, behind which a secret comes.
const NUMBER_BYTES: usize = 4;

/// Whether no pooler is seen between. Where it is not known there may be one.
pub(super) async fn is_direct(shared: &Shared, client: &Client) -> Result<bool, Fault> {
    let rows = query(shared, client, "select pg_backend_pid()", &[]).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let own: i32 = row.try_get(0).map_err(Fault::data)?;
    let named = tokio::time::timeout(shared.timeout, named_process(client.cancel_token())).await;
    Ok(own != 0 && named == Ok(Some(own)))
}

/// The process that was named when the client was let in. The driver keeps it for requests to cancel
/// a query and shows it nowhere else, so such a request is written into memory and read there.
async fn named_process(token: CancelToken) -> Option<i32> {
    let (ours, mut theirs) = tokio::io::duplex(REQUEST_BYTES_MAX);
    let (written, process) =
        tokio::join!(token.cancel_query_raw(ours, Unencrypted), process_of(&mut theirs));
    written.ok()?;
    process.ok()
}

/// Answers a request for encryption, and reads the process's number from the request to cancel.
async fn process_of(stream: &mut DuplexStream) -> io::Result<i32> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    if head.ends_with(&ENCRYPTION) {
        stream.write_all(&[ENCRYPTION_GRANTED]).await?;
        stream.read_exact(&mut head).await?;
    }
    let mut number = [0; NUMBER_BYTES];
    stream.read_exact(&mut number).await?;
    Ok(i32::from_be_bytes(number))
}

/// Where encryption is asked for, the memory goes without.
struct Unencrypted;

impl TlsConnect<DuplexStream> for Unencrypted {
    type Stream = Memory;
    type Error = Infallible;
    type Future = Ready<Result<Memory, Infallible>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Memory(stream)))
    }
}

/// What stands in for an encrypted stream.
struct Memory(DuplexStream);

impl TlsStream for Memory {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Memory {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
