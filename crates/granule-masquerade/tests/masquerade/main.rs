//! The masquerade over a simulated machine that calls itself HIP.

#![allow(clippy::unwrap_used)]

mod forwarding;
mod labels;
mod presented;
mod support;
