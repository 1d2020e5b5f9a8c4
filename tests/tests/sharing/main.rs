//! Memory that other processes and other devices reach.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

mod faults;
mod handles;
mod lifetimes;
mod peers;
mod processes;
mod views;
