//! A server on a port of its own over a store of its own, and a client that speaks to it.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use onward::{Ctx, Failure, Onward, RunId, Worker, Workflow};
use onward_server::{Access, NewToken, Options, Role, ServeOptions, Tokens};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::super::Place;
use super::schema;

/// Longer than anything here takes on a slow machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) const DOUBLE: Workflow<Value, Value> = Workflow::named("double");

/// A server that answers, and what it is over.
pub(crate) struct Stage {
    pub(crate) onward: Onward,
    pub(crate) address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
    token: Option<String>,
    end: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
    worker: Option<Worker>,
    /// Where the store is: gone with the stage.
    place: Place,
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The code of a problem, whose form is checked.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status);
        body["code"].as_str().unwrap().to_owned()
    }
}

/// One request, as far as tests differ in it.
#[derive(Default)]
pub(crate) struct Asked<'a> {
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: Option<Value>,
}

impl Stage {
    /// Open to the machine itself, as an operator.
    pub(crate) async fn open() -> Self {
        Self::with(Options::new(Access::Open(Role::Admin))).await
    }

    /// A server with these options.
    pub(crate) async fn with(options: Options) -> Self {
        Self::serving(ServeOptions::new(unhurried(options))).await
    }

    /// A server that is started like this, with the rates that its options have.
    pub(crate) async fn serving(serve: ServeOptions) -> Self {
        let place = Place::new();
        let onward = Onward::open(&place.url()).await.unwrap();
        Self::over(onward, place, serve).await
    }

    /// A server over a store that is there.
    async fn over(onward: Onward, place: Place, mut serve: ServeOptions) -> Self {
        serve.listen.set_port(0);
        let bound = onward_server::bind(onward.clone(), serve).await.unwrap();
        let address = bound.address();
        let (end, ended) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            bound.serve(async move { drop(ended.await) }).await;
        });
        Self {
            onward,
            address,
            client: Client::builder(TokioExecutor::new()).build_http(),
            token: None,
            end: Some(end),
            serving: Some(serving),
            worker: None,
            place,
        }
    }

    /// A router in an application that serves nothing else.
    pub(crate) async fn mounted() -> Self {
        let mut stage = Self::open().await;
        drop(stage.end.take());
        stage.serving.take().unwrap().await.unwrap();
        let router =
            onward_server::router(stage.onward.clone(), Options::new(Access::Open(Role::Admin)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        stage.address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        stage.end = Some(end);
        stage.serving = Some(tokio::spawn(async move {
            let serving = axum::serve(listener, router);
            serving.with_graceful_shutdown(async move { drop(ended.await) }).await.unwrap();
        }));
        stage
    }

    /// Another server over the same store.
    pub(crate) async fn succeeded(mut self) -> Self {
        drop(self.end.take());
        self.serving.take().unwrap().await.unwrap();
        let Self { onward, place, .. } = self;
        let options = unhurried(Options::new(Access::Open(Role::Admin)));
        Self::over(onward, place, ServeOptions::new(options)).await
    }

    /// A server with one token for each role.
    pub(crate) async fn with_tokens() -> (Self, [NewToken; 3]) {
        let tokens = [(); 3].map(|()| NewToken::make().unwrap());
        let known = Role::ALL.iter().zip(&tokens).fold(Tokens::none(), |known, (role, token)| {
            known.with(role.as_str(), *role, token.secret())
        });
        (Self::with(Options::new(Access::Tokens(known))).await, tokens)
    }

    /// Sends this token with every request from here on.
    pub(crate) fn as_bearer(&mut self, token: &NewToken) {
        self.token = Some(token.secret().to_owned());
    }

    /// Serves `double`, which fails for what is not a number.
    pub(crate) async fn working(mut self) -> Self {
        let function = async |ctx: Ctx, input: Value| {
            let twice = ctx.step("twice", async |_| match input.as_i64() {
                Some(number) => Ok(json!(number * 2)),
                None => Err(Failure::fatal("not a number").code("no_number").details(&input)),
            });
            twice.await
        };
        self.worker = Some(self.onward.worker().serve(DOUBLE, function).start().await.unwrap());
        self
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, Asked::default()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, Asked { body: Some(body), ..Asked::default() }).await
    }

    pub(crate) async fn keyed(&self, path: &str, key: &str, body: Value) -> Reply {
        let headers = vec![("idempotency-key", key)];
        self.send("POST", path, Asked { headers, body: Some(body) }).await
    }

    /// Sends a request; the answer is held against the OpenAPI document.
    pub(crate) async fn send(&self, method: &str, path: &str, asked: Asked<'_>) -> Reply {
        let response = tokio::time::timeout(SOON, self.begin(method, path, asked)).await.unwrap();
        let (head, body) = response.into_parts();
        let bytes = tokio::time::timeout(SOON, body.collect()).await.unwrap().unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let reply = Reply { status: head.status.as_u16(), headers: head.headers, text };
        schema::check(document(), method, path, &reply);
        reply
    }

    /// Sends a body as it is written.
    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request =
            Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::from(Bytes::from(body.to_owned()));
        let response = self.client.request(request.body(body).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Reply { status: head.status.as_u16(), headers: head.headers, text }
    }

    /// Sends a request, and gives the answer when its head is there.
    pub(crate) async fn begin(
        &self,
        method: &str,
        path: &str,
        asked: Asked<'_>,
    ) -> Response<Incoming> {
        let mut request =
            Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = asked.body.map(|body| body.to_string());
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in asked.headers {
            request = request.header(name, value);
        }
        let body = Full::from(Bytes::from(body.unwrap_or_default()));
        self.client.request(request.body(body).unwrap()).await.unwrap()
    }

    /// Waits until the run has ended.
    pub(crate) async fn ended(&self, run: &Value) {
        let id: RunId = run["id"].as_str().unwrap().parse().unwrap();
        tokio::time::timeout(SOON, self.onward.run(id).ended()).await.unwrap().unwrap();
    }

    /// Asks the server to stop, and waits until it has.
    pub(crate) async fn stop(mut self) {
        drop(self.end.take());
        let serving = self.serving.take().unwrap();
        tokio::time::timeout(SOON, serving).await.unwrap().unwrap();
        if let Some(worker) = self.worker.take() {
            worker.shutdown().await.unwrap();
        }
    }
}

/// Tests ask more often than people do.
fn unhurried(options: Options) -> Options {
    options.rate(100_000, 100_000)
}

pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(onward_server::openapi)
}
