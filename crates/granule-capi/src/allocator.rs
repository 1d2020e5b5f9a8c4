//! An allocator as C has it: made, asked about itself, ended.

pub(crate) mod recording;
pub(crate) mod tenants;

use crate::boundary::guard::{guard, or};
use crate::boundary::handle::{handles, new_handle};
use crate::boundary::log;
use crate::boundary::pass::{self, given, growing};
use crate::bytes::granule_bytes;
use crate::error::{Failure, GRANULE_INVALID_ARGUMENT, GRANULE_NO_BACKEND, GRANULE_SETTINGS, granule_status};
use backend_c::{CBackend, Table};
use granule::CachingAllocator;
use granule::backend::Backend;
use granule::backends::{self, ChoiceError, Name};
use granule::config::{
    ConfigError, Flavour, Grammar, Parsed, PolicyName, PytorchRelease, Settings, environment, options,
    pytorch, strict,
};
use granule::oom::HostRoom;
use granule::system::System;
use granule::types::{BackendId, DeviceIndex, DeviceKind, Stream};
use recording::Recording;
use std::ffi::{CString, c_char};
use std::sync::Arc;
use tenants::Tenants;

/// An allocator for every device of one backend. Any thread may use it at any time.
pub struct granule_allocator {
    /// Before the engine, whose figures it writes when it goes.
    pub(crate) recording: Recording,
    pub(crate) engine: Arc<CachingAllocator>,
    /// What the engine's streams carry.
    backend: BackendId,
    name: CString,
    pub(crate) tenants: Arc<Tenants>,
    /// Lives as long as the process, and no program ends it.
    is_shared: bool,
}

handles!(granule_allocator);

/// A vendor's backend: see granule_backend.h.
pub struct granule_backend_table {
    _opaque: (),
}

/// How an allocator is made. All null is the usual way.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_options {
    /// sizeof(granule_options).
    pub size: u32,
    /// "cuda", "hip", "hip-as-cuda" or "openreg". Null: what the variable GRANULE_BACKEND names, else the first of cuda, hip
    /// and (where hip is not compiled in) hip-as-cuda that has a device. The simulated openreg is used only where it is named.
    pub backend: *const c_char,
    /// Settings as in PYTORCH_CUDA_ALLOC_CONF or, where an option of Granule's own is among them, GRANULE_CONF. Null: those of
    /// the environment. policy:granule and policy:pytorch (the default) name the rules by which memory is placed.
    pub settings: *const c_char,
    /// A backend in C. backend is null then.
    pub table: *const granule_backend_table,
    /// The release of PyTorch that policy:pytorch decides as where settings do not name one with pytorch_release: "2.13.1".
    /// 2.12 is decided as 2.13, one before 2.11 as 2.11. Null, and a release that is not known, is the newest that is.
    pub pytorch_release: *const c_char,
}

growing!(granule_options);

impl granule_allocator {
    fn new(
        backend: Arc<dyn Backend>,
        name: &str,
        settings: Option<&str>,
        release: Option<&str>,
    ) -> Result<Self, Failure> {
        log::start();
        let mut settings = match settings {
            Some(text) => read_settings(text, &Settings::default(), flavour(&*backend))?,
            None => settled(environment::from_env(flavour(&*backend)))?,
        };
        let usual = settings.policy_name() == PolicyName::Pytorch && settings.pytorch_release.is_none();
        let release = release.filter(|_| usual).and_then(PytorchRelease::about);
        settings.pytorch_release =
            settings.pytorch_release.or(release.filter(|r| *r != PytorchRelease::default()));
        let id = backend.id();
        tracing::info!(backend = name, "an allocator is made");
        let name = CString::new(name).unwrap_or_default();
        let engine = Arc::new(CachingAllocator::new(backend, settings)?);
        let recording = Recording::from_env(&engine)?;
        Ok(Self { engine, backend: id, name, tenants: Arc::default(), recording, is_shared: false })
    }

    /// The process's own: of the backend and the settings that the environment asks for.
    pub(crate) fn shared() -> Result<Self, Failure> {
        let (backend, name) = choose(None)?;
        Ok(Self { is_shared: true, ..Self::new(backend, name.as_str(), None, None)? })
    }

