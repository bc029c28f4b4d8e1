//! Servers that cannot be reached, and URLs that cannot be read: what a caller is told, and what
//! it is never told.

use std::error::Error as _;
use std::time::{Duration, Instant};

use onward::Code;
use onward::store::{Error, Outage, PostgresStore, Query, Store};
use tokio::net::TcpListener;

use super::cluster::{Cluster, free_port};
use super::stage::*;
use crate::database;

const PASSWORD: &str = "pa55-word";

/// What opening says, within its time limit and without the password in any form.
async fn told(url: &str) -> onward::Error {
    let url = with(url, "connect_timeout=2");
    let began = Instant::now();
    let error = PostgresStore::open(&url).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let mut texts = vec![format!("{error}"), format!("{error:?}")];
    let mut source = error.source();
    while let Some(inner) = source {
        texts.push(format!("{inner} {inner:?}"));
        source = inner.source();
    }
    assert!(!texts.concat().contains(PASSWORD), "{texts:?}");
    error
}

async fn unavailable(url: &str, why: &str) {
    let error = told(url).await;
    assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

#[tokio::test]
async fn a_host_that_is_not_known_is_named() {
    let url = format!("postgres://app:{PASSWORD}@nowhere.invalid/shop");
    unavailable(&url, "nowhere.invalid").await;
}

#[tokio::test]
async fn a_port_that_nobody_listens_at_is_refused_at_once() {
    let url = format!("postgres://app:{PASSWORD}@127.0.0.1:{}/shop", free_port());
    unavailable(&url, "refused").await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("postgres://app:{PASSWORD}@127.0.0.1:{port}/shop");
    unavailable(&url, "no connection within 2s").await;
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let url = database::url();
    let (base, _) = url.rsplit_once('/').unwrap();
    unavailable(&format!("{base}/no_such_shop"), "no_such_shop").await;
}

#[tokio::test]
async fn a_wrong_password_is_called_so_and_kept_secret() {
    let mut cluster = Cluster::made("");
    cluster
        .put_text("pg_hba.conf", "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n");
    cluster.start();
    let url = format!("postgres://onward:{PASSWORD}@{}/postgres", cluster.address());
    unavailable(&url, "password authentication failed").await;
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_an_invalid_option() {
    let bad = [
        format!("postgres://app:{PASSWORD}@db:port/shop"),
        format!("postgres://app:{PASSWORD}@db/shop?nonsense=1"),
        format!("postgres://app:{PASSWORD}@db/shop?sslmode=perhaps"),
        format!("postgres://app:{PASSWORD}@db/shop?schema=No-Name"),
        format!("postgres://app:{PASSWORD}%zz@[::1/shop"),
        format!("host=db password={PASSWORD} user"),
    ];
    for url in bad {
        let error = PostgresStore::open(&url).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidOption, "{url}: {error}");
        assert!(!format!("{error} {error:?} {:?}", error.source()).contains(PASSWORD), "{error}");
    }
}

#[tokio::test]
async fn a_store_shows_no_password() {
    let stage = Stage::new();
    let url = stage.url().replacen("onward@", &format!("onward:{PASSWORD}@"), 1);
    let store = PostgresStore::open(&url).await.unwrap();
    let shown = format!("{store:?}");
    assert!(shown.contains(stage.name()) && !shown.contains(PASSWORD), "{shown}");
}

/// Fails where a connection goes back to the pool with a statement on it that was given up: the next
/// one waits behind it, and is given up as well.
#[tokio::test]
async fn a_connection_that_did_not_answer_is_not_used_again() {
    let stage = Stage::new();
    let url = with(&with(&stage.url(), "statement_timeout=1"), "pool_size=1");
    let store = PostgresStore::open(&url).await.unwrap();
    let raw = stage.raw().await;
    raw.batch_execute("begin; lock table runs in access exclusive mode").await.unwrap();
    let given_up = store.list(Query::default()).await.unwrap_err();
    assert!(matches!(given_up, Error::Unavailable(Outage::NoAnswer, _)), "{given_up}");
    // The first still waits where it is, and this one does not wait behind it.
    let next = store.list(Query::default());
    stage.waiting(2).await;
    let_go(&raw).await;
    assert!(soon(next).await.unwrap().runs.is_empty());
}

/// Fails where a server that cannot commit, as one that is being demoted, is taken for a damaged store: the
/// worker would give up what it had only to repeat.
#[tokio::test]
async fn a_write_that_the_server_fails_at_in_itself_is_an_outage() {
    let stage = Stage::new();
    let store = stage.open().await;
    let worker = joined(&store).await;
    started(&store).await;
    let lease = claimed(&store, worker, 1).await;
    let raw = stage.raw().await;
    let fail = "create function fail() returns trigger language plpgsql as $$
        begin
            raise 'could not commit' using errcode = 'XX000';
        end $$;
        create constraint trigger fail after insert on records
        deferrable initially deferred for each row execute function fail()";
    raw.batch_execute(fail).await.unwrap();
    let record = || vec![done(&store, 1, "a")].into();
    let failed = store.record(lease, record()).await.unwrap_err();
    assert!(matches!(failed, Error::Unavailable(Outage::NoAnswer, _)), "{failed}");
    raw.batch_execute("drop trigger fail on records").await.unwrap();
    store.record(lease, record()).await.unwrap();
}
