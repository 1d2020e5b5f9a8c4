//! Granule's core: everything that needs no driver.
//!
//! * [`backend`]: the contract an accelerator implements, on one page.
//! * [`allocator`]: the caching allocator a program uses; [`buffer`]: memory that frees itself.
//! * [`policy`]: the decisions (rounding, placement, splitting, growth, remedies).
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
//!
//! *It must not wait for a thread that may be inside the allocator*, where memory moves meanwhile: in sources of memory, in
//! observers of segments, and in destructors. That thread may be waiting for the memory that moves. Where devices
//! share the host's memory, it may be inside any allocator of the process, of pinned memory or for another device.
//!
//! # Layers
//!
//! A module uses those below it, and none above.
//!
//! ```text
//! api        what a program has in its hands: allocator, buffers, pools, graphs
//! device     one device: requests, misses, captures, limits      host    pinned host memory
//! arena      one pool and one stream: blocks under one lock; the pools; the directory of both
//! policy     the decisions
//! lifetimes  streams, captures and processes that still use memory
//! features   budgets, sleep, sharing, and uncached memory
//! memory     tables: blocks, free blocks, segments, regions, addresses
//! error      what is answered when something cannot be done
//! watch      counts, history, snapshots, reports, observers
//! process    forks and exits, code of the program, streams' names
//! config     settings
//! base       ids, sizes, rounding      sync    locks
//! ```

mod api;
mod arena;
mod base;
pub mod config;
pub mod device;
pub mod error;
mod features;
pub mod host;
mod lifetimes;
mod memory;
pub mod policy;
mod process;
mod sync;
mod watch;

pub use api::allocator::CachingAllocator;
pub use api::buffer::DeviceBuffer;
pub use api::{allocator, buffer, graph, pool};
/// The device contract: the crate `backend-api`, under the name that it has here.
pub use backend_api as backend;
#[doc(hidden)] // for tests and benchmarks
pub use backend_api::steps;
pub use base::{round, types};
pub use error::AllocError;
pub use features::{budget, ledger, share, sleep};
pub use host::{HostAllocator, PinnedBuffer};
pub use memory::{aliases, block};
#[doc(hidden)] // for the tools
pub use process::own;
pub use process::system;
#[doc(hidden)] // for tests
pub use sync::may_call_drivers;
pub use watch::{history, oom, pointer, snapshot, stats};
