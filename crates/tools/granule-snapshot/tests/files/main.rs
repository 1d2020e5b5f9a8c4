//! Files: snapshots as pickles, traces, and how one becomes the other.

mod convert;
mod models;
mod pickle;
mod shared_files;
mod trace;
