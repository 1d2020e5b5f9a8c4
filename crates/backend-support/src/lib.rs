//! What backends over a driver share, and what no driver decides: it knows the contract (`backend-api`) and nothing
//! else. Granule's CUDA and HIP backends are built on it, and a vendor's own backend may be; none has to.
//!
//! | to do | use |
//! |---|---|
//! | probe an optional family once, and keep the answer | [`Probe`] |
//! | hand Rust closures to a driver as C host functions and as destructors of graphs | [`host_function`] |
//! | open the memory of another process once, however often it is asked for | [`Imports`] |
//! | know which events keep time, where the driver does not tell | [`TimedEvents`] |
//!
//! The calls into the driver stay with the backend: it passes them in as closures, or makes them itself.

pub mod host_function;
mod imports;
mod probe;
mod timed_events;

pub use imports::Imports;
pub use probe::{Answer, Probe};
pub use timed_events::TimedEvents;
