//! Changing keys: a run goes on over the change, and what was written before stays readable.

use onward::store::MemoryStore;
use onward::{Overlap, RunState};

use super::*;

const TWICE: Workflow<String, String> = Workflow::named("twice");

async fn twice(ctx: Ctx, text: String) -> Result<String, Failure> {
    let first = ctx.step("first", async |_| Ok::<_, Failure>(format!("{text} 1"))).await?;
    ctx.signal::<()>("go").await?;
    let second = ctx.step("second", async |_| Ok::<_, Failure>(format!("{text} 2"))).await?;
    Ok(format!("{first}, {second}"))
}

#[tokio::test]
async fn a_run_goes_on_over_a_change_of_keys() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let old = client(&store, &[1]);
    let worker = old.worker().serve(TWICE, twice).start().await.unwrap();
    let run = old.start(TWICE, &"part".to_owned()).key("run-1").await.unwrap().id();
    until("the first step", async || old.run(run).history().await.unwrap().len() == 1).await;
    worker.shutdown().await.unwrap();

    let new = client(&store, &[2, 1]);
    let again = new.start(TWICE, &"part".to_owned()).key("run-1").await.unwrap();
    assert_eq!(again.id(), run, "the same input after the change");
    let worker = new.worker().serve(TWICE, twice).start().await.unwrap();
    new.run(run).signal("go", &()).await.unwrap();
    let ended = new.run(run).ended().await.unwrap();
    assert_eq!(ended.state, RunState::Completed);
    assert_eq!(ended.output.unwrap().as_str(), "\"part 1, part 2\"");
    worker.shutdown().await.unwrap();

    let stored = Onward::with_store(store).run(run).history().await.unwrap();
    let keys: Vec<_> = stored.iter().map(|record| format!("{:?}", record.entry)).collect();
    assert!(keys[0].contains("\"key\":\"k1\""), "{keys:?}");
    assert!(keys.last().unwrap().contains("\"key\":\"k2\""), "{keys:?}");
}

#[tokio::test]
async fn a_schedule_is_put_again_over_a_change_of_keys_and_stays_what_it_is() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let put = async |onward: &Onward, json: &str| {
        let input: serde_json::Value = serde_json::from_str(json).unwrap();
        let any: Workflow<serde_json::Value, ()> = Workflow::named("any");
        let setup = onward.schedule("nightly").every(Duration::from_secs(3_600));
        setup.overlap(Overlap::Allow).start(any, &input).await.unwrap();
        onward.schedule("nightly").status().await.unwrap()
    };
    let (old, new) = (client(&store, &[1]), client(&store, &[2, 1]));
    let first = put(&old, r#"{"a":1,"b":[2]}"#).await;
    assert_eq!(first.generation, 1);
    assert_eq!(put(&new, r#"{"b":[2.0],"a":1}"#).await, first, "written in another way");
    assert_eq!(put(&new, r#"{"a":2}"#).await.generation, 2);
    let run = new.schedule("nightly").trigger().await.unwrap().run().unwrap();
    assert_eq!(new.run(run).status().await.unwrap().input.as_str(), r#"{"a":2}"#);
}

#[tokio::test]
async fn a_copy_is_made_without_keys_and_read_with_them() {
    let (from, to): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let with = client(&from, &[1]);
    let run = with.start(ECHO, &"hello".to_owned()).key("run-1").await.unwrap().id();
    with.once("mail").run(async || Ok::<_, Failure>(7_u32)).await.unwrap();
    let setup = with.schedule("nightly").every(Duration::from_secs(3_600));
    setup.start(ECHO, &"hello".to_owned()).await.unwrap();

    let plain = Onward::with_store(Arc::clone(&to));
    assert!(Onward::with_store(Arc::clone(&from)).copy_to(&plain).await.unwrap().verified);
    // Again, by somebody who has another key: nothing is decoded or encoded on the way.
    let again = client(&from, &[2]).copy_to(&client(&to, &[3])).await.unwrap();
    assert_eq!((again.copied, again.existing), (0, 1));

    let copy = client(&to, &[1]);
    assert_eq!(copy.run(run).status().await.unwrap().input.as_str(), "\"hello\"");
    assert_eq!(copy.start(ECHO, &"hello".to_owned()).key("run-1").await.unwrap().id(), run);
    let once = copy.once("mail").run(async || Ok::<_, Failure>(8_u32)).await.unwrap();
    assert_eq!(once, 7);
    let schedule = copy.schedule("nightly").status().await.unwrap();
    assert_eq!(schedule.input.as_str(), "\"hello\"");
}

#[tokio::test]
async fn keys_that_are_elsewhere_are_encoded_too() {
    let (runs, shared) = (File::new(), File::new());
    let open = || Onward::open(&runs.url()).keys(shared.url()).codec(Encryption::new(ring(&[1])));
    let onward = open().await.unwrap();
    let once =
        onward.once("mail").run(async || Ok::<_, Failure>("canary once".to_owned())).await.unwrap();
    assert_eq!(once, "canary once");
    let made = Arc::new(MemoryStore::new());
    let with = onward.with_keys(made.clone());
    with.once("mail").run(async || Ok::<_, Failure>("canary made".to_owned())).await.unwrap();
    assert!(!holds(&shared.bytes(), "canary"));
    let stored = Onward::with_store(made).step_key("mail").await.unwrap().unwrap();
    assert!(!stored.result.unwrap().as_str().contains("canary"));
    let once =
        open().await.unwrap().once("mail").run(async || Ok::<_, Failure>("no".to_owned())).await;
    assert_eq!(once.unwrap(), "canary once");
}
