//! Granule's core: everything that needs no driver.
//!
//! * [`backend`]: the contract an accelerator implements, on one page.
//! * [`allocator`]: the caching allocator a program uses; [`buffer`]: memory that frees itself.
//! * [`policy`]: the decisions (rounding, placement, splitting, growth, remedies), exchangeable.
//! * [`config`]: settings and how they are read from text.
//! * [`stats`], [`snapshot`], [`oom`]: what can be seen of it.
//!
//! The engine validates, backends do not: a backend may rely on what [`backend`] promises it. No lock is
//! held over a driver call, nothing is allocated on the heap once a program has reached its steady state, and the
//! same order of events gives the same addresses.
//!
//! # Code of the program
//!
//! A program gives the engine code to call: observers, trackers, free-memory callbacks, filters of pools, sources of their memory,
//! spill hooks, call contexts. For all of it the same holds. It is called with no lock held.
//!
//! *It may panic.* The call that led there completes what it has begun, and then panics. A request that panics leaves nothing
//! handed out; a free is done. Of several panics the first goes on. The panic of a destructor is logged, and that is all.
//!
//! *It may use the allocator*, also to ask for memory. While a thread is in code of one kind, its calls of the same allocator
//! are served without code of that kind: a filter accepts nothing, a source has nothing, an observer is not told. Trackers and
//! observers of budgets hear of it after they have returned.

pub mod address_map;
pub mod allocator;
mod arena;
mod attention;
pub mod block;
pub mod budget;
pub mod buffer;
mod call;
pub mod config;
mod counters;
pub mod device;
mod directory;
mod edges;
mod epoch;
pub mod error;
mod foreign;
pub mod graph;
mod growth;
pub mod hardened;
mod held_event;
pub mod history;
pub mod host;
pub mod index;
mod invariants;
mod last_work;
pub mod oom;
mod pending;
pub mod pointer;
pub mod policy;
pub mod pool;
pub mod region;
pub mod round;
pub mod segment;
pub mod share;
pub mod sleep;
pub mod snapshot;
#[cfg(doctest)]
mod soundness;
pub mod stats;
#[doc(hidden)] // for tests and benchmarks
pub mod steps;
mod stream_identity;
mod sync;
pub mod types;

pub use allocator::CachingAllocator;
/// The device contract: the crate `backend-api`, under the name that it has here.
pub use backend_api as backend;
pub use buffer::DeviceBuffer;
pub use error::AllocError;
pub use host::{HostAllocator, PinnedBuffer};
