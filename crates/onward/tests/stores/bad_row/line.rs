//! A line whose second run cannot be read when its turn comes, or when another comes before it. Once it can be
//! read again, it and those behind it begin, one after the other.

use super::*;

/// What becomes of the first of the line while the second cannot be read.
const WAYS: [&str; 3] = ["it ends", "it goes on as another", "another is to take its place"];

#[tokio::test]
async fn a_line_goes_on_once_its_bad_run_can_be_read_on_sqlite() {
    lines::<Sqlite>().await;
}

#[tokio::test]
async fn a_line_goes_on_once_its_bad_run_can_be_read_on_postgres() {
    lines::<Postgres>().await;
}

async fn lines<H: Harness>() {
    for damage in DAMAGES {
        for way in WAYS {
            line_after_a_repair::<H>(damage, way).await;
        }
        for way in &WAYS[1..] {
            line_after_a_cancel::<H>(damage, way).await;
        }
    }
}

/// It begins when its turn has come, and the last one after it.
async fn line_after_a_repair<H: Harness>(damage: &str, way: &str) {
    println!("{damage}: {way}");
    let (stage, raw) = opened::<H>().await;
    let worker = stage.worker().await;
    let [first, bad, last] = in_line(&stage).await;
    let lease = worker.take(first).await;
    let column = damage.split(' ').next().unwrap();
    let whole = raw.read(bad, column).await;
    raw.damage(bad, damage).await;
    let other = go_on(&stage, lease, way).await;
    let mut began = finish_all(&stage, &worker).await;
    if column == "notes" {
        raw.write(bad, column, whole.as_deref()).await;
    }
    if is_set_aside(&stage, bad).await {
        stage.store.retry(bad).await.unwrap();
    }
    began.extend(finish_all(&stage, &worker).await);
    let expected: Vec<_> = other.into_iter().chain([bad, last]).collect();
    assert_eq!(began, expected, "{damage}: {way}");
}

/// It is cancelled before its turn, by what it still knows of its place. Nobody loses theirs by that.
async fn line_after_a_cancel<H: Harness>(damage: &str, way: &str) {
    println!("{damage}: {way}, and it is cancelled");
    let (stage, raw) = opened::<H>().await;
    let worker = stage.worker().await;
    let [first, bad, last] = in_line(&stage).await;
    let lease = worker.take(first).await;
    let column = damage.split(' ').next().unwrap();
    let whole = raw.read(bad, column).await;
    raw.damage(bad, damage).await;
    let other = match way {
        "another is to take its place" => replace_first(&stage).await,
        _ => go_on(&stage, lease, way).await.unwrap(),
    };
    raw.write(bad, column, whole.as_deref()).await;
    stage.store.cancel(bad).await.unwrap();
    assert_eq!(stage.state(bad).await, RunState::Cancelled);
    if way == "another is to take its place" {
        stage.settle(lease, End::Cancelled).await.unwrap();
    }
    let began = finish_all(&stage, &worker).await;
    assert_eq!(began, [other, last], "{damage}: {way}, and it is cancelled");
}

/// Does with the first run what is to become of it; gives the run that has come before the bad one by that.
async fn go_on(stage: &Stage, first: Lease, way: &str) -> Option<RunId> {
    match way {
        "it ends" => {
            stage.settle(first, End::Completed(json(1))).await.unwrap();
            None
        }
        "it goes on as another" => {
            let run = RunId::new();
            let end = End::Continued { run, input: json(2), undelivered: Vec::new() };
            stage.settle(first, end).await.unwrap();
            Some(run)
        }
        _ => {
            let other = replace_first(stage).await;
            stage.settle(first, End::Cancelled).await.unwrap();
            Some(other)
        }
    }
}

/// Starts a run that waits for the end of the first.
async fn replace_first(stage: &Stage) -> RunId {
    stage.start(keyed("line/1", 1, OnConflict::Replace)).await
}

/// Lets whatever can begin do so and end, one after the other; says in which order.
async fn finish_all(stage: &Stage, worker: &Worker) -> Vec<RunId> {
    let mut began = Vec::new();
    loop {
        let claims = worker.claim(10).await;
        assert!(claims.runs.len() <= 1, "each waits for the one before: {:?}", ids(&claims));
        let Some(claimed) = claims.runs.first() else { return began };
        began.push(claimed.run.id);
        stage.settle(claimed.lease, End::Completed(json(1))).await.unwrap();
    }
}
