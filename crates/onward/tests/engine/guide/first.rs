//! Parts of the guide, each with what it needs to compile: its first half.
//!
//! Owns: code that stands in `docs/guide.md` line by line, with the stage around it. Never formatted: the
//! page has it as it is.

#[rustfmt::skip]
mod a_first_program {
    use std::time::Duration;

    use onward::{Ctx, Failure, Onward, Workflow};
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Order {
        id: u64,
        cents: u64,
    }

    const SHIP: Workflow<Order, String> = Workflow::named("ship");

    async fn ship(ctx: Ctx, order: Order) -> Result<String, Failure> {
        let receipt = ctx.step("charge", async |step| charge(step.id(), order.cents).await).await?;
        ctx.step("send parcel", async |step| send_parcel(step.id(), &receipt).await).await
    }

    /// Stands for a call over the network, which takes the step's id as its idempotency key.
    async fn charge(key: &str, cents: u64) -> Result<String, std::io::Error> {
        println!("charging {cents} cents ({key})");
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(format!("receipt for {cents} cents"))
    }

    async fn send_parcel(key: &str, receipt: &str) -> Result<String, std::io::Error> {
        println!("sending the parcel ({key})");
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(format!("on its way, with a {receipt}"))
    }

    #[tokio::main]
    async fn main() -> Result<(), onward::Error> {
        let onward = Onward::open("sqlite:onward.db").await?;
        let worker = onward.worker().serve(SHIP, ship).start().await?;

        let order = Order { id: 7, cents: 4200 };
        let run = onward.start(SHIP, &order).key(format!("order-{}", order.id)).await?;
        println!("{}", run.result().await?);

        worker.shutdown().await
    }
}

#[rustfmt::skip]
mod steps_and_their_ids {
    use onward::{Ctx, Failure};

    async fn charge(_key: &str, _cents: u64) -> Result<String, std::io::Error> { Ok("r1".into()) }
    async fn pay(ctx: Ctx, cents: u64) -> Result<String, Failure> {
        ctx.step("charge", async |step| charge(step.id(), cents).await).await
    }
}

#[rustfmt::skip]
mod steps_and_their_ids_2 {
    use onward::{Ctx, Failure};
    async fn save(_: &u64) -> Result<(), std::io::Error> { Ok(()) }
    async fn save_all(ctx: Ctx, items: Vec<u64>) -> Result<(), Failure> {
        for item in &items {
            ctx.step("save", |_| save(item)).id(item).await?;
        }
        Ok(())
    }
}

#[rustfmt::skip]
mod steps_and_their_ids_3 {
    use onward::{Ctx, Failure};
    async fn fetch(_: &str) -> Result<String, std::io::Error> { Ok("7".into()) }
    async fn price(ctx: Ctx, url: String) -> Result<u32, Failure> {
        let parsed = ctx.step("fetch and parse", async |_| {
            let text = fetch(&url).await?;
            let price: u32 = text.parse()?;
            Ok::<_, Failure>(price)
        });
        let price = parsed.await?;
        let owned = ctx.step("fetch again", move |_| {
            let url = url.clone();
            async move { fetch(&url).await }
        });
        owned.await?;
        Ok(price)
    }
}

