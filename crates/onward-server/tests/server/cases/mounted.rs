//! The router under a path of somebody's own application.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use onward::Onward;
use onward_server::{Access, Caller, Options, Role};
use serde_json::Value;

#[tokio::test]
async fn a_mounted_router_knows_its_path_and_asks_the_application() {
    let onward = Onward::open("memory:").await.unwrap();
    let access = Access::asked(|head| {
        let who = head.headers.get("x-user")?.to_str().ok()?.to_owned();
        Some(Caller { who, role: Role::Operate })
    });
    let router = onward_server::router_at("/admin/onward/", onward.clone(), Options::new(access));
    let app = Router::new().route("/", get(|| async { "the shop" })).merge(router);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let (status, _, problem) = ask(address, "GET", "/admin/onward/api/v1/meta", None).await;
    assert_eq!(status, 401, "nobody said who it is");
    assert_eq!(problem["type"], "/admin/onward/api/v1/codes/unauthorized");
    let path = "/admin/onward/api/v1/workflows/double/runs";
    let (status, place, body) = ask(address, "POST", path, Some("ada")).await;
    assert_eq!(status, 201, "{body}");
    let id = body["run"]["id"].as_str().unwrap().to_owned();
    assert_eq!(place, format!("/admin/onward/api/v1/runs/{id}"));
    let (status, _, body) = ask(address, "GET", &place, Some("ada")).await;
    assert_eq!((status, &body["run"]["id"]), (200, &Value::String(id)));
    let audit = onward.store().audit().unwrap().audits(None, 10).await.unwrap();
    assert_eq!((audit.rows.len(), audit.rows[0].who.as_str()), (1, "ada"));
    let (status, place, _) = ask(address, "GET", "/admin/onward/", None).await;
    assert_eq!((status, place.as_str()), (308, "/admin/onward"));
    for path in ["/admin/onward", "/admin/onward/runs"] {
        let page = page(address, path).await;
        assert!(page.contains("<base href=\"/admin/onward/\">"), "{path}: {page}");
    }
    let (status, _, _) = ask(address, "GET", "/", None).await;
    assert_eq!(status, 200, "the application goes on beside it");
    serving.abort();
}

async fn page(address: SocketAddr, path: &str) -> String {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let request = hyper::Request::builder().uri(format!("http://{address}{path}"));
    let request = request.header("accept", "text/html").body(Full::default()).unwrap();
    let body = client.request(request).await.unwrap().into_body();
    String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    who: Option<&str>,
) -> (u16, String, Value) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(format!("http://{address}{path}"))
        .header("content-type", "application/json");
    if let Some(who) = who {
        request = request.header("x-user", who);
    }
    let body: Full<Bytes> = Full::from(Bytes::from(if method == "POST" { "{}" } else { "" }));
    let (head, body) = client.request(request.body(body).unwrap()).await.unwrap().into_parts();
    let place = head.headers.get("location").map(|place| place.to_str().unwrap().to_owned());
    let bytes = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    (head.status.as_u16(), place.unwrap_or_default(), body)
}
