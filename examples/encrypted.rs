//! A medical report that nobody reads in the database: its payloads are compressed and encrypted, and
//! its key is changed while a run is under way.
//!
//! `cargo run -p onward --features compression,encryption --example encrypted`
//!
//! The keys of this example are made up on the spot. In a program of yours they come from a file that
//! only it can read: `KeyRing::from_file("/run/secrets/onward")`.

use onward::codec::{Compression, Encryption, KeyRing, SecretKey};
use onward::{Ctx, Failure, Onward, Workflow, codec};

const REPORT: Workflow<String, String> = Workflow::named("report");

async fn report(ctx: Ctx, patient: String) -> Result<String, Failure> {
    let finding = ctx.step("examine", async |_| examine(&patient).await).await?;
    ctx.signal::<()>("released").await?;
    ctx.step("write", async |_| write(&patient, &finding).await).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("onward.db").display());
    let (may, june) = (SecretKey::new([5; 32]), SecretKey::new([6; 32]));
    let fingerprints = SecretKey::new([1; 32]);

    // In May everything is encrypted with the key of May.
    let ring = KeyRing::new("may", &may, fingerprints.clone())?;
    let onward = open(&url, ring).await?;
    let worker = onward.worker().serve(REPORT, report).start().await?;
    let run = onward.start(REPORT, &"Ada".to_owned()).key("visit-7").await?.id();
    while onward.run(run).history().await?.is_empty() {
        tokio::task::yield_now().await;
    }
    worker.shutdown().await?;

    // Whoever looks without the keys sees what happened, and nothing of what it was about.
    let curious = Onward::open(&url).await?;
    let seen = curious.run(run).status().await?;
    let input = codec::describe(&seen.input).unwrap_or_default();
    println!("without a key: {} is {}, its input is {input}", seen.workflow, seen.state);

    // In June the key of June is current. That of May is kept to read with.
    let ring = KeyRing::new("june", &june, fingerprints)?.and("may", &may)?;
    let onward = open(&url, ring).await?;
    let worker = onward.worker().serve(REPORT, report).start().await?;
    let again = onward.start(REPORT, &"Ada".to_owned()).key("visit-7").await?;
    assert_eq!(again.id(), run, "the same visit, whatever it is encrypted with");
    again.signal("released", &()).await?;
    println!("with both keys: {}", again.result().await?);
    worker.shutdown().await?;
    Ok(())
}

async fn open(url: &str, ring: KeyRing) -> Result<Onward, onward::Error> {
    let open = Onward::open(url).codec(Compression::new());
    open.codec(Encryption::new(ring)).await
}

async fn examine(patient: &str) -> Result<String, std::io::Error> {
    Ok(format!("{patient} is as fit as a fiddle"))
}

async fn write(patient: &str, finding: &str) -> Result<String, std::io::Error> {
    Ok(format!("Dear {patient}: {finding}."))
}
