//! A process that dies right after its commit, before it told anybody.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onward::RunState;
use onward_crash::flow::{self, Input};

use super::stage::{Stage, until, within};

/// How long another process may take to notice.
const NOTICE_TIME: Duration = Duration::from_secs(30);

/// A worker process that kills itself at a failpoint.
struct Doomed {
    child: Child,
    folder: tempfile::TempDir,
}

impl Doomed {
    fn spawn(stage: &Stage, failpoint: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_onward-chaos"));
        command.arg("worker").arg(stage.url()).arg(folder.path().join("effects"));
        command.args(["1", "1000"]).env("ONWARD_FAILPOINT", failpoint);
        let child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, folder }
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.folder.path();
    }
}

#[tokio::test]
async fn result_is_heard_of_though_the_worker_died_before_it_told() {
    let stage = Stage::shared().await;
    let mut doomed = Doomed::spawn(&stage, "settle.after_commit");
    let input = Input { key: "vigil-0-1".to_owned(), number: 1, laps: 0 };
    let run = flow::start(&stage.straight, flow::VIGIL, &input).await.unwrap();
    let looking = stage.straight.run(run.id());
    let waiting = tokio::spawn(async move { run.result().await });
    until("it has died", || {
        let died = doomed.child.try_wait().unwrap().is_some();
        async move { died }
    })
    .await;
    assert_eq!(looking.status().await.unwrap().state, RunState::Completed);
    let heard = within(NOTICE_TIME, "the result is heard of", waiting).await.unwrap();
    assert!(flow::is_expected(&input, &heard.unwrap()));
}
