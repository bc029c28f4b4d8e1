//! The stage of the dashboard's tests in a browser: workflows that do what the tests look at, and the
//! server over their store, each in a process of its own so that either can be killed.
//!
//! Owns: what the tests start. Never the data: the tests make it over HTTP, as any caller would.
//!
//! ```text
//! stage worker sqlite:FILE
//! stage serve sqlite:FILE PORT [MOUNT]       open, as admin
//! stage hidden sqlite:FILE PORT              open, as admin, and without payloads
//! stage redacted sqlite:FILE PORT            open, as admin, with a hook that leaves payloads out
//! stage tokens sqlite:FILE PORT              with the tokens stage-read, stage-operate, stage-admin
//! ```

use std::error::Error;
use std::time::Duration;

use onward::{Ctx, Failure, Json, Onward, Retry, Workflow};
use onward_server::{Access, Options, Payload, Role, ServeOptions, Tokens};

const ECHO: Workflow<Json, Json> = Workflow::named("echo");
const ORDER: Workflow<Json, String> = Workflow::named("order");
const APPROVAL: Workflow<Json, bool> = Workflow::named("approval");
const BROKEN: Workflow<Json, String> = Workflow::named("broken");
const CONFIDE: Workflow<Json, ()> = Workflow::named("confide");
const SLEEPY: Workflow<Json, String> = Workflow::named("sleepy");
const FAMILY: Workflow<Json, usize> = Workflow::named("family");
const FAN_OUT: Workflow<u32, usize> = Workflow::named("fan-out");

/// Steps of a fan-out that are under way at once.
const FAN_OUT_AT_ONCE: usize = 200;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["worker", store] => work(Onward::open(store).await?).await,
        ["serve", store, port] => serve(store, port, Options::new(Access::Open(Role::Admin))).await,
        ["serve", store, port, mount] => mounted(store, port, mount).await,
        ["hidden", store, port] => {
            serve(store, port, Options::new(Access::Open(Role::Admin)).hide_payloads()).await
        }
        ["redacted", store, port] => {
            let left_out =
                |payload: Payload<'_>| Json::stored(format!("\"left out: {:?}\"", payload.place));
            serve(store, port, Options::new(Access::Open(Role::Admin)).redact(left_out)).await
        }
        ["tokens", store, port] => {
            let tokens = Tokens::none()
                .with("reader", Role::Read, "stage-read")
                .with("operator", Role::Operate, "stage-operate")
                .with("admin", Role::Admin, "stage-admin");
            serve(store, port, Options::new(Access::Tokens(tokens))).await
        }
        _ => Err("usage: stage worker|serve|hidden|redacted|tokens STORE [PORT] [MOUNT]".into()),
    }
}

async fn serve(store: &str, port: &str, options: Options) -> Result<(), Box<dyn Error>> {
    let mut serve = ServeOptions::new(options.rate(10_000, 10_000));
    serve.listen.set_port(port.parse()?);
    let onward = Onward::open(store).await?;
    onward_server::serve(onward, serve, std::future::pending()).await?;
    Ok(())
}

/// As a part of somebody's own application.
async fn mounted(store: &str, port: &str, mount: &str) -> Result<(), Box<dyn Error>> {
    let onward = Onward::open(store).await?;
    let options = Options::new(Access::Open(Role::Admin)).rate(10_000, 10_000);
    let app = onward_server::router_at(mount, onward, options);
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, app).await?;
    Ok(())
}

async fn work(onward: Onward) -> Result<(), Box<dyn Error>> {
    let worker = onward
        .worker()
        .serve(ECHO, echo)
        .serve(ORDER, order)
        .serve(APPROVAL, approval)
        .serve(BROKEN, broken)
        .serve(CONFIDE, confide)
        .serve(SLEEPY, sleepy)
        .serve(FAMILY, family)
        .serve(FAN_OUT, fan_out)
        .start()
        .await?;
    std::future::pending::<()>().await;
    worker.shutdown().await?;
    Ok(())
}

async fn echo(ctx: Ctx, input: Json) -> Result<Json, Failure> {
    ctx.step("repeat", |_| {
        let input = input.clone();
        async move { Ok::<_, Failure>(input) }
    })
    .await
}

/// Steps, a step that fails twice before it succeeds, and a step with a key over all runs.
async fn order(ctx: Ctx, _: Json) -> Result<String, Failure> {
    ctx.step("find customer", async |_| Ok::<_, Failure>("ada".to_owned())).await?;
    let retry = Retry::fixed(Duration::from_millis(120)).tries(5);
    ctx.step("charge card", async |step| match step.try_number() {
        1 | 2 => Err(Failure::new("the bank is busy").code("bank_busy")),
        _ => Ok("receipt".to_owned()),
    })
    .retry(retry)
    .await?;
    let mail = ctx.step("welcome mail", async |_| Ok::<_, Failure>("sent".to_owned()));
    mail.key("welcome-ada").await?;
    Ok("done".to_owned())
}

async fn approval(ctx: Ctx, _: Json) -> Result<bool, Failure> {
    ctx.step("ask", async |_| Ok::<_, Failure>(())).await?;
    let approved = ctx.signal::<bool>("approved").await?;
    ctx.step("note answer", async |_| Ok::<_, Failure>(())).await?;
    Ok(approved)
}

async fn broken(ctx: Ctx, _: Json) -> Result<String, Failure> {
    ctx.step("charge card", async |step| {
        let run = step.run_id();
        Err(Failure::fatal(format!("the bank refused order {run}")).code("card_declined"))
    })
    .await
}

/// What it is started with stands in its log, under a step key, and in the details of its failure.
async fn confide(ctx: Ctx, secret: Json) -> Result<(), Failure> {
    ctx.log(format!("confided: {secret}"));
    let keep = ctx.step("keep", async |_| Ok::<_, Failure>(secret.clone()));
    keep.key("confided").await?;
    ctx.signal::<Json>("answer").await?;
    Err(Failure::fatal("it is out").details(&secret))
}

async fn sleepy(ctx: Ctx, _: Json) -> Result<String, Failure> {
    ctx.sleep(Duration::from_secs(60 * 60)).await;
    Ok("awake".to_owned())
}

/// Lines in its log, of the function and of a step, and two children.
async fn family(ctx: Ctx, _: Json) -> Result<usize, Failure> {
    ctx.log("two children to start");
    let children = ctx
        .step("count", async |step| {
            step.log("there are two");
            Ok::<_, Failure>(2)
        })
        .await?;
    for number in 0..children {
        ctx.start(ECHO, &Json::of(&number)?).result().await?;
    }
    Ok(children)
}

async fn fan_out(ctx: Ctx, count: u32) -> Result<usize, Failure> {
    let notify = |number: u32| ctx.step("notify", move |_| async move { Ok::<_, Failure>(number) });
    Ok(ctx.all(0..count, FAN_OUT_AT_ONCE, notify).await?.len())
}
