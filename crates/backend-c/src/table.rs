//! The table of functions, and the numbers that they answer with.
//!
//! Generated from the `Backend` trait by `cargo xtask codegen`. Do not edit.

use crate::host_function::HostCallback;
use crate::values::*;
use backend_api::types::*;
use backend_api::*;
use std::ffi::{c_char, c_void};

/// A backend's functions. The C header says what each does; `granule_backend_table` is its name there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// `sizeof(granule_backend_table)` when the vendor compiled it.
    pub size: u64,
    /// [`VERSION`](crate::VERSION).
    pub version: u64,
    /// First argument of every function.
    pub context: *mut c_void,
    /// What the driver said of the calling thread's last failure. May be `None`.
    pub last_error:
        Option<unsafe extern "C" fn(context: *mut c_void, code: *mut i32, text: *mut c_char, capacity: u64)>,
    /// [`Backend::device_count`].
    pub device_count:
        Option<unsafe extern "C" fn(context: *mut c_void, answer: *mut <u16 as Value>::Raw) -> i32>,
    /// [`Backend::current_device`].
    pub current_device:
        Option<unsafe extern "C" fn(context: *mut c_void, answer: *mut <DeviceIndex as Value>::Raw) -> i32>,
    /// [`Backend::set_device`].
    pub set_device: Option<unsafe extern "C" fn(context: *mut c_void, device: u16) -> i32>,
    /// [`Backend::synchronize_device`].
    pub synchronize_device: Option<unsafe extern "C" fn(context: *mut c_void, device: u16) -> i32>,
    /// [`Backend::malloc`].
    pub malloc: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            bytes: u64,
            answer: *mut <DevicePtr as Value>::Raw,
        ) -> i32,
    >,
    /// [`Backend::free`].
    pub free: Option<unsafe extern "C" fn(context: *mut c_void, device: u16, ptr: u64) -> i32>,
    /// [`Backend::memory_info`].
    pub memory_info: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            answer: *mut <MemoryInfo as Value>::Raw,
        ) -> i32,
    >,
    /// [`Backend::pointer_info`].
    pub pointer_info: Option<
        unsafe extern "C" fn(context: *mut c_void, ptr: u64, answer: *mut <PointerInfo as Value>::Raw) -> i32,
    >,
    /// [`Backend::address_range`].
    pub address_range: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            ptr: u64,
            answer: *mut <AddressRange as Value>::Raw,
        ) -> i32,
    >,
    /// [`Backend::copy_async`].
    pub copy_async: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            dst: u64,
            src: u64,
            bytes: u64,
            kind: i32,
            stream: RawStream,
        ) -> i32,
    >,
    /// [`Backend::memset_async`].
    pub memset_async: Option<
        unsafe extern "C" fn(context: *mut c_void, dst: u64, value: u8, bytes: u64, stream: RawStream) -> i32,
    >,
    /// [`Backend::create_stream`].
    pub create_stream: Option<
        unsafe extern "C" fn(context: *mut c_void, device: u16, priority: i32, answer: *mut u64) -> i32,
    >,
    /// [`Backend::destroy_stream`].
    pub destroy_stream: Option<unsafe extern "C" fn(context: *mut c_void, stream: RawStream) -> i32>,
    /// [`Backend::query_stream`].
    pub query_stream: Option<unsafe extern "C" fn(context: *mut c_void, stream: RawStream) -> i32>,
    /// [`Backend::synchronize_stream`].
    pub synchronize_stream: Option<unsafe extern "C" fn(context: *mut c_void, stream: RawStream) -> i32>,
    /// [`Backend::wait_event`].
    pub wait_event:
        Option<unsafe extern "C" fn(context: *mut c_void, stream: RawStream, event: RawEvent) -> i32>,
    /// [`Backend::launch_host_function`].
    pub launch_host_function: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            stream: RawStream,
            function: HostCallback,
            argument: *mut c_void,
        ) -> i32,
    >,
    /// [`Backend::create_event`].
    pub create_event:
        Option<unsafe extern "C" fn(context: *mut c_void, device: u16, flags: u32, answer: *mut u64) -> i32>,
    /// [`Backend::destroy_event`].
    pub destroy_event: Option<unsafe extern "C" fn(context: *mut c_void, event: RawEvent) -> i32>,
    /// [`Backend::record_event`].
    pub record_event:
        Option<unsafe extern "C" fn(context: *mut c_void, event: RawEvent, stream: RawStream) -> i32>,
    /// [`Backend::query_event`].
    pub query_event: Option<unsafe extern "C" fn(context: *mut c_void, event: RawEvent) -> i32>,
    /// [`Backend::synchronize_event`].
    pub synchronize_event: Option<unsafe extern "C" fn(context: *mut c_void, event: RawEvent) -> i32>,
    /// [`PinnedHost::host_malloc`].
    pub host_malloc: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            bytes: u64,
            flags: u32,
            answer: *mut <DevicePtr as Value>::Raw,
        ) -> i32,
    >,
    /// [`PinnedHost::host_free`].
    pub host_free: Option<unsafe extern "C" fn(context: *mut c_void, ptr: u64) -> i32>,
    /// [`Backend::error_name`].
    pub error_name: Option<unsafe extern "C" fn(context: *mut c_void, code: i32) -> *const c_char>,
    /// [`Backend::clear_error`].
    pub clear_error: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// [`Backend::has_primary_context`].
    pub has_primary_context: Option<
        unsafe extern "C" fn(context: *mut c_void, device: u16, answer: *mut <bool as Value>::Raw) -> i32,
    >,
    /// [`Backend::attribute`].
    pub attribute: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            attribute: i32,
            answer: *mut <i64 as Value>::Raw,
        ) -> i32,
    >,
    /// [`Backend::properties`].
    pub properties: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            answer: *mut <DeviceProperties as Value>::Raw,
        ) -> i32,
    >,
    /// [`Backend::copy`].
    pub copy:
        Option<unsafe extern "C" fn(context: *mut c_void, dst: u64, src: u64, bytes: u64, kind: i32) -> i32>,
    /// [`Backend::priority_range`].
    pub priority_range: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            answer: *mut <PriorityRange as Value>::Raw,
        ) -> i32,
    >,
    /// [`Backend::elapsed_ms`].
    pub elapsed_ms: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            start: RawEvent,
            end: RawEvent,
            answer: *mut <f32 as Value>::Raw,
        ) -> i32,
    >,
    /// [`VirtualMemory::granularity`].
    pub virtual_memory_granularity: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            which: i32,
            answer: *mut <u64 as Value>::Raw,
        ) -> i32,
    >,
    /// [`VirtualMemory::reserve_address`].
    pub virtual_memory_reserve_address: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            bytes: u64,
            alignment: u64,
            hint: u64,
            answer: *mut <DevicePtr as Value>::Raw,
        ) -> i32,
    >,
    /// [`VirtualMemory::release_address`].
    pub virtual_memory_release_address:
        Option<unsafe extern "C" fn(context: *mut c_void, base: u64, bytes: u64) -> i32>,
    /// [`VirtualMemory::create_physical`].
    pub virtual_memory_create_physical: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            bytes: u64,
            handle_type: i32,
            answer: *mut u64,
        ) -> i32,
    >,
    /// [`VirtualMemory::release_physical`].
    pub virtual_memory_release_physical:
        Option<unsafe extern "C" fn(context: *mut c_void, handle: u64) -> i32>,
    /// [`VirtualMemory::map`].
    pub virtual_memory_map:
        Option<unsafe extern "C" fn(context: *mut c_void, at: u64, bytes: u64, handle: u64) -> i32>,
    /// [`VirtualMemory::unmap`].
    pub virtual_memory_unmap: Option<unsafe extern "C" fn(context: *mut c_void, at: u64, bytes: u64) -> i32>,
    /// [`VirtualMemory::set_access`].
    pub virtual_memory_set_access: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            at: u64,
            bytes: u64,
            devices: *const u16,
            device_count: u64,
            access: i32,
        ) -> i32,
    >,
    /// [`VirtualMemory::access`].
    pub virtual_memory_access: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            at: u64,
            device: u16,
            answer: *mut <Access as Value>::Raw,
        ) -> i32,
    >,
    /// [`PhysicalSharing::export_physical`].
    pub virtual_memory_export_physical: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            handle: u64,
            handle_type: i32,
            answer: *mut <ShareableHandle as Value>::Raw,
        ) -> i32,
    >,
    /// [`PhysicalSharing::import_physical`].
    pub virtual_memory_import_physical: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            shared: *const RawShareableHandle,
            answer: *mut u64,
        ) -> i32,
    >,
    /// [`Ipc::export_memory`].
    pub ipc_export_memory: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            base: u64,
            answer: *mut <IpcMemoryHandle as Value>::Raw,
        ) -> i32,
    >,
    /// [`Ipc::open_memory`].
    pub ipc_open_memory: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            handle: *const RawIpcHandle,
            answer: *mut <DevicePtr as Value>::Raw,
        ) -> i32,
    >,
    /// [`Ipc::close_memory`].
    pub ipc_close_memory: Option<unsafe extern "C" fn(context: *mut c_void, ptr: u64) -> i32>,
    /// [`Peers::can_access`].
    pub peers_can_access: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            from: u16,
            to: u16,
            answer: *mut <bool as Value>::Raw,
        ) -> i32,
    >,
    /// [`Peers::enable_access`].
    pub peers_enable_access: Option<unsafe extern "C" fn(context: *mut c_void, from: u16, to: u16) -> i32>,
    /// [`Peers::copy_peer_async`].
    pub peers_copy_peer_async: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            dst_device: u16,
            dst: u64,
            src_device: u16,
            src: u64,
            bytes: u64,
            stream: RawStream,
        ) -> i32,
    >,
    /// [`Capture::status`].
    pub capture_status: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            stream: RawStream,
            answer: *mut <CaptureStatus as Value>::Raw,
        ) -> i32,
    >,
    /// [`Capture::begin`].
    pub capture_begin:
        Option<unsafe extern "C" fn(context: *mut c_void, stream: RawStream, mode: i32) -> i32>,
    /// [`Capture::end`].
    pub capture_end:
        Option<unsafe extern "C" fn(context: *mut c_void, stream: RawStream, answer: *mut u64) -> i32>,
    /// [`Capture::launch`].
    pub capture_launch:
        Option<unsafe extern "C" fn(context: *mut c_void, graph: u64, stream: RawStream) -> i32>,
    /// [`Capture::destroy_graph`].
    pub capture_destroy_graph: Option<unsafe extern "C" fn(context: *mut c_void, graph: u64) -> i32>,
    /// [`Capture::exchange_mode`].
    pub capture_exchange_mode: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            mode: i32,
            answer: *mut <CaptureMode as Value>::Raw,
        ) -> i32,
    >,
    /// [`Capture::frontier`].
    pub capture_frontier: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            stream: RawStream,
            answer: *mut u64,
            capacity: u64,
            count: *mut u64,
        ) -> i32,
    >,
    /// [`Capture::dependencies`].
    pub capture_dependencies: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            stream: RawStream,
            node: u64,
            answer: *mut u64,
            capacity: u64,
            count: *mut u64,
        ) -> i32,
    >,
    /// [`HostRegistration::register`].
    pub host_registration_register:
        Option<unsafe extern "C" fn(context: *mut c_void, ptr: u64, bytes: u64, flags: u32) -> i32>,
    /// [`HostRegistration::unregister`].
    pub host_registration_unregister: Option<unsafe extern "C" fn(context: *mut c_void, ptr: u64) -> i32>,
    /// What users call it, in small letters. May be null.
    pub name: *const c_char,
    /// What errors call its devices. May be null.
    pub label: *const c_char,
}

