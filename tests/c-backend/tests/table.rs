//! What Granule makes of tables that are old, incomplete, or whose functions fail.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::{Backend, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::oom::OomReport;
use alloc_core::snapshot::Value;
use alloc_core::types::{BackendId, DeviceIndex, DeviceKind, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_c::{CBackend, HostCallback, RawShareableHandle, RawStream, Table, TableError, VERSION};
use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const DEVICE: DeviceIndex = DeviceIndex(0);

/// A copy of the example's table, changed.
fn changed(change: impl FnOnce(&mut Table)) -> Table {
    // SAFETY: the example's table is static and whole.
    let mut table = unsafe { c_backend::table().read() };
    change(&mut table);
    table
}

fn open(table: &Table) -> Result<Arc<CBackend>, TableError> {
    // SAFETY: the example's functions, or functions of this file that keep the header's word.
    unsafe { CBackend::from_table("example", DeviceKind::PrivateUse1, table) }
}

#[test]
fn the_header_and_the_rust_struct_have_one_size() {
    assert_eq!(changed(|_| {}).size, size_of::<Table>() as u64);
    assert_eq!(changed(|_| {}).version, VERSION);
}

#[test]
fn a_table_from_an_older_header_is_taken_and_its_tail_is_not_read() {
    // A whole table in memory, whose size says that it ends before the optional part.
    let table = changed(|table| {
        table.size = offset_of!(Table, error_name) as u64;
        table.elapsed_ms = Some(elapsed_is_never_called);
    });
    let backend = open(&table).unwrap();
    let event = backend.create_event(DEVICE, Default::default()).unwrap();
    assert_eq!(backend.elapsed_ms(event, event).unwrap_err().kind, ErrorKind::NotSupported);
    assert_eq!(backend.error_name(1), "unknown");
}

unsafe extern "C" fn elapsed_is_never_called(
    _: *mut c_void,
    _: backend_c::RawEvent,
    _: backend_c::RawEvent,
    _: *mut f32,
) -> i32 {
    0
}

#[test]
fn a_larger_table_of_this_version_is_taken() {
    #[repr(C)]
    struct Newer {
        table: Table,
        more: [u64; 4],
    }
    let newer = Newer { table: changed(|t| t.size = size_of::<Newer>() as u64), more: [7; 4] };
    assert_eq!(newer.more[0], 7);
    // SAFETY: `Newer` has the size that its first field says.
    let opened = unsafe { CBackend::from_table("newer", DeviceKind::PrivateUse1, (&raw const newer).cast()) };
    assert_eq!(opened.unwrap().device_count().unwrap(), 2);
}

#[test]
fn tables_that_cannot_be_read_are_refused() {
    // SAFETY: null is allowed.
    let null = unsafe { CBackend::from_table("null", DeviceKind::PrivateUse1, std::ptr::null()) };
    assert_eq!(null.unwrap_err(), TableError::Pointer);
    let version = open(&changed(|t| t.version = VERSION + 1)).unwrap_err();
    assert_eq!(version, TableError::Version { found: VERSION + 1 });
    for size in [0, 24, 36] {
        let refused = open(&changed(|t| t.size = size)).unwrap_err();
        assert_eq!(refused, TableError::Size { found: size, least: 32 });
    }
}

/// Version 1 had more functions, and other numbers for attributes and flags.
#[test]
fn a_vendors_table_of_version_1_is_refused_and_told_what_to_do() {
    const FUNCTIONS: usize = 84;
    let mut old = [0_u64; FUNCTIONS + 6];
    (old[0], old[1]) = (size_of_val(&old) as u64, 1);
    // SAFETY: the table has the size that its first field says.
    let opened = unsafe { CBackend::from_table("old", DeviceKind::PrivateUse1, old.as_ptr().cast()) };
    let refused = opened.unwrap_err();
    assert_eq!(refused, TableError::Version { found: 1 });
    assert_eq!(
        refused.to_string(),
        "the table has version 1, and this Granule reads version 2: compile the backend anew with this Granule's \
         granule_backend.h"
    );
}

#[test]
fn all_missing_required_functions_are_named() {
    let table = changed(|t| (t.malloc, t.query_event) = (None, None));
    let refused = open(&table).unwrap_err();
    assert_eq!(refused, TableError::Missing(vec!["malloc", "query_event"]));
    assert_eq!(refused.to_string(), "the table lacks required functions: malloc, query_event");
}

#[test]
fn a_family_is_absent_until_its_last_function_is_there_and_the_reason_names_it() {
    unsafe extern "C" fn reach(_: *mut c_void, _: u16, _: u16, answer: *mut u8) -> i32 {
        // SAFETY: the caller passes room for the answer.
        unsafe { answer.write(1) };
        0
    }
    unsafe extern "C" fn enable(_: *mut c_void, _: u16, _: u16) -> i32 {
        0
    }
    unsafe extern "C" fn copy(_: *mut c_void, _: u16, _: u64, _: u16, _: u64, _: u64, _: RawStream) -> i32 {
        0
    }
    let whole = changed(|t| {
        t.peers_can_access = Some(reach);
        t.peers_enable_access = Some(enable);
        t.peers_copy_peer_async = Some(copy);
    });
    assert!(open(&whole).unwrap().peers().unwrap().can_access(DEVICE, DeviceIndex(1)).unwrap());
    let part = Table { peers_enable_access: None, ..whole };
    let absent = open(&part).unwrap().peers().unwrap_err();
    assert_eq!(absent.reason, "the table of example lacks peers_enable_access");
    let none = open(&changed(|_| {})).unwrap().ipc().unwrap_err();
    assert!(none.reason.contains("has none of its functions"), "{none}");
}

#[test]
fn a_chip_without_pinning_leaves_it_out() {
    let backend = open(&changed(|t| (t.host_malloc, t.host_free) = (None, None))).unwrap();
    let absent = backend.pinned_host().unwrap_err();
    assert_eq!(absent.family, "pinned host memory");
    assert!(absent.reason.contains("has none of its functions (host_malloc, ...)"), "{absent}");
    assert!(open(&changed(|_| {})).unwrap().pinned_host().is_ok());
}

/// The functions are there and never called.
/// Entries of virtual memory that do nothing.
mod idle {
    use super::*;

    pub(super) unsafe extern "C" fn granularity(_: *mut c_void, _: u16, _: i32, _: *mut u64) -> i32 {
        0
    }
    pub(super) unsafe extern "C" fn reserve(
        _: *mut c_void,
        _: u16,
        _: u64,
        _: u64,
        _: u64,
        _: *mut u64,
    ) -> i32 {
        0
    }
    pub(super) unsafe extern "C" fn range(_: *mut c_void, _: u64, _: u64) -> i32 {
        0
    }
    pub(super) unsafe extern "C" fn create(_: *mut c_void, _: u16, _: u64, _: i32, _: *mut u64) -> i32 {
        0
    }
    pub(super) unsafe extern "C" fn release(_: *mut c_void, _: u64) -> i32 {
        0
    }
    pub(super) unsafe extern "C" fn map(_: *mut c_void, _: u64, _: u64, _: u64) -> i32 {
        0
    }
    pub(super) unsafe extern "C" fn set(
        _: *mut c_void,
        _: u64,
        _: u64,
        _: *const u16,
        _: u64,
        _: i32,
    ) -> i32 {
        0
    }
    pub(super) unsafe extern "C" fn access(_: *mut c_void, _: u64, _: u16, _: *mut i32) -> i32 {
        0
    }
    pub(super) unsafe extern "C" fn export(
        _: *mut c_void,
        _: u64,
        _: i32,
        _: *mut RawShareableHandle,
    ) -> i32 {
        0
    }
    pub(super) unsafe extern "C" fn import(
        _: *mut c_void,
        _: u16,
        _: *const RawShareableHandle,
        _: *mut u64,
    ) -> i32 {
        0
    }
}

#[test]
fn memory_that_cannot_leave_the_process_is_virtual_memory_all_the_same() {
    use idle::*;
    let private = changed(|t| {
        t.virtual_memory_granularity = Some(granularity);
        t.virtual_memory_reserve_address = Some(reserve);
        t.virtual_memory_release_address = Some(range);
        t.virtual_memory_create_physical = Some(create);
        t.virtual_memory_release_physical = Some(release);
        t.virtual_memory_map = Some(map);
        t.virtual_memory_unmap = Some(range);
        t.virtual_memory_set_access = Some(set);
        t.virtual_memory_access = Some(access);
    });
    let backend = open(&private).unwrap();
    assert!(backend.virtual_memory().is_ok());
    assert_eq!(backend.physical_sharing().unwrap_err().family, "sharing of physical memory");
    let shared = Table { virtual_memory_export_physical: Some(export), ..private };
    let absent = open(&shared).unwrap().physical_sharing().unwrap_err();
    assert_eq!(absent.reason, "the table of example lacks virtual_memory_import_physical");
    let shared = Table { virtual_memory_import_physical: Some(import), ..shared };
    assert!(open(&shared).unwrap().physical_sharing().is_ok());
    let alone = Table { virtual_memory_map: None, ..shared };
    assert_eq!(open(&alone).unwrap().physical_sharing().unwrap_err().family, "virtual memory");
}

/// The report of a request for more than there is.
fn refused(backend: Arc<CBackend>) -> OomReport {
    let stream = backend.default_stream(DEVICE);
    let allocator = CachingAllocator::new(backend, Settings::default()).unwrap();
    match allocator.malloc(1 << 40, stream).unwrap_err() {
        AllocError::OutOfMemory(report) => *report,
        other => panic!("{other}"),
    }
}

#[test]
fn errors_and_snapshots_name_the_vendor_and_not_pytorch() {
    let opened = |name: *const c_char, label: *const c_char| {
        let table = changed(|t| (t.name, t.label) = (name, label));
        // SAFETY: the example's functions, and literals.
        unsafe { CBackend::from_table(None, DeviceKind::PrivateUse1, &raw const table) }.unwrap()
    };
    let null = std::ptr::null();
    for (name, label, called) in [
        (c"npu".as_ptr(), c"Acme NPU".as_ptr(), ("npu", "Acme NPU")),
        (c"npu".as_ptr(), null, ("npu", "NPU")),
        (c"".as_ptr(), null, ("vendor", "VENDOR")),
    ] {
        let backend = opened(name, label);
        assert_eq!((backend.name(), backend.label()), called);
        let text = refused(backend).to_string();
        let start = format!(
            "{} out of memory. Tried to allocate 1024.00 GiB. Device 0 ({}) has a total capacity of",
            called.1, called.0
        );
        assert!(text.starts_with(&start), "{text}");
        for word in ["PyTorch", "PYTORCH", "GPU", "torch", "expandable_segments:True"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
    let backend = opened(c"npu".as_ptr(), null);
    let allocator = CachingAllocator::new(backend, Settings::default()).unwrap();
    let said = allocator.snapshot(false).allocator_settings;
    let of = |key: &str| said.iter().find(|(name, _)| &**name == key).map(|(_, value)| value.clone());
    assert_eq!(
        (of("backend"), of("label")),
        (Some(Value::Str("npu".into())), Some(Value::Str("NPU".into())))
    );
    assert_eq!((of("GRANULE_CONF"), of("PYTORCH_CUDA_ALLOC_CONF")), (Some(Value::Str("".into())), None));
}

#[test]
fn errors_say_what_the_driver_calls_them_and_whose_they_are() {
    unsafe extern "C" fn lost(_: *mut c_void, _: u16) -> i32 {
        8 // GRANULE_BACKEND_DEVICE_LOST
    }
    unsafe extern "C" fn last_error(_: *mut c_void, code: *mut i32, _: *mut c_char, _: u64) {
        // SAFETY: the caller passes room for a number.
        unsafe { code.write(77) };
    }
    unsafe extern "C" fn error_name(_: *mut c_void, _: i32) -> *const c_char {
        c"NPU_E_BURNT".as_ptr()
    }
    let table = changed(|t| {
        t.name = c"npu".as_ptr();
        t.synchronize_device = Some(lost);
        t.last_error = Some(last_error);
        t.error_name = Some(error_name);
    });
    // SAFETY: the example's functions and those above, which keep the header's word.
    let backend = unsafe { CBackend::from_table(None, DeviceKind::PrivateUse1, &raw const table) }.unwrap();
    let error = backend.synchronize_device(DEVICE).unwrap_err();
    let text = "npu: synchronize_device failed on device 0: NPU_E_BURNT (DeviceLost, driver code 77)";
    assert_eq!(error.to_string(), text);
}

#[test]
fn more_devices_than_the_contract_allows_are_refused_and_not_dropped() {
    unsafe extern "C" fn many(_: *mut c_void, answer: *mut u16) -> i32 {
        // SAFETY: the caller passes room for the answer.
        unsafe { answer.write(300) };
        0
    }
    let backend = open(&changed(|t| t.device_count = Some(many))).unwrap();
    let refused = CachingAllocator::new(backend, Settings::default()).unwrap_err().to_string();
    assert!(refused.contains("there are 300, and the device contract allows 256"), "{refused}");
}

#[test]
fn handles_of_another_backend_never_reach_c() {
    let (one, other) = (open(&changed(|_| {})).unwrap(), open(&changed(|_| {})).unwrap());
    assert_ne!(one.id(), other.id());
    let stream = other.create_stream(DEVICE, 0).unwrap();
    assert_eq!(one.query_stream(stream).unwrap_err().kind, ErrorKind::InvalidValue);
    let foreign = Stream { raw: 0, device: DEVICE, backend: BackendId(0) };
    assert_eq!(one.synchronize_stream(foreign).unwrap_err().kind, ErrorKind::InvalidValue);
    // SAFETY: rule 1: made by this backend, destroyed once.
    unsafe { other.destroy_stream(stream) }.unwrap();
}

#[test]
fn a_failure_carries_the_kind_the_drivers_number_and_its_text() {
    unsafe extern "C" fn full(_: *mut c_void, _: u16, _: u64, _: *mut u64) -> i32 {
        2 // GRANULE_BACKEND_OUT_OF_MEMORY
    }
    unsafe extern "C" fn odd(_: *mut c_void, _: u16) -> i32 {
        99
    }
    unsafe extern "C" fn last_error(_: *mut c_void, code: *mut i32, text: *mut c_char, capacity: u64) {
        let said = c"no room";
        assert!(capacity as usize > said.count_bytes());
        // SAFETY: the caller passes room for a number.
        unsafe { code.write(-7) };
        // SAFETY: the text with its 0 fits, as was just asserted.
        unsafe { text.copy_from_nonoverlapping(said.as_ptr(), said.count_bytes() + 1) };
    }
    let silent = changed(|t| {
        t.malloc = Some(full);
        t.synchronize_device = Some(odd);
    });
    let silent = open(&silent).unwrap();
    let error = silent.malloc(DEVICE, 512).unwrap_err();
    assert_eq!((error.kind, error.code, error.call), (ErrorKind::OutOfMemory, 0, "malloc"));
    let error = silent.synchronize_device(DEVICE).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Other);
    assert!(error.detail.contains("99"), "{error}");
    let telling = changed(|t| {
        t.malloc = Some(full);
        t.last_error = Some(last_error);
    });
    let error = open(&telling).unwrap().malloc(DEVICE, 512).unwrap_err();
    assert_eq!((error.kind, error.code, error.detail.as_str()), (ErrorKind::OutOfMemory, -7, "no room"));
}

#[test]
fn an_answer_that_is_no_value_of_the_contract_is_an_error() {
    unsafe extern "C" fn silent(_: *mut c_void, _: u64, answer: *mut backend_c::RawPointerInfo) -> i32 {
        let nonsense = backend_c::RawPointerInfo { kind: 77, device: -1, base: 0 };
        // SAFETY: the caller passes room for the answer.
        unsafe { answer.write(nonsense) };
        0
    }
    let backend = open(&changed(|t| t.pointer_info = Some(silent))).unwrap();
    let error = backend.pointer_info(alloc_core::types::DevicePtr(64)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Other);
}

/// Counts its drops.
struct Counted(Arc<AtomicU32>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_host_function_is_freed_once_whether_it_runs_panics_or_is_refused() {
    unsafe extern "C" fn refuse(_: *mut c_void, _: RawStream, _: HostCallback, _: *mut c_void) -> i32 {
        5 // GRANULE_BACKEND_NOT_SUPPORTED
    }
    let backend = open(&changed(|_| {})).unwrap();
    let refusing = open(&changed(|t| t.launch_host_function = Some(refuse))).unwrap();
    let stream = backend.create_stream(DEVICE, 0).unwrap();
    let drops = Arc::new(AtomicU32::new(0));
    let runs = Arc::new(AtomicU32::new(0));

    let (counted, ran) = (Counted(Arc::clone(&drops)), Arc::clone(&runs));
    let work = Box::new(move || {
        let _mine = counted;
        ran.fetch_add(1, Ordering::SeqCst);
    });
    backend.launch_host_function(stream, work).unwrap();
    backend.synchronize_stream(stream).unwrap();
    assert_eq!((runs.load(Ordering::SeqCst), drops.load(Ordering::SeqCst)), (1, 1));

    let counted = Counted(Arc::clone(&drops));
    let panics = Box::new(move || {
        let _mine = counted;
        std::panic::panic_any("a panic that must not reach C");
    });
    backend.launch_host_function(stream, panics).unwrap();
    backend.synchronize_stream(stream).unwrap();
    assert_eq!(drops.load(Ordering::SeqCst), 2);

    // By C, and before C: a stream of another backend.
    for (through, stream) in [(&refusing, refusing.default_stream(DEVICE)), (&refusing, stream)] {
        let counted = Counted(Arc::clone(&drops));
        let before = drops.load(Ordering::SeqCst);
        assert!(through.launch_host_function(stream, Box::new(move || drop(counted))).is_err());
        assert_eq!(drops.load(Ordering::SeqCst), before + 1);
    }
    // SAFETY: rule 1: made by this backend, destroyed once.
    unsafe { backend.destroy_stream(stream) }.unwrap();
}

#[test]
fn two_owners_of_one_label_refuse_each_other() {
    let table = changed(|_| {});
    // SAFETY: the example's table.
    let owner = unsafe { CBackend::from_table("one", DeviceKind::Hip, &raw const table) }.unwrap();
    // SAFETY: as above.
    let refused = unsafe { CBackend::from_table("two", DeviceKind::Hip, &raw const table) }.unwrap_err();
    assert!(matches!(refused, TableError::Label(_)), "{refused}");
    drop(owner);
    // SAFETY: as above.
    assert!(unsafe { CBackend::from_table("two", DeviceKind::Hip, &raw const table) }.is_ok());
}
