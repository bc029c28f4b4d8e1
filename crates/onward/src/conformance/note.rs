//! Notes: what runs write on themselves, under their holder's lease.

use super::stage::*;
use crate::limits::LOG_LINES_MAX;
use crate::store::{End, Error, Filter, Note, Notebook, Prune, Query};
use crate::{LogLine, Noted, RunId, RunProgress};

fn notebook(stage: &Stage) -> &dyn Notebook {
    stage.store.notebook().unwrap()
}

fn line(stage: &Stage, no: u64, text: &str) -> LogLine {
    let (at, text) = (stage.now(), text.to_owned());
    LogLine { no, at, step: None, try_number: None, text }
}

fn note(stage: &Stage, lines: &[(u64, &str)]) -> Note {
    let lines = lines.iter().map(|(no, text)| line(stage, *no, text)).collect();
    Note { lines, ..Note::default() }
}

async fn texts(stage: &Stage, run: RunId) -> Vec<String> {
    let page = notebook(stage).log(run, 0, 100).await.unwrap();
    page.lines.into_iter().map(|line| line.text).collect()
}

async fn tagged(stage: &Stage, name: &str, value: &str) -> Vec<RunId> {
    let tags = [(name.to_owned(), value.to_owned())].into();
    let query = Query { filter: Filter { tags, ..Filter::default() }, before: None, limit: 10 };
    stage.store.list(query).await.unwrap().runs.iter().map(|run| run.id).collect()
}

/// All that is noted is shown, and is known to the next holder.
pub async fn notes_are_kept_as_written(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let of_body = LogLine {
        step: Some("pay".to_owned()),
        try_number: Some(2),
        ..line(stage, 2, "declined \u{2603}")
    };
    let progress = RunProgress { done: 3, total: 10, at: stage.now() };
    let written = Note {
        lines: vec![line(stage, 1, "begins"), of_body],
        progress: Some(progress),
        tags: [("tenant".to_owned(), "acme".to_owned())].into(),
        noted: Noted { seq: 4, calls: 2 },
    };
    notebook(stage).note(lease, written.clone()).await.unwrap();
    let page = notebook(stage).log(lease.run, 0, 10).await.unwrap();
    assert_eq!((page.lines, page.more), (written.lines, false));
    let run = stage.run(lease.run).await;
    assert_eq!((run.progress(), run.notes.log_lines), (Some(progress), 2));
    stage.settle(lease, End::Released).await.unwrap();
    let claimed = worker.take_whole(lease.run).await;
    assert_eq!(claimed.run.notes.noted, Noted { seq: 4, calls: 2 });
    assert_eq!(claimed.run.tags["tenant"], "acme");
}

/// A note that is repeated changes nothing; one that goes on adds the rest.
pub async fn note_twice(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let first = note(stage, &[(1, "a"), (2, "b")]);
    super::lost_answer::repeated(stage, |store| store.note(lease, first.clone())).await;
    notebook(stage).note(lease, note(stage, &[(2, "b"), (3, "c")])).await.unwrap();
    assert_eq!(texts(stage, lease.run).await, ["a", "b", "c"]);
    assert_eq!(stage.run(lease.run).await.notes.log_lines, 3);
}

/// Who lost the run notes nothing more; a repeat of what it had noted is known.
pub async fn note_with_stale_lease(stage: &Stage) {
    let (old, new) = (stage.worker().await, stage.worker().await);
    let lease = stage.running(&old).await;
    let noted = note(stage, &[(1, "a")]);
    notebook(stage).note(lease, noted.clone()).await.unwrap();
    stage.lose(&old, &new).await;
    let before = stage.snapshot().await;
    assert_lost(notebook(stage).note(lease, note(stage, &[(2, "late")])).await);
    assert_lost(notebook(stage).note(lease, note(stage, &[(1, "other")])).await);
    let tags = [("tenant".to_owned(), "acme".to_owned())].into();
    assert_lost(notebook(stage).note(lease, Note { tags, ..Note::default() }).await);
    notebook(stage).note(lease, noted).await.unwrap();
    stage.assert_unchanged(&before).await;
    let held = new.take(lease.run).await;
    assert_lost(notebook(stage).note(lease, note(stage, &[(2, "late")])).await);
    notebook(stage).note(held, note(stage, &[(2, "mine")])).await.unwrap();
    assert_eq!(texts(stage, lease.run).await, ["a", "mine"]);
}

