//! The bank's own check: books that do not add up are found.

use onward_chaos::{bank, server};
use onward_crash::flow;

/// One payment of the first run, as its step makes it, and what goes wrong with it.
const PAID: &str = "
insert into bank.payments values ('r/move the money', 0, 1, 1);
update bank.accounts set cents = cents - 1 where id = 0;
update bank.accounts set cents = cents + 1 where id = 1;";

#[tokio::test]
async fn books_that_do_not_add_up_are_found() {
    let shared = server::shared_url().unwrap();
    let database = format!("onward_bank_{}", std::process::id());
    let admin = server::connect(&shared).await.unwrap();
    admin.batch_execute(&format!("create database {database}")).await.unwrap();
    let url = server::url_at(&shared, None, Some(&database));
    let client = server::connect(&url).await.unwrap();
    bank::open(&client).await.unwrap();
    let wanted = flow::round_of(&[bank::PAYMENT], 0, 1);
    let wrong = async || bank::check(&client, &wanted).await.unwrap().len();

    assert_eq!(wrong().await, 3, "the payment is not made: the books and both accounts");
    client.batch_execute(PAID).await.unwrap();
    assert_eq!(wrong().await, 0);
    client.batch_execute(PAID).await.unwrap();
    assert_eq!(wrong().await, 3, "it is made twice");
    client.batch_execute("delete from bank.payments where ctid = '(0,2)'").await.unwrap();
    assert_eq!(wrong().await, 2, "it is made twice, and in the books once");
    admin.batch_execute(&format!("drop database {database} with (force)")).await.unwrap();
}
