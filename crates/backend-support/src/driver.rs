//! A vendor's driver as the shared backend sees it, and one way to call its functions: it sees that the function is
//! there, converts the status, names the call, and remembers a lost device.

use crate::errors::{ErrorTable, NOT_READY, SUCCESS};
use crate::names::Names;
use backend_api::types::{DeviceIndex, DeviceKind};
use backend_api::{BackendError, ErrorKind, Readiness, Result};
use std::ffi::c_int;
use std::fmt::Debug;
use std::ptr;
use std::sync::OnceLock;

/// Calls a driver's function: `call!(site.cuMemFree_v2(ptr))` is a `Result<()>`. `site` is a variable that is, or
/// derefs to, a [`Site`]; the driver has a field `functions`, whose fields are the functions that were found.
#[macro_export]
macro_rules! call {
    ($site:ident.$function:ident($($argument:expr),* $(,)?)) => {
        match $site.driver().functions.$function {
            Some(function) => $site.status(stringify!($function), function($($argument),*)),
            None => Err($site.missing(stringify!($function))),
        }
    };
}

/// [`call!`] for a query: its answer is a [`Readiness`].
#[macro_export]
macro_rules! query {
    ($site:ident.$function:ident($($argument:expr),* $(,)?)) => {
        match $site.driver().functions.$function {
            Some(function) => $site.readiness(stringify!($function), function($($argument),*)),
            None => Err($site.missing(stringify!($function))),
        }
    };
}

/// Refuses where the library lacks one of some functions: `needs!(site: cuMemMap, cuMemUnmap)` is a `Result<()>`.
#[macro_export]
macro_rules! needs {
    ($site:ident: $($function:ident),+ $(,)?) => {
        $site.needs(&[$((stringify!($function), $site.driver().functions.$function.is_some())),+])
    };
}

/// A family whose functions a library may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// [`VirtualMemory`](backend_api::VirtualMemory).
    VirtualMemory,
    /// [`PhysicalSharing`](backend_api::PhysicalSharing).
    PhysicalSharing,
    /// [`Ipc`](backend_api::Ipc).
    Ipc,
    /// [`Peers`](backend_api::Peers).
    Peers,
    /// [`Capture`](backend_api::Capture).
    Capture,
    /// [`HostRegistration`](backend_api::HostRegistration).
    HostRegistration,
}

/// What a driver checks and tells by itself. What it does not, the backend does in its place.
#[derive(Clone, Copy, Debug)]
pub struct Abilities {
    /// It refuses to free what is no live base, and memory of another kind.
    pub checks_frees: bool,
    /// It refuses blocking copies that a capture forbids.
    pub checks_captures: bool,
    /// It takes unmaps and changes of access for several mappings at once, and refuses ranges that are none.
    pub checks_mappings: bool,
    /// It refuses types of shared handles that it does not know.
    pub checks_handle_types: bool,
    /// It tells what is mapped at an address, and whose.
    pub tells_mappings: bool,
    /// It tells whether memory can be shared with other processes.
    pub tells_shareable: bool,
    /// Memory that was unmapped and released is free, also while its addresses stay reserved.
    pub releases_at_once: bool,
}

