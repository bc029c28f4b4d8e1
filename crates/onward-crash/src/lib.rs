//! Crash tests with real processes.
//!
//! The victim (`main.rs`) serves the workflows of [`flow`], whose step bodies leave a line in a
//! file ([`effect`]). The tests kill it, start it again, and let [`check`] compare what the bodies
//! did with what the store says, what transactions and undos did to the victim's own tables ([`bank`],
//! [`saga`]), and what became of signals, children and shared keys ([`company`]).

pub mod bank;
pub mod check;
pub mod company;
pub mod effect;
pub mod flow;
pub mod form;
pub mod random;
pub mod saga;
