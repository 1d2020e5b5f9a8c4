//! Who may call its devices `cuda` in this process.
//!
//! Frameworks know a device by its label and an index. Two implementations behind one label would take each
//! other's streams and pointers for their own, so the second is refused.
//!
//! A process may have this crate twice: in two versions, or once in each of two libraries. Each copy has its own list,
//! and all see the *marks*: a label that is in use is the name of an open, empty file in memory.

use crate::types::DeviceKind;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One label in use, by this copy of the crate.
#[derive(Debug)]
struct Taken {
    kind: DeviceKind,
    implementation: &'static str,
    claims: usize,
    /// Seen by other copies while it is open.
    _mark: Option<mark::Mark>,
}

static TAKEN: Mutex<Vec<Taken>> = Mutex::new(Vec::new());

/// The right to present devices under a label. It ends when the value is dropped.
#[derive(Debug)]
#[must_use = "the label is free again when the claim is dropped"]
pub struct LabelOwner {
    kind: DeviceKind,
    implementation: &'static str,
}

/// Another implementation presents its devices under the label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelTaken {
    /// The label.
    pub kind: DeviceKind,
    /// Who has it.
    pub owner: String,
    /// Who asked for it.
    pub wanted: &'static str,
}

impl fmt::Display for LabelTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, owner, wanted } = self;
        write!(
            f,
            "{wanted} cannot present its devices as {kind}: {owner} does so in this process; choose one of them, or \
             drop every backend of {owner} first"
        )
    }
}

impl std::error::Error for LabelTaken {}

impl LabelOwner {
    /// Takes a label for an implementation (its [`Backend::name`](crate::Backend::name)). The same implementation
    /// may take it several times; it is free again when all these claims are dropped. Does not wait for a device.
    ///
    /// # Errors
    /// [`LabelTaken`] where another implementation has the label, also one that another copy of this crate knows. Where
    /// two implementations ask two copies in the same moment, both may get the error.
    pub fn claim(kind: DeviceKind, implementation: &'static str) -> Result<Self, LabelTaken> {
        let refused = |owner: &str| LabelTaken { kind, owner: owner.to_owned(), wanted: implementation };
        let mut taken = taken();
        match taken.iter_mut().find(|label| label.kind == kind) {
            Some(label) if label.implementation == implementation => label.claims += 1,
            Some(label) => return Err(refused(label.implementation)),
            None => {
                // First one's own, then a look at the others': two copies cannot both miss the other's.
                let mark = mark::Mark::leave(kind, implementation);
                if let Some(owner) = mark::owners(kind).into_iter().find(|owner| owner != implementation) {
                    return Err(refused(&owner));
                }
                taken.push(Taken { kind, implementation, claims: 1, _mark: mark });
            }
        }
        Ok(Self { kind, implementation })
    }

    /// The label.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Who presents devices under it.
    #[must_use]
    pub fn implementation(&self) -> &'static str {
        self.implementation
    }
}

impl Drop for LabelOwner {
    fn drop(&mut self) {
        let mut taken = taken();
        taken.iter_mut().filter(|label| label.kind == self.kind).for_each(|label| label.claims -= 1);
        taken.retain(|label| label.claims > 0);
    }
}

fn taken() -> MutexGuard<'static, Vec<Taken>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What all copies of this crate see. The form of the name is a promise to versions to come.
#[cfg(target_os = "linux")]
mod mark {
    use crate::types::DeviceKind;
    use std::ffi::CString;
    use std::os::fd::{FromRawFd, OwnedFd};

    /// A file in memory whose name says who has which label.
    #[derive(Debug)]
    pub(super) struct Mark {
        _file: OwnedFd,
    }

    fn name(kind: DeviceKind, implementation: &str) -> String {
        format!("granule-label:{kind}={implementation}")
    }

    impl Mark {
        /// `None` where the process can open no file more: other copies do not see the claim then.
        pub(super) fn leave(kind: DeviceKind, implementation: &str) -> Option<Self> {
            let name = CString::new(name(kind, implementation)).ok()?;
            // SAFETY: the name ends with a zero and lives until the call has returned.
            let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
            if file < 0 {
                let error = std::io::Error::last_os_error();
                tracing::warn!(%error, label = %kind, "other copies of this crate do not see that the label is taken");
                return None;
            }
            // SAFETY: the descriptor was just opened, and nobody else has it.
            Some(Self { _file: unsafe { OwnedFd::from_raw_fd(file) } })
        }
    }

    /// Who has left a mark for the label in this process. None where `/proc` is not there.
    pub(super) fn owners(kind: DeviceKind) -> Vec<String> {
        let prefix = format!("/memfd:{}", name(kind, ""));
        let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
        let owner = |file: std::fs::DirEntry| {
            let link = std::fs::read_link(file.path()).ok()?;
            let owner = link.to_str()?.strip_prefix(&prefix)?;
            Some(owner.strip_suffix(" (deleted)").unwrap_or(owner).to_owned())
        };
        files.flatten().filter_map(owner).collect()
    }
}

/// Elsewhere each copy of this crate knows only its own claims.
#[cfg(not(target_os = "linux"))]
mod mark {
    use crate::types::DeviceKind;

    #[derive(Debug)]
    pub(super) struct Mark;

    impl Mark {
        pub(super) fn leave(_: DeviceKind, _: &str) -> Option<Self> {
            None
        }
    }

    pub(super) fn owners(_: DeviceKind) -> Vec<String> {
        Vec::new()
    }
}
