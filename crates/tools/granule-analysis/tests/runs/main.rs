//! Runs: what is known of one, and what is said of it.
#![allow(clippy::unwrap_used)]

mod fuzz;
mod inspect;
mod machine;
mod model;
mod recorded;
