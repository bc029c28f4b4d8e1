//! Connection faults: what callers and workers see when Postgres or the way to it is gone.
//!
//! Each test lets a worker and a client reach a real server through a proxy, or a server of their
//! own, takes it away in its own way, and checks the store's order of commits afterwards.
//! One takes nothing away, and counts what passes.

mod idle;
mod killed;
mod late_takeover;
mod lost_answer;
mod outage;
mod slow_commit;
mod stage;
mod transaction;
