//! One connection through the proxy, both ways.
//!
//! Owns: both streams, and how they end. Each way is a pump; when one ends, or a command to cut
//! comes, both are over.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::wire::{Answers, Message, Place, Questions};
use super::{Cut, Passage, Shared, Speaks, Weather};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// How a pump ended.
enum Ended {
    /// One side closed, or failed.
    ByItself,
    /// The proxy was told to cut.
    Cut(Cut),
}

pub(super) async fn relay(shared: Arc<Shared>, mut client: TcpStream) {
    let mut cuts = shared.cuts.subscribe();
    let how = tokio::select! {
        cut = told_to_cut(&mut cuts) => Ended::Cut(cut),
        ended = converse(&shared, &mut client) => ended,
    };
    if let Ended::Cut(cut) = how {
        shared.cut.fetch_add(1, Ordering::SeqCst);
        if cut == Cut::Reset {
            let _ = client.set_zero_linger();
        }
    }
}

async fn told_to_cut(cuts: &mut watch::Receiver<(u64, Cut)>) -> Cut {
    match cuts.changed().await {
        Ok(()) => cuts.borrow_and_update().1,
        Err(_) => Cut::Reset,
    }
}

async fn converse(shared: &Shared, client: &mut TcpStream) -> Ended {
    let mut weather = shared.weather.subscribe();
    // In a black hole the server does not even hear of the connection.
    free(&mut weather).await;
    let Ok(mut server) = TcpStream::connect(shared.server).await else {
        let _ = client.set_zero_linger();
        return Ended::ByItself;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let questions = Mutex::new(Questions::default());
    let line = Line { shared, questions: &questions };
    let (client_reads, client_writes) = client.split();
    let (server_reads, server_writes) = server.split();
    tokio::select! {
        ended = line.pump_up(client_reads, server_writes) => ended,
        ended = line.pump_down(server_reads, client_writes) => ended,
    }
}

/// What both ways of a connection share.
struct Line<'a> {
    shared: &'a Shared,
    questions: &'a Mutex<Questions>,
}

impl Line<'_> {
    async fn pump_up(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Ended {
        let mut weather = self.shared.weather.subscribe();
        let mut bytes = vec![0; READ_BYTES];
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            let delay = free(&mut weather).await.delay_up;
            tokio::time::sleep(delay).await;
            if self.shared.speaks == Speaks::Postgres {
                self.questions().read(&bytes[..length]);
            }
            if to.write_all(&bytes[..length]).await.is_err() {
                break;
            }
        }
        Ended::ByItself
    }

    async fn pump_down(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Ended {
        let mut weather = self.shared.weather.subscribe();
        let mut bytes = vec![0; READ_BYTES];
        let (mut answers, mut held) = (Answers::default(), Vec::new());
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            let read = match self.shared.speaks {
                Speaks::Anything => Ok(bytes[..length].to_vec()),
                Speaks::Postgres => {
                    let messages = answers.read(&bytes[..length], &mut self.questions());
                    self.sift(messages, &mut held)
                }
            };
            let (passed, cut) = match read {
                Ok(passed) => (passed, None),
                Err(Swallowed { before, cut }) => (before, Some(cut)),
            };
            let delay = free(&mut weather).await.delay_down;
            tokio::time::sleep(delay).await;
            if to.write_all(&passed).await.is_err() {
                break;
            }
            if let Some(cut) = cut {
                return Ended::Cut(cut);
            }
        }
        Ended::ByItself
    }

    /// What passes of these messages. The answer to a batch that may have to be swallowed is held
    /// back until its end shows whether it is.
    fn sift(&self, messages: Vec<Message>, held: &mut Vec<u8>) -> Result<Vec<u8>, Swallowed> {
        let mut passing = Vec::new();
        for Message { bytes, transaction, place } in messages {
            held.extend(bytes);
            if place != Place::Within {
                self.shared.answered.fetch_add(1, Ordering::SeqCst);
            }
            let swallowed = match place {
                Place::Within if self.shared.may_swallow(&transaction) => continue,
                Place::Committed => self.shared.swallows(&transaction),
                Place::Within | Place::Open | Place::Failed => None,
            };
            if let Some(cut) = swallowed {
                return Err(Swallowed { before: passing, cut });
            }
            passing.append(held);
        }
        Ok(passing)
    }

    fn questions(&self) -> std::sync::MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that does not arrive.
struct Swallowed {
    /// What came before it and arrives.
    before: Vec<u8>,
    cut: Cut,
}

/// Waits until the way is free, and gives the weather then.
async fn free(weather: &mut watch::Receiver<Weather>) -> Weather {
    let free = weather.wait_for(|weather| weather.passage != Passage::BlackHole);
    free.await.map(|weather| *weather).unwrap_or_default()
}
