//! Onward over HTTP: a JSON API, live changes, metrics and the dashboard.
//!
//! [`router`] and [`router_at`] mount under any path of your own axum application; [`serve`] is a server of its own,
//! as `onward serve` starts it. Both are over an [`Onward`](onward::Onward) that is opened as anywhere else, and need
//! no worker.
//!
//! ```
//! use onward::Onward;
//! use onward_server::{Access, Options, Role};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
//! let onward = Onward::open("memory:").await?;
//! // Behind the login of your own application, which decides who gets here at all.
//! let options = Options::new(Access::Open(Role::Operate)).hosts(["app.example.com"]);
//! let app: axum::Router = axum::Router::new()
//!     .merge(onward_server::router_at("/workflows", onward, options));
//! # let _ = app; Ok(()) }
//! ```
//!
//! A request, followed once: `guard` (host, origin, token, rate, role, audit) → a handler in `api`,
//! which parses, makes one call of the library and answers → `problem` where that went wrong.

mod answer;
mod api;
mod app;
mod ask;
mod chosen;
mod connection;
mod dashboard;
mod ended;
mod endpoint;
mod guard;
pub mod limits;
mod metrics;
mod openapi;
mod operation;
mod options;
mod payload;
mod probe;
mod problem;
mod request;
mod routes;
mod serve;
mod stream;
mod token;
mod trace;

pub use ask::{Ask, ask};
pub use openapi::document as openapi;
pub use options::{Access, Caller, Options, Payload, PayloadPlace, Role};
pub use routes::{router, router_at};
pub use serve::{Bound, ServeError, ServeOptions, bind, serve};
pub use token::{NewToken, Tokens};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/server.md")]
mod server_page {}
