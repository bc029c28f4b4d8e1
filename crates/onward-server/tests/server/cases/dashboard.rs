//! The dashboard's files, as a browser asks for them.

use super::stage::{Asked, Stage};

#[tokio::test]
async fn the_page_is_at_every_path_of_its_views() {
    let stage = Stage::open().await;
    for path in ["/", "/runs?state=failed&x=y", "/runs/01890a5d/timeline", "/keys"] {
        let headers = vec![("accept", "text/html,*/*")];
        let reply = stage.send("GET", path, Asked { headers, body: None }).await;
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some("text/html; charset=utf-8"))
        );
        assert!(reply.text.contains("<base href=\"/\">"), "{}", reply.text);
        assert!(!reply.text.contains("__base__"), "{}", reply.text);
    }
    let headers = vec![("accept", "text/html")];
    let api = stage.send("GET", "/api/v1/nothing", Asked { headers, body: None }).await;
    assert_eq!((api.status, api.code().as_str()), (404, "no_such_path"));
    assert_eq!(stage.get("/nothing.js").await.status, 404);
    stage.stop().await;
}

#[tokio::test]
async fn a_file_is_sent_once_and_then_known() {
    let (stage, _) = Stage::with_tokens().await;
    for path in ["/app.js", "/live.js", "/app.css", "/icons.svg"] {
        let reply = stage.get(path).await;
        assert_eq!(reply.status, 200, "{path}: files need no token");
        let tag = reply.header("etag").unwrap();
        let headers = vec![("if-none-match", tag)];
        let known = stage.send("GET", path, Asked { headers, body: None }).await;
        assert_eq!((known.status, known.text.as_str()), (304, ""), "{path}");
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_file_is_packed_for_whoever_takes_it() {
    let stage = Stage::open().await;
    let whole = stage.get("/app.js").await;
    let headers = vec![("accept-encoding", "br, gzip")];
    let packed = stage.begin("GET", "/app.js", Asked { headers, body: None }).await;
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    let bytes = http_body_util::BodyExt::collect(packed.into_body()).await.unwrap().to_bytes();
    assert!(bytes.len() * 2 < whole.text.len(), "{} of {}", bytes.len(), whole.text.len());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&bytes[..]), &mut text)
        .unwrap();
    assert_eq!(text, whole.text);
    stage.stop().await;
}

#[tokio::test]
async fn the_page_holds_nothing_that_its_policy_forbids() {
    let stage = Stage::open().await;
    let headers = vec![("accept", "text/html")];
    let page = stage.send("GET", "/", Asked { headers, body: None }).await.text;
    assert!(!page.contains("style=") && !page.contains("onclick="), "{page}");
    for part in page.split("<script").skip(1) {
        let (head, body) = part.split_once('>').unwrap();
        assert!(head.contains("src=") && body.starts_with("</script>"), "inline: {part}");
    }
    assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
    stage.stop().await;
}
