//! Running a PyTorch program where there is no GPU, to find out what it needs.
//!
//! The program is the user's own, under the PyTorch of his own Python. In front of NVIDIA's libraries come simulated ones
//! (`rig/`), built once for that PyTorch and kept ([`Drivers`]). A module that PyTorch loads at the end of `import torch`
//! (`python/`) puts a recorder before PyTorch's allocator (`rig/watcher`), which passes every call on and writes traces:
//! one for each process and device that asked for memory ([`Recorded`]).
//!
//! [`Torch::find`], [`Drivers::prepare`], [`Program::run`], in this order. All of them block.

mod drivers;
mod error;
mod program;
mod recorded;
mod signals;
mod started;
mod torch;

pub use drivers::{Drivers, cache};
pub use error::EstimateError;
pub use program::{Ended, Program, Stopped};
pub use recorded::Recorded;
pub use signals::{Received, Signals};
pub use torch::{Torch, find_program, python_of};
