//! Blocks that other processes use: wire format, holders, and blocks that were opened here.
//!
//! * `handle`: the bytes. They begin as PyTorch's do and end in a part of Granule's that names the owner.
//! * `ledger`: a page of memory that the exporter shares with those who open its blocks. It says which blocks are open
//!   and who holds them, so a free never waits and no block is reused under another process.
//! * `process`: checks that a process is alive, and takes descriptors from it.
//! * `import` and `mapping`: blocks and mappings that this process opened, each once.
//! * `registered`: memory that libraries register, which they give to other processes themselves.
//!
//! A block that was shared has a `Share` among its uses. Freed, it is closed for new openings; if a process holds it,
//! it stays pending until none does. To open a block, a process first notes it in the ledger, then looks if it is still
//! open. A free first closes it, then looks for holders. One of the two sees the other.
//!
//! ```
//! use alloc_core::share::{ImportedMemory, SharedBlock};
//! use alloc_core::types::{DeviceIndex, DevicePtr};
//! use alloc_core::{AllocError, CachingAllocator};
//! use std::sync::Arc;
//!
//! /// In the process that has the block; what it gives is sent to the other one.
//! fn give(allocator: &CachingAllocator, block: DevicePtr) -> Result<SharedBlock, AllocError> {
//!     allocator.sharing().share(block)
//! }
//!
//! /// In the other process. The block is there while the memory is kept.
//! fn take(
//!     allocator: &CachingAllocator,
//!     sent: &SharedBlock,
//! ) -> Result<(Arc<ImportedMemory>, DevicePtr), AllocError> {
//!     let memory = allocator.sharing().open(DeviceIndex(0), &sent.handle)?;
//!     let block = memory.base().add(sent.offset);
//!     Ok((memory, block))
//! }
//! ```

pub(crate) mod bytes;
pub(crate) mod exchange;
pub(crate) mod export_table;
pub(crate) mod handle;
pub(crate) mod import;
mod mapping;
pub(crate) mod other_process;
mod registered;

pub use import::ImportedMemory;
pub use registered::{RegisteredMemory, RegisteredOptions, Window};

use crate::memory::region::Piece;
use crate::sync::Arc;
use export_table::{ExportTable, ExportTicket};

/// A block as another process can open it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedBlock {
    /// Bytes that [`open`](crate::allocator::Sharing::open) takes in the other process. The same as long as the block
    /// lives.
    pub handle: Vec<u8>,
    /// Start of the block, in bytes from the address that the other process gets.
    pub offset: u64,
}

/// A live or pending block that was shared. Closed to new openings when it is freed, at the latest when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) block: SharedBlock,
    /// Granules that other processes map, in the block's order; none of a fixed segment.
    pub(crate) granules: Vec<Piece>,
    ledger: Arc<ExportTable>,
    ticket: ExportTicket,
}

impl Share {
    pub(crate) fn new(
        block: SharedBlock,
        granules: Vec<Piece>,
        ledger: Arc<ExportTable>,
        ticket: ExportTicket,
    ) -> Self {
        Self { block, granules, ledger, ticket }
    }

    /// Closes the block: nobody can open it any more.
    pub(crate) fn close(&self) {
        self.ledger.close(self.ticket);
    }

    /// Closes it if no process that is alive has it open; returns if it is closed.
    pub(crate) fn withdraw(&self) -> bool {
        self.ledger.withdraw(self.ticket)
    }

    /// Closes it; returns if a process that is alive has it open.
    pub(crate) fn is_held_once_closed(&self) -> bool {
        self.close();
        self.ledger.is_held(self.ticket)
    }

    pub(crate) fn ledger(&self) -> &Arc<ExportTable> {
        &self.ledger
    }

    pub(crate) fn ticket(&self) -> ExportTicket {
        self.ticket
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.close();
    }
}
