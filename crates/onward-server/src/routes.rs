//! The router: each endpoint of the table with its handler, behind the guard.
//!
//! Owns: which handler an endpoint has. Never a rule about requests; the guard has those.

use std::collections::BTreeSet;

use axum::extract::{DefaultBodyLimit, Request};
use axum::handler::Handler;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Redirect, Response};
use axum::routing::{MethodFilter, on};
use axum::{Router, middleware};
use onward::{Code, Onward};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::api::*;
use crate::app::{App, Phase};
use crate::endpoint;
use crate::guard::{self, Guard, KEPT_IF_SAME, dressed};
use crate::limits::BODY_BYTES_MAX;
use crate::options::Options;
use crate::problem::{self, Problem};
use crate::request::Mount;
use crate::{dashboard, metrics, openapi, probe, stream};

/// The API and the dashboard, to be mounted under any path of an axum application.
///
/// ```
/// use onward::Onward;
/// use onward_server::{Access, Options, Role};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// let onward = Onward::open("memory:").await?;
/// let options = Options::new(Access::Open(Role::Read));
/// let app: axum::Router = axum::Router::new().nest("/onward", onward_server::router(onward, options));
/// # let _ = app; Ok(()) }
/// ```
///
/// Unless it is read-only, or [only answers](Options::only_answers), it also executes changes of many
/// runs: from when it is made, or, made outside a runtime, from the first of them that it is asked for.
pub fn router(onward: Onward, options: Options) -> Router {
    // Streams of a router that is mounted end with their connections.
    let (_, phase) = watch::channel(Phase::Up);
    let app = App::new(onward, options, phase);
    if let Ok(runtime) = Handle::try_current() {
        let app = app.clone();
        runtime.spawn(async move { app.operate().await });
    }
    of_app(app)
}

/// The same at this path, for [`Router::merge`]: with a slash at its end, too, which a nested router
/// does not answer to.
///
/// ```
/// # use onward::Onward;
/// # use onward_server::{Access, Options, Role};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onward::Error> {
/// # let onward = Onward::open("memory:").await?;
/// let options = Options::new(Access::Open(Role::Read));
/// let app: axum::Router = axum::Router::new()
///     .merge(onward_server::router_at("/workflows", onward, options));
/// # let _ = app; Ok(()) }
/// ```
pub fn router_at(path: &str, onward: Onward, options: Options) -> Router {
    let path = path.trim_end_matches('/').to_owned();
    if path.is_empty() {
        return router(onward, options);
    }
    let home = path.clone();
    let to_home = move || std::future::ready(Redirect::permanent(&home));
    Router::new()
        .nest(&path, router(onward, options))
        .route(&format!("{path}/"), on(MethodFilter::GET, to_home))
}

/// The router over what the handlers share.
pub(crate) fn of_app(app: App) -> Router {
    let mut routes = Routes { app: app.clone(), router: Router::new(), added: BTreeSet::new() };
    looks(&mut routes);
    changes(&mut routes);
    beside(&mut routes);
    let fallback = Guard { app: app.clone(), endpoint: &dashboard::ENDPOINT };
    let files =
        on(MethodFilter::GET, dashboard::file).layer(from_fn_with_state(fallback, guard::guard));
    routes
        .router
        .fallback_service(files.fallback(nothing).with_state(app))
        .method_not_allowed_fallback(other_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(dress))
}

/// What is being put together.
pub(crate) struct Routes {
    app: App,
    router: Router,
    /// The endpoints that have a handler, by method and path.
    pub(crate) added: BTreeSet<(&'static str, &'static str)>,
}

impl Routes {
    /// Gives an endpoint of the table its handler. One that is not in the table gets none.
    fn add<T, H>(&mut self, method: &'static str, path: &'static str, handler: H)
    where
        H: Handler<T, App>,
        T: 'static,
    {
        let (Some(endpoint), Some(filter)) = (endpoint::find(method, path), filter(method)) else {
            return;
        };
        let guard = Guard { app: self.app.clone(), endpoint };
        let route = on(filter, handler).layer(from_fn_with_state(guard, guard::guard));
        let router = std::mem::take(&mut self.router);
        self.router = router.route(path, route.with_state(self.app.clone()));
        self.added.insert((method, path));
    }

    fn get<T: 'static, H: Handler<T, App>>(&mut self, path: &'static str, handler: H) {
        self.add("get", path, handler);
    }

    fn post<T: 'static, H: Handler<T, App>>(&mut self, path: &'static str, handler: H) {
        self.add("post", path, handler);
    }
}

fn filter(method: &str) -> Option<MethodFilter> {
    match method {
        "get" => Some(MethodFilter::GET),
        "post" => Some(MethodFilter::POST),
        "put" => Some(MethodFilter::PUT),
        "delete" => Some(MethodFilter::DELETE),
        _ => None,
    }
}

