//! The backend over a table, and the check of the table.

use crate::VERSION;
use crate::names;
use crate::table::{self, Table};
use backend_api::types::{BackendId, DeviceIndex, DeviceKind};
use backend_api::{Backend, BackendError, ErrorKind, LabelOwner, LabelTaken, Result, Unsupported};
use std::ffi::{CStr, c_char};
use std::mem::{MaybeUninit, offset_of};
use std::sync::{Arc, OnceLock};
use thiserror::Error;

/// A backend that gives itself no name.
const NAMELESS: &str = "vendor";

/// A backend whose functions are C's.
#[derive(Debug)]
pub struct CBackend {
    pub(crate) id: BackendId,
    pub(crate) kind: DeviceKind,
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) table: Table,
    devices: OnceLock<u16>,
    /// Held while this backend presents its devices as another vendor's.
    _owner: Option<LabelOwner>,
}

// SAFETY: rule 7: the header lets any thread call any function at any time, with `context`.
unsafe impl Send for CBackend {}
// SAFETY: as above.
unsafe impl Sync for CBackend {}

/// Why a table was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// The pointer to it.
    #[error("the pointer to the table is null or not aligned to 8 bytes")]
    Pointer,
    /// Its `version`.
    #[error(
        "the table has version {found}, and this Granule reads version {VERSION}: compile the backend anew with this \
         Granule's granule_backend.h"
    )]
    Version {
        /// What it says.
        found: u64,
    },
    /// Its `size`.
    #[error("the table says it has {found} bytes; at least {least} and a multiple of 8 are due")]
    Size {
        /// What it says.
        found: u64,
        /// Its first four fields.
        least: u64,
    },
    /// Functions of the required part are NULL.
    #[error("the table lacks required functions: {}", .0.join(", "))]
    Missing(Vec<&'static str>),
    /// Another backend presents its devices under the same label.
    #[error(transparent)]
    Label(#[from] LabelTaken),
}

impl From<TableError> for BackendError {
    fn from(error: TableError) -> Self {
        Self::new(ErrorKind::Unusable, 0, "from_table", DeviceIndex(0), error.to_string())
    }
}

impl CBackend {
    /// A backend over a copy of the table. `name` stands in for the name that the table gives itself; `kind` says which
    /// of the frameworks' kinds of devices it has. A table from an older header, which ends earlier, is fine. Does
    /// not block.
    ///
    /// # Errors
    /// [`TableError`]; it names all required functions that are missing.
    ///
    /// # Safety
    /// `table` is null, or points to a `granule_backend_table` of the size that its first field says. Its context
    /// and functions stay valid for the life of the process, and keep what the header says of them (I1 to I4
    /// of the contract too).
    pub unsafe fn from_table(
        name: impl Into<Option<&'static str>>,
        kind: DeviceKind,
        table: *const Table,
    ) -> std::result::Result<Arc<Self>, TableError> {
        // SAFETY: the caller's promise is passed on.
        let table = unsafe { read(table)? };
        let missing: Vec<_> =
            table::required(&table).filter(|(_, there)| !there).map(|(name, _)| name).collect();
        if !missing.is_empty() {
            return Err(TableError::Missing(missing));
        }
        // SAFETY: the header's word, which the caller passed on.
        let own_name = unsafe { names::of(table.name) };
        // SAFETY: as above.
        let own_label = unsafe { names::of(table.label) };
        let name = name.into().or(own_name).unwrap_or(NAMELESS);
        let label = own_label.unwrap_or_else(|| match kind {
            DeviceKind::PrivateUse1 => names::kept(name.to_uppercase()),
            _ => kind.label(),
        });
        // The label of out-of-tree devices belongs to no one: several of them may be loaded.
        let owner = match kind {
            DeviceKind::PrivateUse1 => None,
            _ => Some(LabelOwner::claim(kind, name)?),
        };
        let id = BackendId::fresh();
        Ok(Arc::new(Self { id, kind, name, label, table, devices: OnceLock::new(), _owner: owner }))
    }

    /// How many devices there are; asked once.
    pub(crate) fn known_devices(&self) -> Result<u16> {
        if let Some(&count) = self.devices.get() {
            return Ok(count);
        }
        let count = self.device_count()?;
        Ok(*self.devices.get_or_init(|| count))
    }

    /// A family is there when all its functions are.
    pub(crate) fn family(
        &self,
        family: &'static str,
        functions: &[(&'static str, bool)],
    ) -> std::result::Result<(), Unsupported> {
        let missing: Vec<_> = functions.iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let reason = if missing.len() == functions.len() && functions.len() > 1 {
            format!("the table of {} has none of its functions ({}, ...)", self.name, missing[0])
        } else {
            format!("the table of {} lacks {}", self.name, missing.join(", "))
        };
        Err(Unsupported { family, reason })
    }

    /// A C string, or `instead` for null.
    pub(crate) fn text_or(&self, text: Option<*const c_char>, instead: &str) -> String {
        match text {
            Some(text) if !text.is_null() => {
                // SAFETY: the header: a text with its 0 that lives as long as the process.
                unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
            }
            _ => instead.to_owned(),
        }
    }
}

/// A copy of a table, its missing tail NULL.
///
/// # Safety
/// `table` is null, or points to as many bytes as its first field says.
unsafe fn read(table: *const Table) -> std::result::Result<Table, TableError> {
    if table.is_null() || !table.is_aligned() {
        return Err(TableError::Pointer);
    }
    // SAFETY: the caller's promise; a table has its size at least.
    let found = unsafe { table.cast::<u64>().read() };
    let least = offset_of!(Table, device_count) as u64;
    if found < least || !found.is_multiple_of(8) {
        return Err(TableError::Size { found, least });
    }
    let mut copy = MaybeUninit::new(Table::EMPTY);
    let bytes = usize::try_from(found).unwrap_or(usize::MAX).min(size_of::<Table>());
    // SAFETY: both sides have `bytes` bytes: the caller's promise, and the minimum above.
    unsafe { std::ptr::copy_nonoverlapping(table.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), bytes) };
    // SAFETY: it was a whole table before, and every field is valid with any bits that C put there.
    let copy = unsafe { copy.assume_init() };
    if copy.version != VERSION {
        return Err(TableError::Version { found: copy.version });
    }
    Ok(copy)
}
