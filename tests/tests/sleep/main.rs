//! Pools that sleep and wake.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod backups;
mod contents;
mod drivers;
mod links;
mod model;
mod resident;
