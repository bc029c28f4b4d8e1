//! Hints between processes.
//!
//! Owns: the one connection that listens, the one notification that gathers what was committed
//! while the last was on its way, and looking on a timer where neither gets through. Never tells
//! the truth: whoever is woken looks at the store.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

use super::Shared;
use super::connect::Messages;
use super::fault::Fault;
use super::row::run_id;
use super::tx::{Changes, Param, Session};
use crate::store::Topic;

/// A notification's payload has at most 8,000 bytes; with more runs than this it names none.
const RUNS_MAX: usize = 200;

/// The word for a schedule that may come sooner. Whoever does not know it looks at everything.
const SCHEDULES: &str = "schedules";

/// How long to wait for an own notification to come back before it counts as lost.
const ECHO_MAX: Duration = Duration::from_secs(2);

/// After how many looks on a timer the store sends itself a notification again: about every five
/// seconds, so that one that was lost does not make it look for as long as its connection lives.
const LOOKS_PER_ECHO: u32 = 10;

/// How often waiters look again while notifications do not get through.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The pause before the connection is made again.
const AGAIN: Duration = Duration::from_secs(1);

/// The pause after a notification: what is committed meanwhile goes together.
const TOGETHER: Duration = Duration::from_millis(2);

/// The pause after one that told of many runs. Each costs the server and every process that listens
/// about as much as a commit, and at thousands of runs a second nobody waits for one of them alone.
const TOGETHER_OF_MANY: Duration = Duration::from_millis(8);

/// So many runs are many: some ten thousand a second.
const MANY: usize = 32;

/// A notification is a hint: that it is on disk matters to nobody.
const NOTIFY: &str = "select set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";

/// What the task that tells is asked for.
#[derive(Debug)]
pub(super) enum Telling {
    /// To tell of this.
    Of(Changes),
    /// To drop this when all before it was told.
    Done(oneshot::Sender<()>),
}

/// Tells other processes what was committed: one notification at a time, and what is committed
/// meanwhile goes with the next.
pub(super) async fn tell(shared: Arc<Shared>, mut asked: mpsc::UnboundedReceiver<Telling>) {
    let (mut telling, mut gathered, mut done) = (Vec::new(), Vec::new(), Vec::new());
    while asked.recv_many(&mut telling, RUNS_MAX).await > 0 {
        for asked in telling.drain(..) {
            match asked {
                Telling::Of(changes) => gathered.push(changes),
                Telling::Done(waiter) => done.push(waiter),
            }
        }
        if gathered.is_empty() {
            done.clear();
            continue;
        }
        let payload = payload(&shared.sender, &gathered);
        let pause = if runs_of(&gathered) < MANY { TOGETHER } else { TOGETHER_OF_MANY };
        gathered.clear();
        if let Err(fault) = notify(&shared, &payload).await {
            tracing::debug!(?fault, "a notification was lost; others look on a timer");
        }
        done.clear();
        tokio::time::sleep(pause).await;
    }
}

/// Returns when everything was told, or could not be.
pub(super) async fn told(shared: Arc<Shared>) {
    let (waiter, done) = oneshot::channel();
    let _ = shared.told.send(Telling::Done(waiter));
    // Never sent to: it ends when the other side is dropped.
    let _ = done.await;
}