    /// A stream of this backend by the driver's handle.
    #[inline(always)]
    pub(crate) fn stream(&self, device: i32, raw: u64) -> Result<Stream, Failure> {
        Ok(Stream { raw, device: pass::device(device)?, backend: self.backend })
    }

    /// A device that there is, for calls that go to the driver by themselves; refused at the edges of the process.
    pub(crate) fn usable_device(&self, device: i32) -> Result<DeviceIndex, Failure> {
        usable(&self.engine, pass::device(device)?)
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &**self.engine.backend()
    }
}

/// A device that may be given to the driver: it is there, and the process is at no edge.
pub(crate) fn usable(engine: &CachingAllocator, device: DeviceIndex) -> Result<DeviceIndex, Failure> {
    // A device reaches itself, without asking the driver.
    engine.peers().can_access(device, device)?;
    Ok(device)
}

pub(crate) fn flavour(backend: &dyn Backend) -> Flavour {
    if backend.kind() == DeviceKind::Hip { Flavour::Hip } else { Flavour::Cuda }
}

/// Reads a text on top of `previous`: as PyTorch does, or, where it names an option that PyTorch does not have, in
/// Granule's own grammar. What neither has is refused with the names that there are.
pub(crate) fn read_settings(text: &str, previous: &Settings, flavour: Flavour) -> Result<Settings, Failure> {
    let own = |word: &str| options().iter().any(|o| o.grammar == Grammar::Granule && o.name == word.trim());
    let parsed = if text.split([',', ':']).any(own) {
        strict::parse(text, previous)
    } else {
        pytorch::parse(text, previous, flavour).map_err(|error| match strict::parse(text, previous) {
            Err(strict) if error.option().is_none() && strict.option().is_none() => strict,
            _ => error,
        })
    };
    settled(parsed)
}

fn settled(parsed: Result<Parsed, ConfigError>) -> Result<Settings, Failure> {
    let Parsed { settings, warnings } =
        parsed.map_err(|error| Failure::own(GRANULE_SETTINGS, error.to_string()))?;
    for warning in &warnings {
        tracing::warn!(%warning, "settings");
    }
    Ok(settings)
}

/// The backend that is named, or the first real one.
fn choose(name: Option<&str>) -> Result<(Arc<dyn Backend>, Name), Failure> {
    let refused = |error: ChoiceError| Failure::own(GRANULE_NO_BACKEND, error.to_string());
    let name = name.map(Name::parse).transpose().map_err(refused)?;
    let chosen = backends::choose(name).map_err(refused)?;
    Ok((chosen.backend, chosen.name))
}

/// A vendor's backend.
///
/// # Safety
/// What granule_backend.h says of the table.
unsafe fn of_table(table: *const granule_backend_table) -> Result<Arc<dyn Backend>, Failure> {
    // SAFETY: the caller's promise.
    let made = unsafe { CBackend::from_table(None, DeviceKind::PrivateUse1, table.cast::<Table>()) };
    Ok(made.map_err(|error| Failure::own(GRANULE_INVALID_ARGUMENT, error.to_string()))?)
}

/// Makes an allocator. May block while a driver starts. Options may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_allocator_create(
    options: *const granule_options,
    out: *mut *mut granule_allocator,
) -> granule_status {
    guard(|| {
        let out = given!(out out);
        let options = match options.is_null() {
            true => None,
            false => Some(given!(sized options)),
        };
        let (mut backend, mut settings, mut table, mut release) = (None, None, std::ptr::null(), None);
        if let Some(granule_options {
            backend: name, settings: text, table: given, pytorch_release, ..
        }) = options
        {
            (backend, settings, table) = (given!(optional_text name), given!(optional_text text), given);
            release = given!(optional_text pytorch_release);
        }
        let made = if table.is_null() {
            let (backend, name) = choose(backend)?;
            granule_allocator::new(backend, name.as_str(), settings, release)?
        } else if backend.is_some() {
            return Err(Failure::argument("backend and table are both given: name one of them"));
        } else {
            // SAFETY: what callers promise of a table, by the vendor's header.
            let backend = unsafe { of_table(table) }?;
            let name = backend.name();
            granule_allocator::new(backend, name, settings, release)?
        };
        out.set(new_handle(made));
        Ok(())
    })
}

