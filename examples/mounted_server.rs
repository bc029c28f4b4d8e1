//! The API and the dashboard as a part of one's own web application, behind its own login.
//!
//! ```text
//! cargo run -p onward-server --example mounted_server
//! curl -H 'x-user: ada' localhost:8080/workflows/api/v1/meta
//! ```

use axum::Router;
use axum::routing::get;
use onward::{Ctx, Failure, Onward, Workflow};
use onward_server::{Access, Caller, Options, Role};

const GREET: Workflow<String, String> = Workflow::named("greet");

async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
    ctx.step("greet", async |_| Ok::<_, Failure>(format!("Hello, {name}!"))).await
}

/// The application: a page of its own, and the dashboard for its staff.
fn app(onward: Onward) -> Router {
    // A login of the application would have checked the header; here it is believed.
    let access = Access::asked(|head| {
        let who = head.headers.get("x-user")?.to_str().ok()?.to_owned();
        let role = if who == "ada" { Role::Admin } else { Role::Read };
        Some(Caller { who, role })
    });
    let options = Options::new(access).hide_payloads();
    Router::new()
        .route("/", get(async || "The shop. Staff: see /workflows."))
        .merge(onward_server::router_at("/workflows", onward, options))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let onward = Onward::open("memory:").await?;
    let worker = onward.worker().serve(GREET, greet).start().await?;
    onward.start(GREET, &"Ada".to_owned()).key("greeting-1").await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    println!("http://{}/workflows", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app(onward)).with_graceful_shutdown(stop).await?;
    worker.shutdown().await?;
    Ok(())
}
