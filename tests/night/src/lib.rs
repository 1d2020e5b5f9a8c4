//! Whole histories of everything at once, on simulated devices: one seed is one history, the same on every machine.
//!
//! ```text
//! main.rs      the program            history.rs   one seed, from the first operation to the last
//! op.rs        operations             setup.rs     machines and allocators of a seed
//! world.rs     what there is          world/       what operations do, by topic
//! contents.rs  bytes of blocks        oracle.rs    what must hold
//! verdict.rs   what was found         shrink.rs    the shortest history that finds it
//! features.rs  what met what       wire.rs      what the engine asks of drivers
//! fabric.rs    handles that other processes reach memory by
//! fork.rs      children of the process
//! threads.rs   orders of threads   together.rs  what several threads do at once
//! ```

pub mod contents;
pub mod fabric;
pub mod features;
#[cfg(not(shuttle))]
pub mod fork;
pub mod history;
pub mod op;
pub mod oracle;
pub mod setup;
pub mod shrink;
mod threads;
#[cfg(shuttle)]
mod together;
pub mod verdict;
pub mod wire;
pub mod world;
