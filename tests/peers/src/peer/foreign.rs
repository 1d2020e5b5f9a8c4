//! An allocator in a library with the C interface of the peer benchmark (`bm_*`): Granule's adaptor, and PyTorch's and
//! TensorFlow's allocators where they were built.

use super::Peer;
use anyhow::{Context, Result, bail};
use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW, Symbol};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

type Malloc = unsafe extern "C" fn(usize, *mut c_void) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, usize, *mut c_void);

pub(super) struct Library {
    malloc: Symbol<Malloc>,
    free: Symbol<Free>,
    peak_reserved: Symbol<unsafe extern "C" fn() -> usize>,
    driver_calls: Symbol<unsafe extern "C" fn() -> usize>,
    empty_cache: Option<Symbol<unsafe extern "C" fn()>>,
    /// Last, so that the functions go first.
    _library: Handle,
}

impl Library {
    pub(super) fn open(path: &Path, capacity: usize, config: &str) -> Result<Self> {
        // SAFETY: the user names a library of this interface; its initialisers are its own.
        let library = unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .with_context(|| format!("{} cannot be loaded", path.display()))?;
        // SAFETY: the interface declares this function so.
        let init: Symbol<unsafe extern "C" fn(usize, *const c_char) -> c_int> =
            unsafe { library.get(b"bm_init")? };
        let config = CString::new(config)?;
        // SAFETY: called once, before any other function, with a string that ends in NUL.
        let started = unsafe { init(capacity, config.as_ptr()) };
        if started != 0 {
            bail!("{} refuses to start with {config:?} ({started})", path.display());
        }
        Ok(Self {
            // SAFETY: the interface declares these functions so.
            malloc: unsafe { library.get(b"bm_malloc")? },
            // SAFETY: as above.
            free: unsafe { library.get(b"bm_free")? },
            // SAFETY: as above.
            peak_reserved: unsafe { library.get(b"bm_peak_reserved")? },
            // SAFETY: as above.
            driver_calls: unsafe { library.get(b"bm_driver_calls")? },
            // SAFETY: as above; this one need not be there.
            empty_cache: unsafe { library.get(b"bm_empty_cache") }.ok(),
            _library: library,
        })
    }
}

/// The interface's names of streams: null is the default stream.
fn token(stream: usize) -> *mut c_void {
    if stream == 0 {
        std::ptr::null_mut()
    } else {
        std::ptr::without_provenance_mut(0x10000 + stream * 0x100)
    }
}

impl Peer for Library {
    fn malloc(&self, bytes: usize, stream: usize) -> usize {
        // SAFETY: the library was started; its functions may be called from several threads.
        unsafe { (self.malloc)(bytes, token(stream)) }.expose_provenance()
    }

    fn free(&self, block: usize, bytes: usize, stream: usize) {
        // SAFETY: the workloads free what `malloc` gave, once, with its size and stream.
        unsafe { (self.free)(std::ptr::with_exposed_provenance_mut(block), bytes, token(stream)) }
    }

    fn peak_reserved(&self) -> usize {
        // SAFETY: the library was started.
        unsafe { (self.peak_reserved)() }
    }

    fn driver_calls(&self) -> usize {
        // SAFETY: the library was started.
        unsafe { (self.driver_calls)() }
    }

    fn empty_cache(&self) {
        if let Some(empty_cache) = &self.empty_cache {
            // SAFETY: the library was started.
            unsafe { empty_cache() }
        }
    }
}
