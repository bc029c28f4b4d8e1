//! The fake services: customers, OCR and search, each on its own port with its own log.
//!
//! Owns: what they answer, how they fail, and what they write down. They live in the demo's own
//! process, so the kill of a worker does not touch them, just as it would not touch real ones: a
//! call that was under way is finished and logged although nobody reads the answer.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use onward::{Failure, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::Error;
use crate::workflow::Attachment;

/// The share of OCR calls that fail, in percent.
pub(crate) const OCR_FAILURES_PERCENT: u64 = 20;

/// The services, in the order in which a run calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Customers,
    Ocr,
    Search,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Customers, Kind::Ocr, Kind::Search];

    pub(crate) fn log(self, folder: &Path) -> PathBuf {
        folder.join(match self {
            Kind::Customers => "customers.log",
            Kind::Ocr => "ocr.log",
            Kind::Search => "search.log",
        })
    }

    /// The least latency in milliseconds, and how much more it may be.
    fn latency(self) -> (u64, u64) {
        match self {
            Kind::Customers => (2, 6),
            Kind::Ocr => (60, 100),
            Kind::Search => (20, 40),
        }
    }
}

/// What a service is asked: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Which worker process calls, from 1.
    pub(crate) process: u32,
    /// The id of the step that calls: the idempotency key.
    pub(crate) step: String,
    pub(crate) attachment: Attachment,
    /// For the search service: what to index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// What a service answers: one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done(Value),
    Failed(String),
}

/// One line of a service's log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) service: Kind,
    /// When the call came in.
    pub(crate) at: Timestamp,
    pub(crate) process: u32,
    pub(crate) step: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    pub(crate) answer: Answer,
    /// Whether the search service had this step's document already.
    #[serde(default)]
    pub(crate) duplicate: bool,
}

/// The running services.
#[derive(Debug)]
pub(crate) struct Services {
    /// Their addresses, in the order of [`Kind::ALL`].
    pub(crate) addresses: Vec<SocketAddr>,
}

struct Service {
    kind: Kind,
    seed: u64,
    state: Mutex<State>,
}

struct State {
    log: File,
    calls: u64,
    /// The search index: which document each step made.
    documents: HashMap<String, u64>,
}

impl Services {
    /// Starts the services; they end with the process.
    pub(crate) async fn start(folder: &Path, seed: u64) -> Result<Self, Error> {
        let mut addresses = Vec::new();
        for kind in Kind::ALL {
            let path = kind.log(folder);
            let log = OpenOptions::new().create_new(true).append(true).open(&path);
            let log = log.map_err(Error::io(format!("cannot create {}", path.display())))?;
            let listening = TcpListener::bind("127.0.0.1:0").await;
            let listener = listening.map_err(Error::io("cannot listen on localhost"))?;
            let address = listener.local_addr();
            addresses.push(address.map_err(Error::io("cannot listen on localhost"))?);
            let state = Mutex::new(State { log, calls: 0, documents: HashMap::new() });
            tokio::spawn(serve(listener, Arc::new(Service { kind, seed, state })));
        }
        Ok(Self { addresses })
    }
}

async fn serve(listener: TcpListener, service: Arc<Service>) {
    loop {
        // A connection that breaks off is the caller's to try again.
        if let Ok((stream, _)) = listener.accept().await {
            let service = Arc::clone(&service);
            tokio::spawn(async move { service.answer(stream).await });
        }
    }
}

impl Service {
    async fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let request: Request = serde_json::from_str(&line)?;
        let at = Timestamp::from(SystemTime::now());
        let call = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.calls += 1;
            state.calls
        };
        let chance = chance(self.seed, self.kind, call);
        let (least, more) = self.kind.latency();
        tokio::time::sleep(Duration::from_millis(least + chance.latency % more)).await;
        let answer = self.effect(at, request, call, chance)?;
        let mut text = serde_json::to_string(&answer)?;
        text.push('\n');
        stream.get_mut().write_all(text.as_bytes()).await
    }

    /// Does what was asked and writes it down, in one go: this is the side effect.
    fn effect(
        &self,
        at: Timestamp,
        request: Request,
        call: u64,
        chance: Chance,
    ) -> std::io::Result<Answer> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut duplicate = false;
        let answer = match self.kind {
            Kind::Customers => Answer::Done(json!({ "premium": request.attachment.is_premium() })),
            Kind::Ocr if chance.failure % 100 < OCR_FAILURES_PERCENT => {
                Answer::Failed("the OCR service is overloaded".to_owned())
            }
            // No two scans are alike, so that it shows when a run goes on with another than the
            // one it recorded.
            Kind::Ocr => {
                Answer::Done(json!(format!("invoice {}, scan {call}", request.attachment.id)))
            }
            Kind::Search => {
                let next = state.documents.len() as u64 + 1;
                let document = *state.documents.entry(request.step.clone()).or_insert(next);
                duplicate = document != next;
                Answer::Done(json!(document))
            }
        };
        let Request { process, step, text, .. } = request;
        let service = self.kind;
        let call = Call { service, at, process, step, text, answer: answer.clone(), duplicate };
        let mut line = serde_json::to_string(&call)?;
        line.push('\n');
        state.log.write_all(line.as_bytes())?;
        Ok(answer)
    }
}

#[derive(Clone, Copy)]
struct Chance {
    latency: u64,
    failure: u64,
}

/// What happens to the n-th call of a service: the same for the same seed.
fn chance(seed: u64, kind: Kind, call: u64) -> Chance {
    let start = mix(seed ^ ((kind as u64) << 56) ^ call.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Chance { latency: start, failure: mix(start) }
}

/// The finaliser of SplitMix64, which spreads neighbouring numbers evenly.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The worker's side: calls the services.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) process: u32,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Client {
    pub(crate) async fn customers<T: DeserializeOwned>(&self, to: &Request) -> Result<T, Failure> {
        self.call(Kind::Customers, to).await
    }

    pub(crate) async fn ocr<T: DeserializeOwned>(&self, to: &Request) -> Result<T, Failure> {
        self.call(Kind::Ocr, to).await
    }

    pub(crate) async fn search<T: DeserializeOwned>(&self, to: &Request) -> Result<T, Failure> {
        self.call(Kind::Search, to).await
    }

    async fn call<T: DeserializeOwned>(&self, kind: Kind, to: &Request) -> Result<T, Failure> {
        let Some(address) = self.addresses.get(kind as usize) else {
            return Err(Failure::fatal("the service has no address"));
        };
        let mut stream = BufReader::new(TcpStream::connect(address).await?);
        let mut line = serde_json::to_string(&Request { process: self.process, ..to.clone() })?;
        line.push('\n');
        stream.get_mut().write_all(line.as_bytes()).await?;
        line.clear();
        stream.read_line(&mut line).await?;
        match serde_json::from_str(&line)? {
            Answer::Done(value) => Ok(serde_json::from_value(value)?),
            Answer::Failed(why) => Err(Failure::new(why).code("overloaded")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_five_fails_and_the_seed_decides_which() {
        let failed =
            |seed, call| chance(seed, Kind::Ocr, call).failure % 100 < OCR_FAILURES_PERCENT;
        let count = (1..=10_000).filter(|call| failed(42, *call)).count();
        assert!((1_800..2_200).contains(&count), "{count}");
        let of = |seed| (1..=100).map(|call| failed(seed, call)).collect::<Vec<_>>();
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }
}
