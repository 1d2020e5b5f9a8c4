//! rlsf: TLSF. It keeps its headers in the memory that it manages, so it manages host memory, smaller by a factor, for
//! the device's: as many headers to a cache line as if they were kept beside it. One lock, no streams.

use super::Peer;
use anyhow::{Context, Result};
use rlsf::Tlsf;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many bytes of the device are one of the host.
const SCALE: usize = 16;
const ALIGNMENT: usize = 16;

type Pool = Tlsf<'static, u32, u32, 28, 32>;

struct State {
    pool: Pool,
    base: usize,
    high: usize,
}

pub(super) struct Scaled(Mutex<State>);

impl Scaled {
    pub(super) fn new(capacity: usize) -> Result<Self> {
        let mut pool = Pool::new();
        let layout = Layout::from_size_align(capacity / SCALE, 1 << 16)?;
        // SAFETY: the layout has a size. Fresh pages of the system are only there when they are touched.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        let memory = NonNull::new(memory).context("the host has no addresses for the scaled device")?;
        let block = NonNull::slice_from_raw_parts(memory, layout.size());
        // SAFETY: the memory is never freed, and nothing else knows it.
        unsafe { pool.insert_free_block_ptr(block) }.context("the scaled device is too small")?;
        Ok(Self(Mutex::new(State { pool, base: memory.as_ptr().expose_provenance(), high: 0 })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer for Scaled {
    fn malloc(&self, bytes: usize, _stream: usize) -> usize {
        let Ok(layout) = Layout::from_size_align(bytes.div_ceil(SCALE), ALIGNMENT) else { return 0 };
        let mut state = self.state();
        let Some(block) = state.pool.allocate(layout) else { return 0 };
        let block = block.as_ptr().expose_provenance();
        state.high = state.high.max((block + layout.size() - state.base) * SCALE);
        block
    }

    fn free(&self, block: usize, _bytes: usize, _stream: usize) {
        let Some(block) = NonNull::new(std::ptr::with_exposed_provenance_mut(block)) else { return };
        // SAFETY: the workloads free what `malloc` gave, once.
        unsafe { self.state().pool.deallocate(block, ALIGNMENT) }
    }

    fn peak_reserved(&self) -> usize {
        self.state().high
    }
}
