//! Holds docs/payloads.md against a database: its queries find what an old key has encrypted, in every place
//! that a payload has.

use super::canary::{fill, worker};
use super::*;
use crate::database::{Schema, connect};

const PAGE: &str = include_str!("../../../../../docs/payloads.md");

/// The two queries of the page: that for a file, and that for Postgres.
fn queries() -> [&'static str; 2] {
    let blocks = PAGE.split("```sql\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.collect::<Vec<_>>().try_into().unwrap()
}

/// A file with a payload in every place, all of them encrypted with the key `k1`.
async fn filled() -> File {
    let file = File::new();
    let open = Onward::open(&file.url()).codec(Compression::new().bytes_min(40));
    let onward = open.codec(Encryption::new(ring(&[1]))).await.unwrap();
    let worker = worker(&onward).await;
    fill(&onward, &file).await;
    worker.shutdown().await.unwrap();
    file
}

fn assert_found_with_this_key_only(of_this: &[(String, i64)], of_another: &[(String, i64)]) {
    assert!(of_this.len() > 1 && of_this.iter().all(|(_, found)| *found > 0), "{of_this:?}");
    assert!(of_another.iter().all(|(_, found)| *found == 0), "{of_another:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_old_key_encrypted_is_found_in_a_file() {
    let file = filled().await;
    let db = file.sql();
    let found = |sql: &str| -> Vec<(String, i64)> {
        let mut query = db.prepare(sql).unwrap();
        let rows = query.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let [sql, _] = queries();
    assert_found_with_this_key_only(&found(sql), &found(&sql.replace("k1", "k2")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_old_key_encrypted_is_found_on_postgres() {
    let (file, schema, db) = (filled().await, Schema::new(), connect().await);
    let to = Onward::open(&schema.url()).await.unwrap();
    let copied = Onward::open(&file.url()).await.unwrap().copy_to(&to).await.unwrap();
    assert!(copied.verified);
    let found = async |sql: &str| -> Vec<(String, i64)> {
        let here = sql.replace("onward.", &format!("{}.", schema.0));
        let rows = db.query(&here, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let [_, sql] = queries();
    assert_found_with_this_key_only(&found(sql).await, &found(&sql.replace("k1", "k2")).await);
}
