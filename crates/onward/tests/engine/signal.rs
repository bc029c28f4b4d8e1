//! Signals and children through the public face, on each store.

mod children;
mod fan_out;
mod handed_on;
mod inside;
mod pages;
mod versions;
mod waits;
