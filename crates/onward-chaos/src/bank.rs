//! The bank: payments between accounts in the store's own database, each in a transactional step.
//!
//! Owns: the accounts, the workflow that moves the money, and the sums that must come out. Nothing
//! in its tables keeps a payment from happening twice; that is the store's promise. One that
//! happened twice, or half, shows in the balances whatever the store says.

use onward::{Ctx, Failure, Retry, WorkerBuilder, Workflow};
use onward_crash::effect::{Effect, Pen, Times};
use onward_crash::flow::{Input, LINGER, Output};
use tokio_postgres::Client;

/// Moves money: the run's number says from whom, to whom and how much.
pub const PAYMENT: Workflow<Input, Output> = Workflow::named("payment");

/// The transactional step.
const MOVE: &str = "move the money";

const ACCOUNTS: i64 = 10;

/// What every account begins with.
const CENTS: i64 = 1_000_000;

const OPEN: &str = "
create schema bank;
create table bank.accounts (id bigint primary key, cents bigint not null);
create table bank.payments (step_id text, payer bigint, payee bigint, cents bigint);";

/// Makes the accounts.
///
/// # Errors
/// When the server refuses it.
pub async fn open(client: &Client) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(OPEN).await?;
    let add = "insert into bank.accounts select i, $2 from generate_series(0, $1::bigint - 1) i";
    client.execute(add, &[&ACCOUNTS, &CENTS]).await.map(drop)
}

/// Whether a body is a transaction's.
pub fn is_transaction(effect: &Effect) -> bool {
    effect.step_id.ends_with(MOVE)
}

/// A payment, as its run's number says.
#[derive(Clone, Copy)]
struct Payment {
    payer: i64,
    payee: i64,
    cents: i64,
}

impl Payment {
    fn of(input: &Input) -> Self {
        let number = i64::try_from(input.number).unwrap_or_default();
        let payer = number % ACCOUNTS;
        let payee = (payer + 1 + number / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS;
        Self { payer, payee, cents: 1 + number % 50 }
    }

    /// Both accounts with what is added to them, in the order of the accounts, so that two payments
    /// never wait for each other.
    fn sides(self) -> [(i64, i64); 2] {
        let mut sides = [(self.payer, -self.cents), (self.payee, self.cents)];
        sides.sort_unstable();
        sides
    }
}

/// Serves the payments.
pub fn serve(worker: WorkerBuilder, pen: &Pen) -> WorkerBuilder {
    let pen = pen.clone();
    worker.serve(PAYMENT, move |ctx, input| pay(ctx, pen.clone(), input))
}

async fn pay(ctx: Ctx, pen: Pen, input: Input) -> Result<Output, Failure> {
    let checked = ctx.step("check", async |step| {
        pen.write(&input.key, &step, Times::AtLeastOnce)?;
        Ok::<_, Failure>(())
    });
    checked.await?;
    let total = input.number;
    let moved = ctx.postgres_transaction(MOVE, move |db, step| {
        let (pen, key, payment) = (pen.clone(), input.key.clone(), Payment::of(&input));
        async move {
            pen.write(&key, &step, Times::AtLeastOnce)?;
            let Payment { payer, payee, cents } = payment;
            let note = "insert into bank.payments values ($1, $2, $3, $4)";
            db.execute(note, &[&step.id(), &payer, &payee, &cents]).await?;
            let add = "update bank.accounts set cents = cents + $2 where id = $1";
            for (account, cents) in payment.sides() {
                db.execute(add, &[&account, &cents]).await?;
            }
            Ok::<_, Failure>(())
        }
    });
    // How often the connection is cut inside is the storm's affair.
    moved.retry(Retry::fixed(LINGER * 5).tries(1_000)).await?;
    Ok(Output { total, way: String::new() })
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
    let ordered = wanted.iter().filter(|(workflow, _)| workflow.name() == PAYMENT.name());
    let ordered: Vec<_> = ordered.map(|(_, input)| Payment::of(input)).collect();
    let count = "select count(*), count(distinct step_id) from bank.payments";
    let row = client.query_one(count, &[]).await?;
    let (noted, distinct): (i64, i64) = (row.get(0), row.get(1));
    if i64::try_from(ordered.len()) != Ok(noted) || noted != distinct {
        let ordered = ordered.len();
        wrong.push(format!("{ordered} payments ordered, {noted} made, {distinct} different ones"));
    }
    for row in client.query("select id, cents from bank.accounts order by id", &[]).await? {
        let (account, cents): (i64, i64) = (row.get(0), row.get(1));
        let sides = ordered.iter().flat_map(|payment| payment.sides());
        let moved: i64 = sides.filter(|(id, _)| *id == account).map(|(_, cents)| cents).sum();
        let right = CENTS + moved;
        if cents != right {
            wrong.push(format!("account {account} has {cents} cents and should have {right}"));
        }
    }
    Ok(wrong)
}
