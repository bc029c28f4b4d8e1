//! What is tried on each store, over a server on a port of its own.

mod audit;
mod callbacks;
mod codes;
mod dashboard;
mod keys;
mod mounted;
mod operations;
mod ops;
mod prune;
mod queues;
mod runs;
mod schedules;
mod schema;
mod security;
mod signals;
mod stage;
mod start;
mod steps;
mod stream;
mod sweep;
mod waiting;
