//! The proxy itself: against a server that echoes, and against Postgres.

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use onward_chaos::proxy::{Cut, Proxy, Weather};
use onward_chaos::server::{self, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Only there so that a fault does not hang the suite.
const DEADLINE: Duration = Duration::from_secs(30);

/// Long enough to be seen, short enough to wait for.
const MOMENT: Duration = Duration::from_millis(300);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(DEADLINE, future).await else { panic!("{what}") };
    value
}

/// A server that sends back whatever it gets.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    address
}

async fn ask(stream: &mut TcpStream, question: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(question).await?;
    let mut answer = vec![0; question.len()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn what_is_sent_arrives_both_ways() {
    let proxy = Proxy::plain(echo().await).unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let long = vec![7; 1_000_000];
    let (mut from, mut to) = stream.split();
    let mut answer = vec![0; long.len()];
    let both = async { tokio::join!(to.write_all(&long), from.read_exact(&mut answer)) };
    let (sent, read) = in_time("it does not pass", both).await;
    sent.unwrap();
    read.unwrap();
    assert_eq!(answer, long);
}

#[tokio::test]
async fn cut_connection_is_reset_or_finished() {
    let proxy = Proxy::plain(echo().await).unwrap();
    for (cut, ends) in [(Cut::Reset, Err(ErrorKind::ConnectionReset)), (Cut::Finish, Ok(0))] {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        ask(&mut stream, b"hello").await.unwrap();
        proxy.cut(cut);
        let read = in_time("it is not cut", stream.read(&mut [0; 8])).await;
        assert_eq!(read.map_err(|error| error.kind()), ends);
    }
    assert_eq!(proxy.counts().cut, 2);
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ask(&mut stream, b"again").await.unwrap(), b"again", "later ones are not cut");
}

#[tokio::test]
async fn each_way_is_delayed() {
    let proxy = Proxy::plain(echo().await).unwrap();
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    for (delay_up, delay_down) in [(MOMENT, Duration::ZERO), (Duration::ZERO, MOMENT)] {
        proxy.set(Weather { delay_up, delay_down, ..Weather::default() });
        let asked = Instant::now();
        ask(&mut stream, b"slow").await.unwrap();
        assert!(asked.elapsed() >= MOMENT);
    }
    proxy.pass();
    let asked = Instant::now();
    ask(&mut stream, b"quick").await.unwrap();
    assert!(asked.elapsed() < MOMENT);
}

#[tokio::test]
async fn black_hole_keeps_connections_open_and_forwards_nothing() {
    let proxy = Proxy::plain(echo().await).unwrap();
    let mut old = TcpStream::connect(proxy.address()).await.unwrap();
    ask(&mut old, b"hello").await.unwrap();
    proxy.black_hole();
    let mut new = TcpStream::connect(proxy.address()).await.unwrap();
    for stream in [&mut old, &mut new] {
        let silent = tokio::time::timeout(MOMENT, ask(stream, b"hello?")).await;
        assert!(silent.is_err(), "something came through");
    }
    proxy.pass();
    for stream in [&mut old, &mut new] {
        let mut answer = [0; 6];
        in_time("it stays silent", stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"hello?", "what was sent meanwhile arrives late");
    }
}

#[tokio::test]
async fn refused_connections_are_refused_and_the_port_comes_back() {
    let proxy = Proxy::plain(echo().await).unwrap();
    ask(&mut TcpStream::connect(proxy.address()).await.unwrap(), b"hello").await.unwrap();
    proxy.refuse();
    in_time("it still listens", async {
        while !matches!(TcpStream::connect(proxy.address()).await, Err(e) if e.kind() == ErrorKind::ConnectionRefused)
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    proxy.pass();
    in_time("it never listens again", async {
        while TcpStream::connect(proxy.address()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// A table of its own on the shared server, and a way to it through a proxy.
async fn postgres(table: &str) -> (Proxy, String, tokio_postgres::Client) {
    let url = server::shared_url().unwrap();
    let proxy = Proxy::postgres(server::address_of(&url).unwrap()).unwrap();
    let straight = server::connect(&url).await.unwrap();
    let make = format!("drop table if exists {table}; create table {table} (n int)");
    straight.batch_execute(&make).await.unwrap();
    let through = server::url_at(&url, Some(proxy.address()), None);
    (proxy, through, straight)
}

async fn count(client: &tokio_postgres::Client, table: &str) -> i64 {
    client.query_one(&format!("select count(*) from {table}"), &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn answer_to_a_commit_is_lost_and_the_commit_is_not() {
    let table = "onward_chaos_swallow";
    let (proxy, url, straight) = postgres(table).await;
    let through = server::connect(&url).await.unwrap();
    let insert = format!("insert into {table} select $1::int");
    let statement = through.prepare(&insert).await.unwrap();
    let sprung = proxy.swallow_commit(1, Cut::Reset, move |sql| sql.contains("insert"));
    through.execute(&statement, &[&1]).await.unwrap();
    assert_eq!(through.query_one("select 7", &[]).await.unwrap().get::<_, i32>(0), 7);
    let lost = in_time("the client hangs", through.execute(&statement, &[&2])).await;
    assert!(lost.unwrap_err().is_closed() || through.is_closed());
    assert!(sprung.await.unwrap().contains("insert"));
    assert_eq!(count(&straight, table).await, 2, "the server has committed what it was sent");
    assert_eq!(proxy.counts().swallowed, 1);
    straight.batch_execute(&format!("drop table {table}")).await.unwrap();
}

#[tokio::test]
async fn answer_is_lost_at_the_commit_and_not_inside_the_transaction() {
    let table = "onward_chaos_transaction";
    let (proxy, url, straight) = postgres(table).await;
    let mut through = server::connect(&url).await.unwrap();
    let sprung = proxy.swallow_commit(0, Cut::Finish, |sql| sql.contains("insert"));
    let transaction = through.transaction().await.unwrap();
    let insert = format!("insert into {table} select 1");
    transaction.execute(&insert, &[]).await.unwrap();
    assert_eq!(count(&straight, table).await, 0);
    in_time("the client hangs", transaction.commit()).await.unwrap_err();
    assert!(sprung.await.unwrap().to_lowercase().contains("commit"));
    assert_eq!(count(&straight, table).await, 1);
    straight.batch_execute(&format!("drop table {table}")).await.unwrap();
}

#[tokio::test]
async fn server_of_its_own_comes_back_after_a_stop_and_after_a_kill() {
    server::shared_url().unwrap();
    let mut server = Server::start().unwrap();
    let client = server::connect(&server.url()).await.unwrap();
    client.batch_execute("create table kept (n int); insert into kept values (1)").await.unwrap();
    for end in [Server::stop, Server::kill] {
        end(&mut server).unwrap();
        server::connect(&server.url()).await.unwrap_err();
        server.start_again().unwrap();
        let client = server::connect(&server.url()).await.unwrap();
        assert_eq!(count(&client, "kept").await, 1);
    }
}
