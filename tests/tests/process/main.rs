//! What the process does around the engine: it forks, ends, sets variables, and loads drivers and unloads them.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod calls;
mod drivers;
mod environment;
mod exit;
mod fork;
mod ledger;
mod personalities;
mod published;
mod unified;
mod unload;