/// Ends an allocator; null is fine. What is cached goes back to the device; what the program still has is lost to it. Scopes,
/// imports, host allocators and snapshots made from it stay good, and keep the engine alive until they end. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_allocator_destroy(a: *mut granule_allocator) -> granule_status {
    guard(|| {
        if !a.is_null() && given!(handle a).is_shared {
            return Err(Failure::argument(
                "a is the process's allocator (granule_pluggable_allocator): it is borrowed",
            ));
        }
        drop(given!(taken a));
        Ok(())
    })
}

/// Says that the driver is about to be unloaded, or its device reset: it is never called again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_abandon(a: *mut granule_allocator) -> granule_status {
    guard(|| {
        given!(handle a).engine.abandon();
        Ok(())
    })
}

/// The backend's name: "cuda", "hip", "hip-as-cuda", "openreg", or what a table calls itself ("vendor" where it does not
/// say). It lives as long as the allocator. Null where the allocator is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_backend_name(a: *const granule_allocator) -> *const c_char {
    or(std::ptr::null(), || Ok(given!(handle a).name.as_ptr()))
}

/// How many devices there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_device_count(a: *const granule_allocator, out: *mut i32) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(i32::from(a.engine.device_count()));
        Ok(())
    })
}

/// Replaces settings of all devices, as PyTorch does when a program passes it a text: max_split_size_mb,
/// max_non_split_rounding_mb, garbage_collection_threshold and roundup_power2_divisions fall back to their defaults where the text
/// does not name them. Where it names an option of Granule's own, all that is not named stays. The policy is chosen when an
/// allocator is made: a text that names another one is refused (GRANULE_SETTINGS), and changes nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_configure(
    a: *mut granule_allocator,
    settings: *const c_char,
) -> granule_status {
    guard(|| {
        let (a, text) = (given!(handle a), given!(text settings));
        let next = read_settings(text, &a.engine.settings(), flavour(a.backend()))?;
        Ok(a.engine.configure(next)?)
    })
}

/// Changes what the text names and nothing else, in Granule's own grammar, where nothing is tolerated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_configure_strictly(
    a: *mut granule_allocator,
    settings: *const c_char,
) -> granule_status {
    guard(|| {
        let (a, text) = (given!(handle a), given!(text settings));
        let next = settled(strict::parse(text, &a.engine.settings()))?;
        Ok(a.engine.configure(next)?)
    })
}

/// The text that was read last; empty for the defaults. Where granule_configure was called, settings of earlier texts may be in
/// force beside it: granule_settings_in_force has all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_settings(
    a: *const granule_allocator,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        out.set(granule_bytes::new(a.engine.settings().text));
        Ok(())
    })
}

/// The settings in force that are not the defaults, as a text that granule_configure_strictly takes; empty for the defaults.
/// GRANULE_SETTINGS where a value cannot be written as text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_settings_in_force(
    a: *const granule_allocator,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let text = a.engine.settings().to_strict_text();
        let text = text.map_err(|error| Failure::own(GRANULE_SETTINGS, error.to_string()))?;
        out.set(granule_bytes::new(text));
        Ok(())
    })
}

/// Reads settings, or with null those that the environment asks for, as granule_allocator_create would, and says what is
/// wrong with them without making an allocator. A host_reserve of all the host's memory is refused, whether or not the devices share
/// that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_check_settings(settings: *const c_char) -> granule_status {
    guard(|| {
        let read = match given!(optional_text settings) {
            Some(text) => read_settings(text, &Settings::default(), Flavour::Cuda)?,
            None => settled(environment::from_env(Flavour::Cuda))?,
        };
        let system = System::at(&read.system_root);
        let checked = read.validate().and_then(|()| system.problem().map_or(Ok(()), Err));
        let checked = checked.and_then(|()| HostRoom::of(&system, &read).map(drop));
        checked.map_err(|text| Failure::own(GRANULE_SETTINGS, text))
    })
}