/// A run that has ended or waits takes no notes, and keeps those that it has.
pub async fn ended_run_takes_no_notes(stage: &Stage) {
    let worker = stage.worker().await;
    for end in [End::Completed(json(1)), failed_at("pay"), parked(0), End::Released] {
        let lease = stage.running(&worker).await;
        notebook(stage).note(lease, note(stage, &[(1, "a")])).await.unwrap();
        stage.settle(lease, end).await.unwrap();
        let before = stage.snapshot().await;
        assert_lost(notebook(stage).note(lease, note(stage, &[(2, "late")])).await);
        stage.assert_unchanged(&before).await;
        assert_eq!(texts(stage, lease.run).await, ["a"]);
        if !stage.state(lease.run).await.is_final() {
            stage.store.cancel(lease.run).await.unwrap();
        }
    }
    let unknown = notebook(stage).log(RunId::new(), 0, 10).await;
    assert!(matches!(unknown, Err(Error::NotFound)), "{unknown:?}");
}

/// A tag that a run sets is listed by, and the value that it had is not any more.
pub async fn changed_tags_are_listed_by(stage: &Stage) {
    let worker = stage.worker().await;
    let tags = [("tenant".to_owned(), "acme".to_owned()), ("kind".to_owned(), "pdf".to_owned())];
    let run = stage.start(crate::store::NewRun { tags: tags.into(), ..new_run() }).await;
    let lease = worker.take(run).await;
    let set = |value: &str| {
        let tags = [("tenant".to_owned(), value.to_owned())].into();
        Note { tags, ..Note::default() }
    };
    notebook(stage).note(lease, set("apex")).await.unwrap();
    assert_eq!(tagged(stage, "tenant", "acme").await, []);
    assert_eq!(tagged(stage, "tenant", "apex").await, [run]);
    assert_eq!(tagged(stage, "kind", "pdf").await, [run]);
    let before = stage.snapshot().await;
    notebook(stage).note(lease, set("apex")).await.unwrap();
    stage.assert_unchanged(&before).await;
    assert_eq!(before.runs[0].tags.len(), 2);
}

/// Of a log the last lines are kept.
pub async fn log_is_bounded(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    let most = LOG_LINES_MAX as u64;
    let lines = |numbers: std::ops::RangeInclusive<u64>| Note {
        lines: numbers.map(|no| line(stage, no, &no.to_string())).collect(),
        ..Note::default()
    };
    notebook(stage).note(lease, lines(1..=most)).await.unwrap();
    notebook(stage).note(lease, lines(most + 1..=most + 3)).await.unwrap();
    let page = notebook(stage).log(lease.run, 0, LOG_LINES_MAX).await.unwrap();
    assert_eq!((page.lines.len(), page.more), (LOG_LINES_MAX, false));
    assert_eq!(page.lines[0].text, "4", "the first three are forgotten");
    assert_eq!(stage.run(lease.run).await.notes.log_lines, most + 3);
}

/// A log comes in pages, in order.
pub async fn log_comes_in_pages(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    notebook(stage).note(lease, note(stage, &[(1, "a"), (2, "b"), (3, "c")])).await.unwrap();
    let first = notebook(stage).log(lease.run, 0, 2).await.unwrap();
    assert_eq!((first.lines.len(), first.more), (2, true));
    let rest = notebook(stage).log(lease.run, 2, 2).await.unwrap();
    assert_eq!((rest.lines[0].text.as_str(), rest.more), ("c", false));
}

/// A prune takes the log along.
pub async fn prune_takes_the_log_along(stage: &Stage) {
    let worker = stage.worker().await;
    let lease = stage.running(&worker).await;
    notebook(stage).note(lease, note(stage, &[(1, "a")])).await.unwrap();
    stage.settle(lease, End::Completed(json(1))).await.unwrap();
    stage.pass(10);
    let prune = Prune::older_than(std::time::Duration::from_millis(1));
    assert_eq!(stage.store.prune(prune).await.unwrap().runs, 1);
    let gone = notebook(stage).log(lease.run, 0, 10).await;
    assert!(matches!(gone, Err(Error::NotFound)), "{gone:?}");
}
