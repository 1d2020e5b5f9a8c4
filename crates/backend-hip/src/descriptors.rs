//! File descriptors: every physical handle of this runtime holds one, and running out of them looks like
//! running out of memory.

use backend_api::{BackendError, ErrorKind};
use backend_support::Keeps;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So close to the limit it is descriptors that ran out: the runtime opens several for one handle.
const MARGIN: u64 = 16;

/// Descriptors that must stay open on behalf of one piece of physical memory.
#[derive(Clone, Debug, Default)]
pub struct Descriptors(Arc<Open>);

#[derive(Debug, Default)]
struct Open {
    /// What was exported: older runtimes may answer a bad descriptor for a second export after the first one
    /// was closed, so there is one export, and copies of it.
    exported: Mutex<Option<OwnedFd>>,
    /// What was imported, one for each import: older runtimes read it only when access is set.
    imported: Mutex<Vec<OwnedFd>>,
}

fn lock<T>(descriptors: &Mutex<T>) -> MutexGuard<'_, T> {
    descriptors.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeps for Descriptors {
    const IMPORTS: bool = true;

    fn exported(
        &self,
        export: impl FnOnce() -> Result<OwnedFd, BackendError>,
        not_copied: impl FnOnce(io::Error) -> BackendError,
    ) -> Result<OwnedFd, BackendError> {
        let mut kept = lock(&self.0.exported);
        let first = match kept.take() {
            Some(first) => first,
            None => export()?,
        };
        kept.insert(first).try_clone().map_err(not_copied)
    }

    fn keep_import(&self, imported: OwnedFd) {
        lock(&self.0.imported).push(imported);
    }

    fn import_is_pending(&self) -> bool {
        !lock(&self.0.imported).is_empty()
    }

    fn import_is_done(&self) {
        lock(&self.0.imported).clear();
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Open descriptors and their limit, where the one is close to the other.
fn nearly_exhausted() -> Option<(u64, u64)> {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: the function fills one `rlimit`.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: plain integers, which are initialised from the start.
    let limit = unsafe { limit.assume_init() }.rlim_cur;
    // Reading the folder takes a descriptor, too; where none is left, that says it.
    let open = std::fs::read_dir("/proc/self/fd").map_or(limit, |entries| entries.count() as u64);
    close_to(open, limit).then_some((open, limit))
}

const fn close_to(open: u64, limit: u64) -> bool {
    open.saturating_add(MARGIN) >= limit
}

/// "Out of memory" from a call that takes a descriptor is no lack of memory where descriptors ran out: giving
/// cached memory back would be in vain.
pub(crate) fn out_of_descriptors(error: BackendError) -> BackendError {
    if error.kind != ErrorKind::OutOfMemory {
        return error;
    }
    match nearly_exhausted() {
        Some((open, limit)) => {
            let detail = format!(
                "{}: {open} of {limit} file descriptors are open, and physical memory needs one per handle; \
                 raise the limit (ulimit -n), or use larger granules",
                error.detail
            );
            BackendError { kind: ErrorKind::ResourceLimit, detail, ..error }
        }
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::types::DeviceIndex;
    use std::os::fd::AsRawFd;

    fn failed(kind: ErrorKind) -> BackendError {
        BackendError::new(kind, 2, "hipMemCreate", DeviceIndex(0), "hipErrorOutOfMemory")
    }

    #[test]
    fn the_margin_is_sixteen() {
        assert!(close_to(1008, 1024) && close_to(1024, 1024));
        assert!(!close_to(1007, 1024));
    }

    #[test]
    fn only_a_full_table_makes_it_a_resource_limit() {
        assert_eq!(out_of_descriptors(failed(ErrorKind::InvalidValue)).kind, ErrorKind::InvalidValue);
        let few_are_open = nearly_exhausted().is_none();
        assert!(few_are_open, "this test needs a process with free descriptors");
        assert_eq!(out_of_descriptors(failed(ErrorKind::OutOfMemory)).kind, ErrorKind::OutOfMemory);
    }

    #[test]
    fn one_export_is_kept_and_copied() {
        let descriptors = Descriptors::default();
        let not_copied = |error: io::Error| panic!("{error}");
        let open = || Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let first = descriptors.exported(open, not_copied).unwrap();
        let again = descriptors.exported(|| unreachable!("it is kept"), not_copied).unwrap();
        assert_ne!(first.as_raw_fd(), again.as_raw_fd());
        let refused = Descriptors::default().exported(|| Err(failed(ErrorKind::NotSupported)), not_copied);
        assert_eq!(refused.unwrap_err().kind, ErrorKind::NotSupported);
    }
}