impl Table {
    /// A table without functions.
    pub const EMPTY: Self = Self {
        size: size_of::<Self>() as u64,
        version: crate::VERSION,
        context: std::ptr::null_mut(),
        last_error: None,
        device_count: None,
        current_device: None,
        set_device: None,
        synchronize_device: None,
        malloc: None,
        free: None,
        memory_info: None,
        pointer_info: None,
        address_range: None,
        copy_async: None,
        memset_async: None,
        create_stream: None,
        destroy_stream: None,
        query_stream: None,
        synchronize_stream: None,
        wait_event: None,
        launch_host_function: None,
        create_event: None,
        destroy_event: None,
        record_event: None,
        query_event: None,
        synchronize_event: None,
        host_malloc: None,
        host_free: None,
        error_name: None,
        clear_error: None,
        has_primary_context: None,
        attribute: None,
        properties: None,
        copy: None,
        priority_range: None,
        elapsed_ms: None,
        virtual_memory_granularity: None,
        virtual_memory_reserve_address: None,
        virtual_memory_release_address: None,
        virtual_memory_create_physical: None,
        virtual_memory_release_physical: None,
        virtual_memory_map: None,
        virtual_memory_unmap: None,
        virtual_memory_set_access: None,
        virtual_memory_access: None,
        virtual_memory_export_physical: None,
        virtual_memory_import_physical: None,
        ipc_export_memory: None,
        ipc_open_memory: None,
        ipc_close_memory: None,
        peers_can_access: None,
        peers_enable_access: None,
        peers_copy_peer_async: None,
        capture_status: None,
        capture_begin: None,
        capture_end: None,
        capture_launch: None,
        capture_destroy_graph: None,
        capture_exchange_mode: None,
        capture_frontier: None,
        capture_dependencies: None,
        host_registration_register: None,
        host_registration_unregister: None,
        name: std::ptr::null(),
        label: std::ptr::null(),
    };
}