async fn notify(shared: &Arc<Shared>, payload: &str) -> Result<(), Fault> {
    let channel = shared.sql.channel();
    let params: [Param<'_>; 2] = [(&channel, Type::TEXT), (&payload, Type::TEXT)];
    Session::hint(shared).await?.rows(NOTIFY, &params).await?;
    Ok(())
}

/// The sender, whether there is work, whether a schedule changed, and the runs: all of them (`*`) when they are too many.
fn payload(sender: &str, changes: &[Changes]) -> String {
    let work = if changes.iter().any(|changes| changes.work) { "work" } else { "-" };
    let mut payload = format!("{sender} {work}");
    if changes.iter().any(|changes| changes.schedules) {
        let _ = write!(payload, " {SCHEDULES}");
    }
    if runs_of(changes) > RUNS_MAX {
        payload += " *";
        return payload;
    }
    for run in changes.iter().flat_map(|changes| &changes.runs) {
        // Writing to a text does not fail.
        let _ = write!(payload, " {:032x}", run.as_u128());
    }
    payload
}

fn runs_of(changes: &[Changes]) -> usize {
    changes.iter().map(|changes| changes.runs.len()).sum()
}

/// Listens for as long as the store lives.
pub(super) async fn listen(shared: Arc<Shared>) {
    loop {
        let heard = match shared.connector.listen().await {
            Ok((client, messages)) => {
                let channel = shared.sql.channel();
                let listening = client.batch_execute(&format!("listen {channel}")).await;
                match listening {
                    Ok(()) => heed(&shared, messages).await,
                    Err(error) => error.into(),
                }
            }
            Err(fault) => fault,
        };
        tracing::debug!(?heard, "not listening; looking on a timer");
        look_for(&shared, AGAIN).await;
    }
}

/// Wakes everybody now and then, for some time.
async fn look_for(shared: &Shared, time: Duration) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        shared.hub.notify_all();
        tokio::time::sleep(LOOK_EVERY.min(time)).await;
    }
}

/// Hands on what is heard, until the connection ends. Behind a pooler nothing may ever be heard:
/// then waiters look on a timer.
async fn heed(shared: &Arc<Shared>, mut messages: Messages) -> Fault {
    // What happened before this connection listened was not heard.
    shared.hub.notify_all();
    let echo = format!("{} echo", shared.sender);
    let sent = notify(shared, &echo).await;
    let mut deaf = sent.is_err() || !is_heard(shared, &mut messages, &echo).await;
    if deaf {
        tracing::info!("notifications do not get through; looking on a timer");
    }
    let mut looks = 0_u32;
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(AsyncMessage::Notification(notification)) => {
                    deaf &= notification.payload() != echo;
                    hand_on(shared, notification.payload());
                }
                Some(_) => {}
                None => return Fault::no_answer("the connection that listens ended"),
            },
            () = tokio::time::sleep(LOOK_EVERY), if deaf => {
                shared.hub.notify_all();
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(LOOKS_PER_ECHO) {
                    send_again(shared, &echo);
                }
            }
        }
    }
}

/// Sends the echo beside the looks, which do not wait for it.
fn send_again(shared: &Arc<Shared>, echo: &str) {
    let (shared, echo) = (Arc::clone(shared), echo.to_owned());
    tokio::spawn(async move {
        // Lost, it is sent again.
        let _ = notify(&shared, &echo).await;
    });
}

/// Whether the store hears itself. Anything else that is heard proves nothing: a pooler may hand on
/// what a session heard for another client.
async fn is_heard(shared: &Shared, messages: &mut Messages, echo: &str) -> bool {
    let own = async {
        while let Some(message) = messages.recv().await {
            if let AsyncMessage::Notification(notification) = message {
                hand_on(shared, notification.payload());
                if notification.payload() == echo {
                    return true;
                }
            }
        }
        false
    };
    tokio::time::timeout(ECHO_MAX, own).await.unwrap_or(false)
}

fn hand_on(shared: &Shared, payload: &str) {
    let mut words = payload.split(' ');
    if words.next() == Some(shared.sender.as_str()) {
        return;
    }
    if words.next() == Some("work") {
        shared.hub.notify(Topic::Work);
    }
    for word in words {
        if word == SCHEDULES {
            shared.hub.notify(Topic::Schedules);
            continue;
        }
        match u128::from_str_radix(word, 16) {
            Ok(bits) => shared.hub.notify(Topic::Run(run_id(uuid::Uuid::from_u128(bits)))),
            Err(_) => shared.hub.notify_all(),
        }
    }
}
