//! A simulated accelerator.
//!
//! [`OpenReg`] behaves like a device, not like a malloc: its memory has a capacity, addresses and page
//! protection; its streams run later than they are told, or exactly as much later as a test wants; driver
//! calls cost time, can fail, hang, or lose the device; and wrong uses of memory are trapped instead of
//! corrupting something.
//!
//! Two choices make a machine ([`OpenRegConfig`]):
//!
//! * [`MemoryMode`]: addresses only (an 80 GiB device costs nothing), or real bytes in memory files.
//! * [`Clock`]: a worker thread per stream, or a virtual clock that is the same in every run.
//!
//! New ranges always take the lowest free address of their device, so that addresses are reproducible.
//! Capacity is accounted as drivers do it: requests of 1 MiB and more in whole 2 MiB, smaller ones in
//! 512 bytes, physical memory as it is asked for.
//!
//! What is not simulated: fabric handles, and the code of kernels: what one computes is a closure
//! ([`OpenReg::launch_kernel`]). Linux only.

mod config;
mod contract;
mod driver;
mod gate;
mod held;
mod machine;
mod memory;
mod names;
mod openreg;
mod os;
mod refusal;
mod slab;
mod space;
mod thread;
mod trap;

pub use config::{Clock, Families, MemoryMode, OpenRegConfig};
pub use driver::{Driver, PhysicalProperties, PoolFigure};
pub use gate::call::{Call, CallCounts};
pub use gate::cost::{BadCost, CostModel};
pub use gate::fault::{Effect, Fault, FaultPlan};
pub use gate::links::Links;
pub use gate::usage::Usage;
pub use held::{Held, Lag};
pub use openreg::OpenReg;
pub use trap::{Trap, TrapKind};
