//! What is particular to the Postgres store: its schema, its locks, its plans, its connections.
//! What every store must do is in the conformance suite.
//!
//! Most tests have a schema of their own in the tests' server; those that need a server with other
//! settings make a cluster of their own.
#![allow(clippy::unwrap_used, reason = "a test may panic, outside its own function too")]

mod database;

#[path = "postgres_store/cluster.rs"]
mod cluster;
#[path = "transaction/seat.rs"]
#[allow(dead_code, reason = "it is shared, and these tests need a part of it")]
mod seat;
#[path = "postgres_store/stage.rs"]
mod stage;

#[path = "postgres_store/again.rs"]
mod again;
#[path = "postgres_store/clock.rs"]
mod clock;
#[path = "postgres_store/corrupt.rs"]
mod corrupt;
#[path = "postgres_store/durability.rs"]
mod durability;
#[path = "postgres_store/failover.rs"]
mod failover;
#[path = "postgres_store/fence.rs"]
mod fence;
#[path = "postgres_store/head.rs"]
mod head;
#[path = "postgres_store/hint.rs"]
mod hint;
#[path = "postgres_store/migration.rs"]
mod migration;
#[path = "postgres_store/near.rs"]
mod near;
#[path = "postgres_store/outage.rs"]
mod outage;
#[path = "postgres_store/overlap.rs"]
mod overlap;
#[path = "postgres_store/plan.rs"]
mod plan;
#[path = "postgres_store/pooler.rs"]
mod pooler;
#[path = "postgres_store/prepared.rs"]
mod prepared;
#[path = "postgres_store/repeat.rs"]
mod repeat;
#[path = "postgres_store/rights.rs"]
mod rights;
#[path = "postgres_store/stopped.rs"]
mod stopped;
#[path = "postgres_store/tls.rs"]
mod tls;
#[path = "postgres_store/upgrade.rs"]
mod upgrade;
