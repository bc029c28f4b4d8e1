//! The bank: transfers between accounts in the same database, each of which must happen once.
//!
//! Owns: the accounts, the workflow that moves the money, and the sum that must come out. A
//! transfer that happened twice, or half, shows in the balances whatever the store says.

use std::sync::Arc;

use onward::{Ctx, Failure, WorkerBuilder, Workflow};
use onward_crash::effect::{Pen, Times};
use onward_crash::flow::{Input, Output};
use tokio_postgres::Client;

use crate::server;

/// Moves money: the run's number says from whom, to whom and how much.
pub const TRANSFER: Workflow<Input, Output> = Workflow::named("transfer");

const ACCOUNTS: i64 = 10;

/// What every account begins with.
const CENTS: i64 = 1_000_000;

const OPEN: &str = "
create schema bank;
create table bank.accounts (id bigint primary key, cents bigint not null);
create table bank.transfers (
    step_id text primary key,
    payer bigint not null,
    payee bigint not null,
    cents bigint not null
);";

/// Makes the accounts.
///
/// # Errors
/// When the server refuses it.
pub async fn open(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(OPEN).await?;
    let add = "insert into bank.accounts select i, $2 from generate_series(0, $1::bigint - 1) i";
    client.execute(add, &[&ACCOUNTS, &CENTS]).await.map(drop)
}

/// Transfers to start.
pub fn round(transfers: u32) -> Vec<(Workflow<Input, Output>, Input)> {
    let transfer = |number| {
        let key = format!("transfer-0-{number}");
        (TRANSFER, Input { key, number: u64::from(number), laps: 0 })
    };
    (0..transfers).map(transfer).collect()
}

/// A transfer, as its run's number says.
struct Transfer {
    payer: i64,
    payee: i64,
    cents: i64,
}

impl Transfer {
    fn of(input: &Input) -> Self {
        let number = i64::try_from(input.number).unwrap_or_default();
        let payer = number % ACCOUNTS;
        let payee = (payer + 1 + number / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS;
        Self { payer, payee, cents: 1 + number % 50 }
    }
}

/// Serves the transfers.
pub fn serve(worker: WorkerBuilder, url: &str, pen: &Pen) -> WorkerBuilder {
    let (url, pen) = (Arc::<str>::from(url), pen.clone());
    worker.serve(TRANSFER, move |ctx, input| transfer(ctx, Arc::clone(&url), pen.clone(), input))
}

async fn transfer(ctx: Ctx, url: Arc<str>, pen: Pen, input: Input) -> Result<Output, Failure> {
    let checked = ctx.step("check", async |step| {
        pen.write(&input.key, &step, Times::AtLeastOnce)?;
        Ok::<_, Failure>(())
    });
    checked.await?;
    let moved = ctx.step("move the money", async |step| {
        pen.write(&input.key, &step, Times::AtLeastOnce)?;
        let mut client = server::connect(&url).await?;
        move_money(&mut client, step.id(), &Transfer::of(&input)).await?;
        Ok::<_, Failure>(())
    });
    // The connection is cut again and again; how often is the storm's affair.
    moved.retry(onward::Retry::fixed(onward_crash::flow::LINGER * 5).tries(1_000)).await?;
    Ok(Output { total: input.number, way: String::new() })
}

/// Moves the money once for each step id, as a bank does that takes an idempotency key.
async fn move_money(
    client: &mut Client,
    step_id: &str,
    transfer: &Transfer,
) -> Result<(), tokio_postgres::Error> {
    let Transfer { payer, payee, cents } = transfer;
    let tx = client.transaction().await?;
    let note = "insert into bank.transfers values ($1, $2, $3, $4) on conflict do nothing";
    if tx.execute(note, &[&step_id, payer, payee, cents]).await? == 1 {
        let pay = "update bank.accounts set cents = cents + $2 where id = $1";
        // In the order of the accounts, so that two transfers never wait for each other.
        let mut sides = [(payer, -cents), (payee, *cents)];
        sides.sort();
        for (account, cents) in sides {
            tx.execute(pay, &[account, &cents]).await?;
        }
    }
    tx.commit().await
}

/// What is wrong with the books.
///
/// # Errors
/// When the server does not answer.
pub async fn check(
    client: &Client,
    wanted: &[(Workflow<Input, Output>, Input)],
) -> Result<Vec<String>, tokio_postgres::Error> {
    let mut wrong = Vec::new();
    let transfers = wanted.iter().filter(|(_, input)| input.key.starts_with(TRANSFER.name()));
    let mut balances = vec![CENTS; usize::try_from(ACCOUNTS).unwrap_or_default()];
    let (mut count, at) = (0_i64, |account: i64| usize::try_from(account).unwrap_or_default());
    for (_, input) in transfers {
        let Transfer { payer, payee, cents } = Transfer::of(input);
        balances[at(payer)] -= cents;
        balances[at(payee)] += cents;
        count += 1;
    }
    let noted: i64 = client.query_one("select count(*) from bank.transfers", &[]).await?.get(0);
    if noted != count {
        wrong.push(format!("{noted} transfers are in the books, {count} were ordered"));
    }
    for row in client.query("select id, cents from bank.accounts order by id", &[]).await? {
        let (account, cents): (i64, i64) = (row.get(0), row.get(1));
        let right = balances[at(account)];
        if cents != right {
            wrong.push(format!("account {account} has {cents} cents and should have {right}"));
        }
    }
    Ok(wrong)
}