fn looks(routes: &mut Routes) {
    routes.get("/api/v1/meta", meta::show);
    routes.get("/api/v1/stats", stats::show);
    routes.get("/api/v1/workers", workers::list);
    routes.get("/api/v1/workflows", workflows::list);
    routes.get("/api/v1/workflows/{workflow}/steps", steps::list);
    routes.get("/api/v1/runs", runs::list);
    routes.get("/api/v1/runs.csv", export::csv);
    routes.get("/api/v1/runs.jsonl", export::jsonl);
    routes.get("/api/v1/runs/{id}", runs::show);
    routes.get("/api/v1/runs/{id}/history", history::list);
    routes.get("/api/v1/runs/{id}/timeline", history::timeline);
    routes.get("/api/v1/runs/{id}/records/{seq}", history::record);
    routes.get("/api/v1/runs/{id}/log", log::list);
    routes.get("/api/v1/runs/{id}/signals", signals::list);
    routes.get("/api/v1/operations", operations::list);
    routes.get("/api/v1/operations/{id}", operations::show);
    routes.get("/api/v1/keys", keys::list);
    routes.get("/api/v1/keys/top", keys::top);
    routes.get("/api/v1/keys/conflicts", keys::conflicts);
    routes.get("/api/v1/keys/{workflow}/{key}", keys::show);
    routes.get("/api/v1/step-keys", step_keys::list);
    routes.get("/api/v1/step-keys/{key}", step_keys::show);
    routes.get("/api/v1/queues", queues::list);
    routes.get("/api/v1/schedules", schedules::list);
    routes.get("/api/v1/schedules/{schedule}", schedules::show);
    routes.get("/api/v1/errors", errors::list);
    routes.get("/api/v1/waiting", waiting::list);
    routes.get("/api/v1/audit", audit::list);
    routes.get("/api/v1/stream", stream::open);
}

fn changes(routes: &mut Routes) {
    routes.post("/api/v1/workflows/{workflow}/runs", start::start);
    routes.post("/api/v1/runs/{id}/signals", signals::send);
    routes.post("/api/v1/runs/{id}/cancel", steer::cancel);
    routes.post("/api/v1/runs/{id}/retry", steer::retry);
    routes.post("/api/v1/runs/{id}/pause", steer::pause);
    routes.post("/api/v1/runs/{id}/resume", steer::resume);
    routes.post("/api/v1/runs/{id}/fork", steer::fork);
    routes.add("delete", "/api/v1/runs/{id}", steer::delete);
    routes.post("/api/v1/callbacks", signals::callback);
    routes.post("/api/v1/operations", operations::begin);
    routes.post("/api/v1/operations/{id}/abort", operations::abort);
    routes.post("/api/v1/prune", prune::prune);
    routes.add("delete", "/api/v1/step-keys/{key}", step_keys::release);
    routes.add("put", "/api/v1/queues/{queue}", queues::limit);
    routes.add("delete", "/api/v1/queues/{queue}", queues::clear);
    routes.post("/api/v1/queues/{queue}/pause", queues::pause);
    routes.post("/api/v1/queues/{queue}/resume", queues::resume);
    routes.add("put", "/api/v1/schedules/{schedule}", schedules::put);
    routes.add("delete", "/api/v1/schedules/{schedule}", schedules::remove);
    routes.post("/api/v1/schedules/{schedule}/pause", schedules::pause);
    routes.post("/api/v1/schedules/{schedule}/resume", schedules::resume);
    routes.post("/api/v1/schedules/{schedule}/trigger", schedules::trigger);
    routes.post("/api/v1/schedules/{schedule}/backfill", schedules::backfill);
}

fn beside(routes: &mut Routes) {
    routes.get("/livez", probe::live);
    routes.get("/readyz", probe::ready);
    routes.get("/metrics", metrics::show);
    routes.get("/openapi.json", openapi::show);
    routes.get("/api/v1/codes", codes::list);
    routes.get("/api/v1/codes/{code}", codes::show);
    routes.post("/api/v1/session", session::begin);
    routes.add("delete", "/api/v1/session", session::end);
}

/// The answer where there is nothing.
async fn nothing(request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    Problem::new(Code::NoSuchPath, format!("there is nothing to {method} at {path}"))
}

/// The answer where there is something for another method.
async fn other_method(request: Request) -> Problem {
    let methods = endpoint::methods_of(request.uri().path()).join(", ");
    let text = format!("there is nothing to {} here, only to {methods}", request.method());
    Problem::new(Code::NoSuchPath, text).allowing(methods)
}

/// Writes out what was refused, and dresses what no guard saw, as a method that a path does not have.
async fn dress(mount: Mount, request: Request, next: Next) -> Response {
    dressed(problem::written(next.run(request).await, &mount.0), KEPT_IF_SAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Access, Role};

    #[tokio::test]
    async fn every_endpoint_of_the_table_has_a_handler() {
        let onward = Onward::open("memory:").await.unwrap();
        let (_, phase) = watch::channel(Phase::Up);
        let app = App::new(onward, Options::new(Access::Open(Role::Read)), phase);
        let mut routes = Routes { app, router: Router::new(), added: BTreeSet::new() };
        looks(&mut routes);
        changes(&mut routes);
        beside(&mut routes);
        let table: BTreeSet<_> =
            endpoint::ENDPOINTS.iter().map(|endpoint| (endpoint.method, endpoint.path)).collect();
        assert_eq!(routes.added, table);
    }
}
