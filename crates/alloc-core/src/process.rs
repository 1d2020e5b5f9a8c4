//! Surroundings of the engine in its process: forks and exits, threads' names for streams, events of the driver, calls
//! of the program's code, and the system's memory.

pub(crate) mod attention;
pub(crate) mod callbacks;
pub(crate) mod held_event;
pub(crate) mod host_reserve;
mod leaked_list;
pub mod own;
pub(crate) mod pinned;
pub(crate) mod state;
pub(crate) mod stream_identity;
pub mod system;
pub(crate) mod unified;