#[rustfmt::skip]
mod retries_and_failures {
    use std::time::Duration;
    use onward::{Ctx, Failure, Retry};
    async fn ocr(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
    async fn charge(_: &str) -> Result<u16, std::io::Error> { Ok(200) }
    async fn index(ctx: Ctx, file: String) -> Result<String, Failure> {
        let text = ctx.step("ocr", |_| ocr(&file))
            .retry(Retry::exponential(Duration::from_millis(200)).tries(8))
            .timeout(Duration::from_secs(30)) // for each try
            .await?;

        let charged = ctx.step("charge", async |step| match charge(step.id()).await? {
            402 => Err(Failure::fatal("the bank said no").code("card_declined")),
            429 => Err(Failure::retry_after(Duration::from_secs(60), "rate limited")),
            status => Ok(status),
        });
        match charged.await {
            Ok(_) => Ok(text),
            Err(failure) if failure.is("card_declined") => Ok("unpaid".to_owned()),
            Err(failure) => Err(failure),
        }
    }
}

#[rustfmt::skip]
mod when_a_second_execution_would_do_harm {
    use onward::{Ctx, Failure};
    async fn send_fax(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    async fn ask_operator(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    async fn fax(ctx: Ctx, number: String) -> Result<(), Failure> {
        match ctx.step("send fax", |_| send_fax(&number)).at_most_once().await {
            Err(failure) if failure.is("interrupted") => {
                ctx.step("ask operator", |_| ask_operator(&number)).await
            }
            sent => sent,
        }
    }
}

#[rustfmt::skip]
mod exactly_once_in_the_database {
    use onward::{Ctx, Failure};
    use serde::{Deserialize, Serialize};
    #[derive(Clone, Serialize, Deserialize)] struct Transfer { from: u32, to: u32, cents: i64 }
    async fn transfer(ctx: Ctx, order: Transfer) -> Result<i64, Failure> {
        let moved = ctx.sqlite_transaction("move the money", move |db, _step| {
            let add = "update accounts set cents = cents + ?1 where id = ?2 returning cents";
            let left: i64 = db.query_row(add, (-order.cents, order.from), |row| row.get(0))?;
            if left < 0 {
                return Err(Failure::fatal("too little money").code("overdrawn"));
            }
            db.query_row(add, (order.cents, order.to), |_| Ok(()))?;
            Ok(left)
        });
        moved.await
    }
}

#[rustfmt::skip]
mod sleeping {
    use std::time::Duration;
    use onward::{Ctx, Failure};
    async fn send(_: &str) -> Result<(), std::io::Error> { Ok(()) }
    async fn remind(ctx: Ctx, user: String) -> Result<(), Failure> {
        ctx.sleep(Duration::from_secs(3 * 24 * 60 * 60)).await;
        ctx.step("send", |_| send(&user)).await
    }
}

#[rustfmt::skip]
mod waiting_for_the_world_outside {
    use std::time::Duration;
    use onward::{Ctx, Failure, Onward, Workflow};

    const EXPENSE: Workflow<u64, String> = Workflow::named("expense");

    async fn expense(ctx: Ctx, cents: u64) -> Result<String, Failure> {
        let week = Duration::from_secs(7 * 24 * 60 * 60);
        match ctx.signal::<bool>("approved").timeout(week).await? {
            Some(true) => Ok(format!("{cents} cents paid")),
            Some(false) => Ok("refused".to_owned()),
            None => Ok("nobody answered".to_owned()),
        }
    }

    #[tokio::test]
    async fn executes() -> Result<(), onward::Error> {
        let onward = Onward::open("memory:").await?;
        let worker = onward.worker().serve(EXPENSE, expense).start().await?;
        let run = onward.start(EXPENSE, &4200).key("expense-7").await?;
        run.signal("approved", &true).key("click-1").await?;
        assert_eq!(run.result().await?, "4200 cents paid");
        worker.shutdown().await
    }
}

#[rustfmt::skip]
mod runs_that_start_runs {
    use onward::{Ctx, Failure, Onward, Workflow};

    const PAGE: Workflow<u32, u32> = Workflow::named("ocr-page");
    const BOOK: Workflow<Vec<u32>, u32> = Workflow::named("ocr-book");

    async fn page(_: Ctx, number: u32) -> Result<u32, Failure> {
        Ok(number * 100) // characters
    }

    async fn book(ctx: Ctx, pages: Vec<u32>) -> Result<u32, Failure> {
        let pages = pages.iter().map(|number| ctx.start(PAGE, number).result());
        Ok(futures::future::try_join_all(pages).await?.iter().sum())
    }

    #[tokio::test]
    async fn executes() -> Result<(), onward::Error> {
        let onward = Onward::open("memory:").await?;
        let worker = onward.worker().serve(PAGE, page).serve(BOOK, book).start().await?;
        assert_eq!(onward.start(BOOK, &vec![1, 2, 3]).await?.result().await?, 600);
        worker.shutdown().await
    }
}

#[rustfmt::skip]
mod several_things_at_once {
    use std::time::Duration;
    use onward::{Ctx, Failure};
    async fn fetch(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
    async fn gather(ctx: Ctx, urls: Vec<String>) -> Result<Vec<String>, Failure> {
        let pages = urls.iter().map(|url| ctx.step("fetch", move |_| fetch(url)));
        let all = futures::future::try_join_all(pages);
        tokio::select! {
            pages = all => pages,
            () = ctx.sleep(Duration::from_secs(60)) => Err(Failure::fatal("too slow")),
        }
    }
}