/// Every function that must be there, and whether it is.
pub(crate) fn required(table: &Table) -> impl Iterator<Item = (&'static str, bool)> {
    [
        ("device_count", table.device_count.is_some()),
        ("current_device", table.current_device.is_some()),
        ("set_device", table.set_device.is_some()),
        ("synchronize_device", table.synchronize_device.is_some()),
        ("malloc", table.malloc.is_some()),
        ("free", table.free.is_some()),
        ("memory_info", table.memory_info.is_some()),
        ("pointer_info", table.pointer_info.is_some()),
        ("address_range", table.address_range.is_some()),
        ("copy_async", table.copy_async.is_some()),
        ("memset_async", table.memset_async.is_some()),
        ("create_stream", table.create_stream.is_some()),
        ("destroy_stream", table.destroy_stream.is_some()),
        ("query_stream", table.query_stream.is_some()),
        ("synchronize_stream", table.synchronize_stream.is_some()),
        ("wait_event", table.wait_event.is_some()),
        ("launch_host_function", table.launch_host_function.is_some()),
        ("create_event", table.create_event.is_some()),
        ("destroy_event", table.destroy_event.is_some()),
        ("record_event", table.record_event.is_some()),
        ("query_event", table.query_event.is_some()),
        ("synchronize_event", table.synchronize_event.is_some()),
    ]
    .into_iter()
}

