//! What is particular to the Postgres store: its schema, its locks, its plans, its connections.
//! What every store must do is in the conformance suite.
//!
//! Most tests have a schema of their own in the tests' server; those that need a server with other
//! settings make a cluster of their own.

mod cluster;
mod stage;

mod again;
mod clock;
mod corrupt;
mod durability;
mod failover;
mod fence;
mod head;
mod hint;
mod migration;
mod near;
mod outage;
mod overlap;
mod plan;
mod pooler;
mod prepared;
mod prune;
mod queues;
mod repeat;
mod rights;
mod stopped;
mod tls;
mod upgrade;
mod went_back;
