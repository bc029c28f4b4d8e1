//! Somebody who can write to the database: nothing that they change is taken for what it was.

use onward::{Code, RunState, Waits};

use super::*;

async fn two_runs(file: &File, strict: bool) -> (Onward, [onward::RunId; 2]) {
    let encryption = Encryption::new(ring(&[1]));
    let encryption = if strict { encryption.refuse_plain() } else { encryption };
    let onward = Onward::open(&file.url()).codec(encryption).await.unwrap();
    let one = onward.start(ECHO, &"one cent".to_owned()).await.unwrap().id();
    let two = onward.start(ECHO, &"two million".to_owned()).await.unwrap().id();
    (onward, [one, two])
}

async fn details(onward: &Onward, run: onward::RunId) -> String {
    let mut detail = String::new();
    until("the run waits", async || match onward.run(run).status().await.unwrap().waits_for {
        Some(Waits::Readable { detail: found }) => {
            detail = found;
            true
        }
        _ => false,
    })
    .await;
    detail
}

#[tokio::test]
async fn two_inputs_that_were_exchanged_are_both_refused() {
    let file = File::new();
    let (onward, runs) = two_runs(&file, false).await;
    let swap = "update onward_inputs set input = other.input from onward_inputs other \
                where other.no <> onward_inputs.no";
    assert_eq!(file.sql().execute(swap, ()).unwrap(), 2);
    let worker = onward.worker().serve(ECHO, echo).start().await.unwrap();
    for run in runs {
        let detail = details(&onward, run).await;
        assert!(detail.contains("the input") && detail.contains("another place"), "{detail}");
    }
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_changed_record_stops_its_run_and_no_other() {
    const PAUSED: Workflow<String, String> = Workflow::named("paused");
    async fn paused(ctx: Ctx, text: String) -> Result<String, Failure> {
        let said = ctx.step("say", async |_| Ok::<_, Failure>(text.clone())).await?;
        ctx.signal::<()>("go").await?;
        Ok(said)
    }
    let file = File::new();
    let onward = Onward::open(&file.url()).codec(Encryption::new(ring(&[1]))).await.unwrap();
    let worker = onward.worker().serve(PAUSED, paused).start().await.unwrap();
    let mut runs = Vec::new();
    for text in ["one", "two"] {
        let run = onward.start(PAUSED, &text.to_owned()).key(text).await.unwrap();
        until("a record", async || run.history().await.unwrap().len() == 1).await;
        runs.push(run);
    }
    worker.shutdown().await.unwrap();
    let change = "update onward_records set body = replace(body, '\"data\":\"', '\"data\":\"AAAA') \
                  where run = (select no from onward_runs where key = 'one')";
    assert_eq!(file.sql().execute(change, ()).unwrap(), 1);
    for run in &runs {
        run.signal("go", &()).await.unwrap();
    }
    let worker = onward.worker().serve(PAUSED, paused).start().await.unwrap();
    assert_eq!(runs[1].result().await.unwrap(), "two");
    let detail = details(&onward, runs[0].id()).await;
    assert!(detail.contains("of step \"say\"") && detail.contains("it was changed"), "{detail}");
    assert_eq!(runs[0].status().await.unwrap().state, RunState::Waiting);
    worker.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_plain_output_in_the_place_of_an_encrypted_one_is_no_result() {
    let file = File::new();
    let (onward, [run, other]) = two_runs(&file, true).await;
    let worker = onward.worker().serve(ECHO, echo).start().await.unwrap();
    for run in [run, other] {
        onward.run(run).ended().await.unwrap();
    }
    worker.shutdown().await.unwrap();
    let change = "update onward_outputs set output = '\"a plain lie\"'";
    file.sql().execute(change, ()).unwrap();
    let output = onward.run(run).ended().await.unwrap().output.unwrap();
    let error = output.read::<String>().unwrap_err();
    assert_eq!(error.code(), Code::PayloadUnreadable);
    assert!(error.to_string().contains("stored plainly"), "{error}");
}

#[tokio::test]
async fn a_plain_input_in_the_place_of_an_encrypted_one_is_refused_where_that_is_asked() {
    for strict in [false, true] {
        let file = File::new();
        let (onward, [run, _]) = two_runs(&file, strict).await;
        let change = "update onward_inputs set input = '\"a plain lie\"'";
        file.sql().execute(change, ()).unwrap();
        let worker = onward.worker().serve(ECHO, echo).start().await.unwrap();
        if strict {
            let detail = details(&onward, run).await;
            assert!(detail.contains("plain payloads are refused"), "{detail}");
        } else {
            let output = onward.run(run).ended().await.unwrap().output.unwrap();
            assert_eq!(output.as_str(), "\"a plain lie!\"");
        }
        worker.shutdown().await.unwrap();
    }
}
