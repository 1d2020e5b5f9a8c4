//! A backend over a vendor's driver, and the parts that it is made of: it knows the contract (`backend-api`) and nothing
//! else. Granule's CUDA and HIP backends are built on it, and a vendor's own backend may be; none has to.
//!
//! [`DriverBackend`] is the whole backend. A vendor says what its driver is ([`Driver`]) and makes its calls ([`Calls`],
//! one small trait for each topic); [`Abilities`] says what the driver checks and tells by itself, and the backend does
//! the rest. Nothing is decided when a call is made: a vendor's answers are constants, and its calls are direct.
//!
//! Some parts serve any backend:
//!
//! | to do | use |
//! |---|---|
//! | probe an optional family once, and keep the answer | [`Probe`] |
//! | hand Rust closures to a driver as C host functions and as destructors of graphs | [`host_function`] |
//! | open the memory of another process once, however often it is asked for | [`Imports`] |
//! | know which events keep time, where the driver does not tell | [`TimedEvents`] |

mod backend;
mod calls;
mod captures;
mod context;
mod driver;
pub mod errors;
pub mod host_function;
mod imports;
mod names;
mod physical;
mod probe;
mod timed_events;

pub use backend::DriverBackend;
pub use calls::*;
pub use context::{Context, Entered};
pub use driver::{Abilities, Driver, Family, Site, number, pointer};
pub use imports::Imports;
pub use names::Names;
pub use physical::{Keeps, Mapping, Memory};
pub use probe::{Answer, Probe};
pub use timed_events::TimedEvents;
