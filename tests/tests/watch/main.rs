//! What a program learns: figures, histories, reports of refusals, observers, and the hardened mode.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod contexts;
mod hardened;
mod history;
mod observers;
mod oom;
mod quarantine;
mod scopes;
mod statistics;
