//! What a program learns: figures, histories, reports of refusals, and observers.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod contexts;
mod history;
mod observers;
mod oom;
mod scopes;
mod statistics;
