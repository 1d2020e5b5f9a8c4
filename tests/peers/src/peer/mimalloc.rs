//! mimalloc: a malloc of host memory. It knows neither devices nor streams, and shows what a cache of each thread gives.

use super::Peer;

pub(super) struct HostMemory;

impl Peer for HostMemory {
    fn malloc(&self, bytes: usize, _stream: usize) -> usize {
        // SAFETY: any size may be asked for.
        let block = unsafe { libmimalloc_sys::mi_malloc(bytes) };
        block.expose_provenance()
    }

    fn free(&self, block: usize, _bytes: usize, _stream: usize) {
        // SAFETY: the workloads free what `malloc` gave, once.
        unsafe { libmimalloc_sys::mi_free(std::ptr::with_exposed_provenance_mut(block)) }
    }

    fn peak_reserved(&self) -> usize {
        0
    }
}
