//! `onward runs pause`, `resume`, `fork`, `log`, and changes to every run that fits.

use std::time::Duration;

use onward::{Ctx, Failure, Onward, Workflow};

use crate::place::Place;

const WORK: Workflow<u64, u64> = Workflow::named("work");

#[test]
fn many_runs_are_changed_by_what_they_are() {
    let place = Place::new();
    for n in 0..3 {
        place.onward(&["start", "work", "--input", &n.to_string(), "--tag", "import=7"]);
    }
    place.onward(&["start", "other", "--input", "1"]);

    let dry = place.onward(&["runs", "pause", "--all-matching", "--tag", "import=7", "--dry-run"]);
    assert_eq!(dry.stdout, "would pause 3 of 3 matching runs\n", "{}", dry.stderr);
    let asked = place.onward(&["runs", "pause", "--all-matching", "--tag", "import=7"]);
    assert_eq!(asked.code, 2);
    assert!(asked.stderr.contains("this would pause 3 runs; add --yes"), "{}", asked.stderr);
    let none = place.onward(&["runs", "list", "--state", "paused", "-o", "ids"]);
    assert_eq!(none.stdout, "", "nothing was changed");

    let paused = ["runs", "pause", "--all-matching", "--tag", "import=7", "--yes"];
    assert_eq!(place.onward(&paused).stdout, "paused 3 of 3 matching runs\n");
    let again = place.onward(&paused).stdout;
    assert_eq!(again, "paused 0 of 3 matching runs; skipped 3 (already: 3)\n");
    let listed = place.onward(&["runs", "list", "--state", "paused"]).stdout;
    assert_eq!(listed.lines().filter(|line| line.contains(" paused ")).count(), 3, "{listed}");

    let resumed = ["runs", "resume", "--all-matching", "--state", "paused", "-y", "-o", "json"];
    let resumed = place.onward(&resumed).stdout;
    let said: serde_json::Value = serde_json::from_str(&resumed).unwrap();
    assert_eq!((&said["verb"], &said["done"]), (&"resume".into(), &3.into()));
    let old = ["runs", "cancel", "--all-matching", "--older-than", "1h", "--yes"];
    assert_eq!(place.onward(&old).stdout, "cancelled 0 of 0 matching runs\n");
    let cancelled = ["runs", "cancel", "--all-matching", "--workflow", "work", "--yes"];
    assert_eq!(place.onward(&cancelled).stdout, "cancelled 3 of 3 matching runs\n");
    let failed = place.onward(&["runs", "retry", "--all-matching", "--workflow", "work", "--yes"]);
    assert_eq!(failed.stdout, "retried 0 of 3 matching runs; skipped 3 (run_not_failed: 3)\n");
}

#[test]
fn a_filter_or_ids_but_not_both_and_not_neither() {
    let place = Place::new();
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    for args in [
        &["runs", "pause"][..],
        &["runs", "pause", "--tag", "import=7"],
        &["runs", "pause", id, "--all-matching"],
        &["runs", "pause", id, "--workflow", "work"],
        &["runs", "cancel", id, "--dry-run"],
        &["runs", "fork", id],
        &["runs", "fork", id, "--from", "ocr", "--input", "{oops"],
        &["runs", "pause", "--all-matching", "-o", "ids"],
    ] {
        let ended = place.onward(args);
        assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn one_run_is_paused_shown_and_resumed() {
    let place = Place::new();
    let id = place.onward(&["start", "work", "--input", "1", "-o", "ids"]).stdout.trim().to_owned();
    assert_eq!(place.onward(&["runs", "pause", &id]).code, 0);
    let shown = place.onward(&["runs", "show", &id]).stdout;
    assert!(shown.contains("It is paused since") && shown.contains(", by "), "{shown}");
    assert!(shown.contains(&format!("onward runs resume {id}")), "{shown}");
    assert_eq!(place.onward(&["runs", "resume", &id]).code, 0);
    let shown = place.onward(&["runs", "show", &id]).stdout;
    assert!(!shown.contains("paused"), "{shown}");
    place.onward(&["runs", "cancel", &id]);
    let refused = place.onward(&["runs", "pause", &id]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("run_finished"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runs_log_progress_and_fork_are_seen() {
    let place = Place::new();
    let onward = Onward::open(&place.url()).await.unwrap();
    let worker = onward.worker().linger(Duration::ZERO).serve(WORK, async |ctx: Ctx, n: u64| {
        ctx.log("begins");
        ctx.progress(1, 4);
        let load = ctx.step("load", async |step| {
            step.log("loading");
            Ok::<_, Failure>(n)
        });
        let loaded = load.await?;
        let go = ctx.signal::<u64>("go").await?;
        ctx.log("\u{1b}[31mred");
        ctx.step("add", async |_| Ok::<_, Failure>(loaded + go)).await
    });
    let worker = worker.start().await.unwrap();
    let run = onward.start(WORK, &30).await.unwrap();
    let id = run.id().to_string();
    while run.status().await.unwrap().progress().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let listed = place.onward(&["runs", "list"]).stdout;
    assert!(listed.contains("25 %"), "{listed}");
    let shown = place.onward(&["runs", "show", &id]).stdout;
    assert!(shown.contains("1 of 4 (25 %)") && shown.contains("onward runs log"), "{shown}");

    let following = {
        let mut log = place.command(&["runs", "log", &id, "--follow"]);
        tokio::task::spawn_blocking(move || log.output().unwrap())
    };
    run.signal("go", &12).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 42);
    let followed = String::from_utf8(following.await.unwrap().stdout).unwrap();
    let said: Vec<_> = followed.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(said, ["begins", "[load] loading", "\\u{1b}[31mred"], "{followed}");

    let forked = place.onward(&["runs", "fork", &id, "--from", "add", "-o", "json"]).stdout;
    let forked: serde_json::Value = serde_json::from_str(&forked).unwrap();
    assert_eq!(forked["forked_from"], id.as_str());
    let fork = forked["id"].as_str().unwrap().to_owned();
    let again: u64 = onward.run(fork.parse().unwrap()).of_type().result().await.unwrap();
    assert_eq!(again, 42);
    let wrong = place.onward(&["runs", "fork", &id, "--from", "nothing"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("\"load\""), "{}", wrong.stderr);
    worker.shutdown().await.unwrap();
}
