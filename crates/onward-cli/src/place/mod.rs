//! Where a command looks and acts: a store, or a server by its URL.
//!
//! Owns: the one seam between the two. A store is asked through the library; a server over HTTP.
//! What only the API answers is asked of a store through the same router, in this process. Never
//! prints, and never decides what may be done to a run.

mod address;
mod call;
mod key;
mod link;
mod queue;
mod run;
mod schedule;
mod start;

use std::time::Instant;

use onward::{Onward, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) use self::call::{Call, segment};
use self::link::Link;
pub(crate) use self::run::{Fork, Reason, Seen, Untaken, Verb};
pub(crate) use self::schedule::{Filled, NewSchedule};
pub(crate) use self::start::NewStart;
use crate::args::Global;
use crate::open;
use crate::output;
use crate::problem::Problem;

/// Rows of one page of the API; more come with the next.
const PAGE_ROWS: usize = 200;

/// A store, or a server.
pub(crate) enum Place {
    /// A store, opened by this process.
    Store(Onward),
    /// A server, and what it says of itself.
    Server(Box<Server>),
}

/// A server that has answered.
pub(crate) struct Server {
    link: Link,
    meta: Meta,
    /// When it said so.
    at: Instant,
}

/// What a server says of itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Meta {
    /// Its version.
    pub(crate) version: String,
    /// Which kind of store it has.
    pub(crate) store: String,
    /// What the caller may do.
    pub(crate) role: String,
    /// Its store's clock.
    pub(crate) now: Timestamp,
}

/// A page of the API.
#[derive(Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

impl Place {
    /// The server that is named, or else the store, which must exist.
    pub(crate) async fn open(global: &Global) -> Result<Self, Problem> {
        match global.server()? {
            Some(url) => Self::of_server(url, global).await,
            None => Ok(Place::Store(open::existing(&global.store()?).await?)),
        }
    }

    /// As `open`, and creates the store where there is none.
    pub(crate) async fn open_or_create(global: &Global) -> Result<Self, Problem> {
        match global.server()? {
            Some(url) => Self::of_server(url, global).await,
            None => Ok(Place::Store(open::created_aloud(&global.store()?).await?)),
        }
    }

    /// Asks the server who it is, so that a wrong address or token is told before anything is done.
    async fn of_server(url: &str, global: &Global) -> Result<Self, Problem> {
        let link = Link::new(url, global.token()?)?;
        let meta = link.ask(&Call::get("/meta")).await?;
        Ok(Place::Server(Box::new(Server { link, meta, at: Instant::now() })))
    }

    /// The time by the store's clock, from which ages are counted.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Place::Store(onward) => output::now(onward),
            Place::Server(server) => {
                let since = i64::try_from(server.at.elapsed().as_millis()).unwrap_or(0);
                Timestamp::from_millis(server.meta.now.as_millis().saturating_add(since))
            }
        }
    }

    /// What the server says of itself; nothing for a store.
    pub(crate) fn meta(&self) -> Option<&Meta> {
        match self {
            Place::Store(_) => None,
            Place::Server(server) => Some(&server.meta),
        }
    }

    /// What the API answers, of a server or of the router over the store.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Problem> {
        match self {
            Place::Store(onward) => here::ask(onward, call).await,
            Place::Server(server) => server.link.ask(call).await,
        }
    }

    /// One page, and where the next begins.
    pub(crate) async fn page<T: DeserializeOwned>(
        &self,
        call: Call,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<T>, Problem> {
        let call = call.query("limit", limit.min(PAGE_ROWS)).query_if("cursor", cursor);
        self.ask(&call).await
    }

    /// Page after page from this cursor on, until there are `limit` rows or no more; and the cursor of
    /// what follows, if anything does.
    pub(crate) async fn rows<T: DeserializeOwned>(
        &self,
        call: Call,
        mut cursor: Option<String>,
        limit: usize,
    ) -> Result<(Vec<T>, Option<String>), Problem> {
        let mut rows = Vec::new();
        loop {
            let left = limit - rows.len();
            let page: Page<T> = self.page(call.clone(), cursor.as_deref(), left).await?;
            rows.extend(page.items);
            cursor = page.next;
            if cursor.is_none() || rows.len() >= limit {
                return Ok((rows, cursor));
            }
        }
    }
}

/// The API over a store of this process.
#[cfg(feature = "server")]
mod here {
    use onward::Onward;
    use onward_server::{Access, Ask, Caller, Options, Role};
    use serde::de::DeserializeOwned;

    use super::Call;
    use super::call::answered;
    use crate::problem::Problem;

    /// Who the audit names for changes that are made on the command line.
    const WHO: &str = "onward-cli";

    pub(super) async fn ask<T: DeserializeOwned>(
        onward: &Onward,
        call: &Call,
    ) -> Result<T, Problem> {
        let caller = |_: &_| Some(Caller { who: WHO.to_owned(), role: Role::Admin });
        let options = Options::new(Access::asked(caller)).only_answers();
        let router = onward_server::router(onward.clone(), options);
        let path = call.path();
        let (body, key) = (call.body.clone(), call.key.as_deref());
        let ask = Ask { method: call.method, path: &path, body, key };
        let (status, body) = onward_server::ask(router, ask).await;
        answered(status, &body)
    }
}

/// This build has no router.
#[cfg(not(feature = "server"))]
mod here {
    use onward::Onward;

    use super::Call;
    use crate::problem::Problem;

    pub(super) async fn ask<T>(_: &Onward, _: &Call) -> Result<T, Problem> {
        let why = "this build is without the feature 'server', which answers this of a store: name \
                   a server with --server URL";
        Err(Problem::Usage(why.to_owned()))
    }
}
