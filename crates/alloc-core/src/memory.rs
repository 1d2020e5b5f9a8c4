//! The tables of memory: blocks and the index of the free ones, segments, regions and their granules, and where memory and
//! backups come from.

pub mod address_map;
pub mod aliases;
pub(crate) mod backup;
pub mod block;
pub(crate) mod granules;
pub mod index;
pub(crate) mod layout;
pub(crate) mod order;
pub mod region;
pub mod segment;
pub(crate) mod source;