/// What a vendor's driver is, apart from the calls of [`Calls`](crate::Calls).
///
/// # Safety
/// Memory that the driver hands out is disjoint while it is held, and as large as asked. Its events and waits tell
/// the truth (I2 and I3 of the [contract](backend_api)). Mapped physical memory outlives its handle (I4). A descriptor that is
/// exported is new and the caller's. A user object that is created and retained is held by the graph, and its end is told once; a
/// host function that is taken runs once, or its data is given back.
pub unsafe trait Driver: Debug + Send + Sync + Sized + 'static {
    /// The label of its devices.
    const KIND: DeviceKind;
    /// The backend's name.
    const NAME: &'static str;
    /// What errors call loading it.
    const LOAD: &'static str;
    /// What errors call it: the driver, the runtime.
    const NOUN: &'static str;
    /// What is current in a thread: a context, a device.
    const CURRENT: &'static str;
    /// The names of its functions.
    const NAMES: Names;
    /// Its error codes.
    const ERRORS: ErrorTable;
    /// What it does by itself.
    const ABILITIES: Abilities;

    /// What its functions answer.
    type Status: Copy;
    /// Its version.
    type Version: Copy;
    /// What was current in a thread before a call.
    type Previous: Debug;

    /// Finds the library, and sees that it has what every device needs. Starts nothing: the process may still fork.
    ///
    /// # Errors
    /// `NoDriver`; the text says what was looked for and what to do.
    fn find() -> Result<Self>;

    /// Starts the driver, and looks for its devices.
    ///
    /// # Errors
    /// `NoDevice` where there is none; otherwise what the driver said.
    fn start(&mut self) -> Result<()>;

    /// How many devices were found.
    fn device_count(&self) -> u16;

    /// The name under which the library was opened.
    fn library(&self) -> &str;

    /// The version that the driver reports.
    fn version(&self) -> Self::Version;

    /// The error code in an answer.
    fn code(status: Self::Status) -> c_int;

    /// The name of a function in the header, which may lack the version that its symbol carries.
    #[must_use]
    fn public_name(symbol: &'static str) -> &'static str {
        symbol
    }

    /// What the driver calls a code that [`ERRORS`](Self::ERRORS) lacks.
    fn ask_error_name(&self, code: c_int) -> Option<String>;

    /// How the driver describes a code.
    fn ask_error_text(&self, code: c_int) -> Option<String>;

    /// A call answered this code, which is not success: clears what the driver keeps of it.
    fn forget_error(&self, _code: c_int) {}

    /// Clears the error that the driver keeps for the thread, where it keeps one.
    fn clear_error(&self) {}

    /// What to say where the library lacks a function.
    fn lacks(&self, function: &'static str) -> String;

    /// Sees that the functions of a family are there, and that their layouts are known.
    ///
    /// # Errors
    /// What is missing.
    fn has(site: Site<'_, Self>, family: Family) -> Result<()>;

    /// The driver's number of the thread's device; none where the thread has none.
    fn current_device(site: Site<'_, Self>) -> Result<Option<c_int>>;

    /// The index of the device with the driver's number.
    fn index_of(&self, number: c_int) -> Option<DeviceIndex>;

    /// Makes the site's device the thread's; answers what was current before where that is another one.
    fn enter(site: Site<'_, Self>) -> Result<Option<Self::Previous>>;

    /// Makes current again what was it before [`enter`](Self::enter). Nobody above can, so a refusal is worth a second
    /// try.
    fn leave(site: Site<'_, Self>, previous: &Self::Previous) -> Result<()>;

    /// Makes the site's device the thread's, for good.
    fn set_current(site: Site<'_, Self>) -> Result<()>;

    /// Gives back what the driver holds for this process. The backend is gone.
    fn shut_down(&self) {}
}

/// What the driver calls a code; newer codes than the table's are asked of the driver.
pub(crate) fn error_name<D: Driver>(driver: &D, code: c_int) -> String {
    D::ERRORS.name(code).or_else(|| driver.ask_error_name(code)).unwrap_or_else(|| "unknown".into())
}

/// Where a call is made: which driver, about which device.
#[derive(Debug)]
pub struct Site<'c, D> {
    driver: &'c D,
    device: DeviceIndex,
    lost: Option<&'c OnceLock<c_int>>,
}

impl<D> Clone for Site<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Site<'_, D> {}

impl<'c, D: Driver> Site<'c, D> {
    /// For calls about no device.
    ///
    /// # Safety
    /// For the driver's own crate. Whoever has a site can call the driver with any handle and past the backend's books: what it
    /// passes is the driver's, and what it changes is known to the backend.
    #[must_use]
    pub unsafe fn of_driver(driver: &'c D) -> Self {
        Self { driver, device: DeviceIndex(0), lost: None }
    }

    /// For calls about a device; `lost` is set by the first fatal error.
    pub(crate) fn of_device(driver: &'c D, device: DeviceIndex, lost: &'c OnceLock<c_int>) -> Self {
        Self { driver, device, lost: Some(lost) }
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> &'c D {
        self.driver
    }

    /// The device; the first one where the call is about none.
    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        self.device
    }

    /// The result of a call that answered `status`.
    ///
    /// # Errors
    /// The status, where it is not success.
    pub fn status(&self, call: &'static str, status: D::Status) -> Result<()> {
        match D::code(status) {
            SUCCESS => Ok(()),
            code => Err(self.failed(call, code)),
        }
    }

    fn failed(&self, call: &'static str, code: c_int) -> BackendError {
        self.driver.forget_error(code);
        let failed = self.known(code, call);
        if failed.kind == ErrorKind::DeviceLost
            && let Some(lost) = self.lost
            && lost.set(code).is_ok()
        {
            tracing::error!(error = %failed, "the device is lost");
        }
        failed
    }

    /// The answer of a query: "not ready" is a value, and is told without making an error first.
    ///
    /// # Errors
    /// The status, where it is neither success nor "not ready".
    pub fn readiness(&self, call: &'static str, status: D::Status) -> Result<Readiness> {
        match D::code(status) {
            SUCCESS => Ok(Readiness::Ready),
            NOT_READY => {
                self.driver.forget_error(NOT_READY);
                Ok(Readiness::NotReady)
            }
            code => Err(self.failed(call, code)),
        }
    }

    /// The error for a code of the driver.
    #[must_use]
    pub fn known(&self, code: c_int, call: &'static str) -> BackendError {
        let name = error_name(self.driver, code);
        let detail = match D::ERRORS.advice(code) {
            "" if D::ERRORS.name(code).is_none() => match self.driver.ask_error_text(code) {
                Some(text) => format!("{name}: {text}"),
                None => name,
            },
            "" => name,
            advice => format!("{name}: {advice}"),
        };
        BackendError::new(D::ERRORS.kind(code), code, D::public_name(call), self.device, detail)
    }

    /// The error of a call whose function the library lacks.
    #[must_use]
    pub fn missing(&self, call: &'static str) -> BackendError {
        self.refuse(ErrorKind::NotSupported, call, self.driver.lacks(call))
    }

    /// Refuses where one of some functions was not found.
    ///
    /// # Errors
    /// The first one that is missing.
    pub fn needs(&self, functions: &[(&'static str, bool)]) -> Result<()> {
        match functions.iter().find(|(_, found)| !found) {
            Some((missing, _)) => Err(self.missing(missing)),
            None => Ok(()),
        }
    }

    /// An error that the backend finds itself.
    #[must_use]
    pub fn refuse(&self, kind: ErrorKind, call: &'static str, detail: impl Into<String>) -> BackendError {
        BackendError::new(kind, 0, D::public_name(call), self.device, detail)
    }

    /// An argument that is wrong before the driver is asked.
    #[must_use]
    pub fn invalid(&self, call: &'static str, detail: impl Into<String>) -> BackendError {
        self.refuse(ErrorKind::InvalidValue, call, detail)
    }

    /// Refuses size 0 (rule 4).
    pub(crate) fn positive(&self, call: &'static str, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Err(self.invalid(call, "a size is at least 1 byte"));
        }
        Ok(())
    }
}

/// A driver's pointer as the number that handles carry.
#[must_use]
pub fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

/// A handle's number (or an address) as the driver's pointer.
#[must_use]
pub fn pointer<T>(number: u64) -> *mut T {
    // On a 64-bit machine, and there is no other, nothing is cut off.
    ptr::with_exposed_provenance_mut(number as usize)
}
