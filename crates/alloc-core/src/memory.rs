//! Tables of memory: blocks and the index of the free ones, segments, regions and their granules; sources of memory,
//! and backups.

pub(crate) mod address_map;
pub mod aliases;
pub(crate) mod backup;
pub mod block;
pub(crate) mod granules;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod order;
pub(crate) mod region;
pub(crate) mod segment;
pub(crate) mod source;
