//! Sharing with other processes: a copy of a block, in a POSIX shared memory object that is opened once.

use crate::memory::{self, Kind};
use crate::pages::Pages;
use crate::status::{Answer, Refused};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::shm::{self, OFlags};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that a caller must have ready for a name, its end included.
pub(crate) const NAME_BYTES: usize = 64;

/// What this process has opened, by address.
static OPENED: Mutex<BTreeMap<usize, Pages>> = Mutex::new(BTreeMap::new());

fn opened() -> MutexGuard<'static, BTreeMap<usize, Pages>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies the block that `at` lies in into a new object; its name, and how far into the block `at` is.
///
/// The object stays until somebody opens it, also after this process has ended.
pub(crate) fn export(at: usize) -> Answer<(String, usize)> {
    let mut memory = memory::lock();
    let block = memory.find(at).filter(|block| matches!(block.kind, Kind::Device(_))).ok_or(Refused)?;
    memory.open(block.base)?;
    // SAFETY: the block is open and lives while `memory` is locked.
    let bytes = unsafe {
        std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(block.base), block.bytes)
    };
    let name = publish(bytes);
    memory.close(block.base)?;
    Ok((name?, at - block.base))
}

fn publish(bytes: &[u8]) -> Answer<String> {
    let (name, mut file) = create()?;
    if let Err(error) = file.write_all(bytes) {
        shm::unlink(&name)?;
        return Err(error.into());
    }
    Ok(name)
}

fn create() -> Answer<(String, File)> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("/openreg_{}_{number}", std::process::id());
        match shm::open(&name, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok((name, file.into())),
            // Left behind by an earlier process of the same number.
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Maps the object and takes its name away; where it is, and its bytes.
pub(crate) fn open(name: &CStr) -> Answer<(usize, usize)> {
    let file = File::from(shm::open(name, OFlags::RDWR, Mode::empty())?);
    let bytes = usize::try_from(file.metadata()?.len()).map_err(|_| Refused)?;
    let pages = Pages::of_file(&file, bytes)?;
    shm::unlink(name)?;
    let base = pages.base();
    opened().insert(base, pages);
    Ok((base, bytes))
}

/// Unmaps what `open` mapped.
pub(crate) fn close(base: usize, bytes: usize) -> Answer {
    let mut opened = opened();
    if opened.get(&base).is_none_or(|pages| pages.bytes() != bytes) {
        return Err(Refused);
    }
    opened.remove(&base);
    Ok(())
}
