//! What `onward::testing` promises: time that jumps exactly, and a checker that finds what it must.

mod check;
mod example;
mod mistake;
mod time;
mod transaction;
mod undo;