impl Value for ErrorKind {
    type Raw = i32;
    const BLANK: i32 = -1;
    fn read(raw: i32) -> Option<Self> {
        match raw {
            0 => Some(Self::OutOfMemory),
            1 => Some(Self::ResourceLimit),
            2 => Some(Self::InvalidValue),
            3 => Some(Self::NotSupported),
            4 => Some(Self::NoDriver),
            5 => Some(Self::NoDevice),
            6 => Some(Self::DeviceLost),
            7 => Some(Self::CaptureViolation),
            8 => Some(Self::Timeout),
            9 => Some(Self::Unusable),
            10 => Some(Self::Other),
            _ => None,
        }
    }
}

impl Value for PointerKind {
    type Raw = i32;
    const BLANK: i32 = -1;
    fn read(raw: i32) -> Option<Self> {
        match raw {
            0 => Some(Self::Unmanaged),
            1 => Some(Self::Host),
            2 => Some(Self::Device),
            3 => Some(Self::Managed),
            _ => None,
        }
    }
}

impl Value for HandleType {
    type Raw = i32;
    const BLANK: i32 = -1;
    fn read(raw: i32) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::PosixFd),
            2 => Some(Self::Fabric),
            _ => None,
        }
    }
}

impl Value for Access {
    type Raw = i32;
    const BLANK: i32 = -1;
    fn read(raw: i32) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::Read),
            2 => Some(Self::ReadWrite),
            _ => None,
        }
    }
}

impl Value for CaptureMode {
    type Raw = i32;
    const BLANK: i32 = -1;
    fn read(raw: i32) -> Option<Self> {
        match raw {
            0 => Some(Self::Global),
            1 => Some(Self::ThreadLocal),
            2 => Some(Self::Relaxed),
            _ => None,
        }
    }
}
