//! Steering runs through the public face, on each store.

mod continued;
mod deadline;
mod family;
mod fork;
mod many;
mod note;
mod pause;
