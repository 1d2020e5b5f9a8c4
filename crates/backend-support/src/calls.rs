//! A driver's functions in the contract's terms: one method makes one call, or the few that a vendor needs for it.
//!
//! A call is about the device of its site, which is current where the contract's rule 5 asks for it. What is wrong by
//! the contract (sizes, nulls, handles of others) has been refused before, and what a call answers is entered into the
//! books behind it. Every method answers the driver's error, and `# Safety` of an `unsafe fn` is that of the contract's
//! method with that duty.

mod devices;
mod graphs;
mod memory;
mod sharing;
mod streams;
mod virtual_memory;

pub use devices::{AttributeSource, DeviceCalls, text};
pub use graphs::{CaptureState, GraphCalls};
pub use memory::{HostCalls, MemoryCalls};
pub use sharing::{IpcCalls, PeerCalls};
pub use streams::{EventCalls, HostEntry, StreamCalls, event_flags};
pub use virtual_memory::VirtualMemoryCalls;

/// All calls of a driver.
pub trait Calls:
    DeviceCalls
    + MemoryCalls
    + HostCalls
    + StreamCalls
    + EventCalls
    + GraphCalls
    + VirtualMemoryCalls
    + IpcCalls
    + PeerCalls
{
}

impl<D> Calls for D where
    D: DeviceCalls
        + MemoryCalls
        + HostCalls
        + StreamCalls
        + EventCalls
        + GraphCalls
        + VirtualMemoryCalls
        + IpcCalls
        + PeerCalls
{
}
