//! Encrypted connections, against a server that takes no others.

use std::path::{Path, PathBuf};
use std::process::Command;

use onward::Code;
use onward::store::*;
use tempfile::TempDir;

use super::cluster::{Cluster, succeeded};
use super::prepared;
use super::stage::*;

/// Certificates made for one test: an authority, a server that it vouches for as `localhost`, and
/// an authority that vouches for nobody.
struct Papers {
    folder: TempDir,
}

impl Papers {
    fn new() -> Self {
        let papers = Self { folder: tempfile::tempdir().unwrap() };
        papers.authority("ca");
        papers.authority("stranger");
        let asked = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key \
                     -out server.csr -subj /CN=localhost";
        papers.openssl(asked);
        std::fs::write(papers.path("names"), "subjectAltName = DNS:localhost\n").unwrap();
        papers.openssl(
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile names -out server.pem",
        );
        papers
    }

    fn authority(&self, name: &str) {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
             -keyout {name}.key -out {name}.pem -subj /CN={name}"
        ));
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command.args(arguments.split_whitespace()).current_dir(self.folder.path());
        succeeded("openssl", &command.output().unwrap());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server with these papers that takes only encrypted connections.
    fn server(&self) -> Cluster {
        self.server_for("hostssl all all 127.0.0.1/32 trust\n")
    }

    /// A server with these papers that takes these connections.
    fn server_for(&self, connections: &str) -> Cluster {
        let mut cluster = Cluster::made("ssl = on");
        cluster.put("server.crt", &self.path("server.pem"));
        cluster.put("server.key", &self.path("server.key"));
        cluster.put_text("pg_hba.conf", connections);
        cluster.start();
        cluster
    }
}

fn at(cluster: &Cluster, host: &str, options: &str) -> String {
    let address = cluster.address().replacen("127.0.0.1", host, 1);
    with(&format!("postgres://onward@{address}/postgres"), options)
}

fn verify(root: &Path) -> String {
    format!("sslmode=verify-full&sslrootcert={}", root.display())
}

async fn refused(url: &str, code: Code, words: &[&str]) {
    let error = PostgresStore::open(url).await.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

#[tokio::test]
async fn a_server_is_verified_as_far_as_sslmode_says() {
    let papers = Papers::new();
    let cluster = papers.server();
    // Any certificate will do, under any name.
    let store = PostgresStore::open(&at(&cluster, "127.0.0.1", "sslmode=require")).await.unwrap();
    started(&store).await;
    let known = verify(&papers.path("ca.pem"));
    let store = PostgresStore::open(&at(&cluster, "localhost", &known)).await.unwrap();
    started(&store).await;
    assert_eq!(store.stats().await.unwrap().runs[&onward::RunState::Queued], 2);

    let unavailable = Code::StoreUnavailable;
    let other_name = at(&cluster, "127.0.0.1", &known);
    refused(&other_name, unavailable, &["certificate", "not valid for name", "127.0.0.1"]).await;
    let stranger = verify(&papers.path("stranger.pem"));
    let unknown = at(&cluster, "localhost", &stranger);
    refused(&unknown, unavailable, &["certificate", "UnknownIssuer", "sslrootcert"]).await;
    let plain = at(&cluster, "127.0.0.1", "sslmode=disable");
    refused(&plain, unavailable, &["no encryption", "sslmode=require"]).await;
    refused(&at(&cluster, "127.0.0.1", ""), unavailable, &["sslmode=require"]).await;
}

/// Fails where it is not seen through encryption that the server itself is at the other end.
#[tokio::test]
async fn what_is_written_often_is_parsed_once_over_tls_too() {
    let papers = Papers::new();
    let (store, raw, _cluster) = watched(&papers).await;
    assert_eq!(prepared::record_all(&store, &raw, "onward").await.last(), Some(&1));
}

/// Fails where a lone write is sent by its caller only if the connection is not encrypted: two statements
/// are prepared on that from its beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_write_is_sent_by_its_caller_over_tls_too() {
    let papers = Papers::new();
    let (store, raw, _cluster) = watched(&papers).await;
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    until("a write is sent by its caller", async || {
        let step = onward::RunId::new().to_string();
        store.record(lease, vec![done(&store, 1, &step)].into()).await.unwrap();
        let last = "select prepared from onward.seen order by no desc limit 1";
        raw.query_one(last, &[]).await.unwrap().get::<_, i64>(0) == 2
    })
    .await;
}

/// A store over TLS, each of whose records says what is prepared in its session.
async fn watched(papers: &Papers) -> (PostgresStore, tokio_postgres::Client, Cluster) {
    let cluster = papers.server_for("host all all 127.0.0.1/32 trust\n");
    let store = PostgresStore::open(&at(&cluster, "127.0.0.1", "sslmode=require")).await.unwrap();
    let raw = crate::database::connect_to(&cluster.url()).await;
    prepared::watch(&raw, "onward", "").await;
    (store, raw, cluster)
}

#[tokio::test]
async fn a_server_without_tls_is_not_used_where_tls_is_asked_for() {
    let url = with(&crate::database::url(), "sslmode=require");
    refused(&url, Code::StoreUnavailable, &["does not support TLS", "sslmode=disable"]).await;
}

#[tokio::test]
async fn a_password_that_is_missing_belongs_into_the_url() {
    let papers = Papers::new();
    let cluster = papers.server_for("host all all 127.0.0.1/32 scram-sha-256\n");
    let words = ["password missing", "postgres://USER:PASSWORD@HOST/DATABASE"];
    refused(&at(&cluster, "127.0.0.1", ""), Code::StoreUnavailable, &words).await;
}

#[tokio::test]
async fn a_file_of_authorities_that_has_none_is_an_invalid_option() {
    let papers = Papers::new();
    let url = "postgres://onward@localhost/postgres";
    let missing = with(url, &verify(&papers.path("nothing.pem")));
    refused(&missing, Code::InvalidOption, &["nothing.pem"]).await;
    let empty = with(url, &verify(&papers.path("names")));
    refused(&empty, Code::InvalidOption, &["sslrootcert"]).await;
}
