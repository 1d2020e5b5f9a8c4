//! The table of functions, and the backend that calls through it.
//!
//! Generated from the `Backend` trait by `cargo xtask codegen`. Do not edit.

use crate::backend::CBackend;
use crate::host_function::{HandedOver, HostCallback, run_on_host};
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
    /// [`Backend::exchange_device`].
    pub exchange_device: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            answer: *mut <DeviceIndex as Value>::Raw,
        ) -> i32,
    >,
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
    /// [`VirtualMemory::retain_physical`].
    pub virtual_memory_retain_physical:
        Option<unsafe extern "C" fn(context: *mut c_void, at: u64, answer: *mut u64) -> i32>,
    /// [`VirtualMemory::physical_properties`].
    pub virtual_memory_physical_properties: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            handle: u64,
            answer: *mut <PhysicalProperties as Value>::Raw,
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
    /// [`Ipc::export_event`].
    pub ipc_export_event: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            event: RawEvent,
            answer: *mut <IpcEventHandle as Value>::Raw,
        ) -> i32,
    >,
    /// [`Ipc::open_event`].
    pub ipc_open_event: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            handle: *const RawIpcHandle,
            answer: *mut u64,
        ) -> i32,
    >,
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
    /// [`Capture::retain_until_graph_ends`].
    pub capture_retain_until_graph_ends: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            stream: RawStream,
            release: HostCallback,
            argument: *mut c_void,
        ) -> i32,
    >,
    /// [`DriverPools::malloc_async`].
    pub driver_pools_malloc_async: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            bytes: u64,
            stream: RawStream,
            answer: *mut <DevicePtr as Value>::Raw,
        ) -> i32,
    >,
    /// [`DriverPools::free_async`].
    pub driver_pools_free_async:
        Option<unsafe extern "C" fn(context: *mut c_void, ptr: u64, stream: RawStream) -> i32>,
    /// [`DriverPools::trim`].
    pub driver_pools_trim: Option<unsafe extern "C" fn(context: *mut c_void, device: u16, keep: u64) -> i32>,
    /// [`DriverPools::pool_attribute`].
    pub driver_pools_pool_attribute: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            which: i32,
            answer: *mut <u64 as Value>::Raw,
        ) -> i32,
    >,
    /// [`DriverPools::set_pool_attribute`].
    pub driver_pools_set_pool_attribute:
        Option<unsafe extern "C" fn(context: *mut c_void, device: u16, which: i32, value: u64) -> i32>,
    /// [`HostRegistration::register`].
    pub host_registration_register:
        Option<unsafe extern "C" fn(context: *mut c_void, ptr: u64, bytes: u64, flags: u32) -> i32>,
    /// [`HostRegistration::unregister`].
    pub host_registration_unregister: Option<unsafe extern "C" fn(context: *mut c_void, ptr: u64) -> i32>,
    /// [`HostRegistration::device_pointer`].
    pub host_registration_device_pointer: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            ptr: u64,
            answer: *mut <DevicePtr as Value>::Raw,
        ) -> i32,
    >,
    /// [`ManagedMemory::malloc_managed`].
    pub managed_memory_malloc_managed: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            bytes: u64,
            answer: *mut <DevicePtr as Value>::Raw,
        ) -> i32,
    >,
    /// [`ManagedMemory::prefetch_async`].
    pub managed_memory_prefetch_async: Option<
        unsafe extern "C" fn(context: *mut c_void, ptr: u64, bytes: u64, to: i32, stream: RawStream) -> i32,
    >,
    /// [`StreamMemory::write_value32`].
    pub stream_memory_write_value32:
        Option<unsafe extern "C" fn(context: *mut c_void, stream: RawStream, at: u64, value: u32) -> i32>,
    /// [`Multicast::multicast_granularity`].
    pub multicast_granularity: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            devices: u32,
            bytes: u64,
            answer: *mut <u64 as Value>::Raw,
        ) -> i32,
    >,
    /// [`Multicast::create`].
    pub multicast_create:
        Option<unsafe extern "C" fn(context: *mut c_void, devices: u32, bytes: u64, answer: *mut u64) -> i32>,
    /// [`Multicast::add_device`].
    pub multicast_add_device:
        Option<unsafe extern "C" fn(context: *mut c_void, object: u64, device: u16) -> i32>,
    /// [`Multicast::bind`].
    pub multicast_bind: Option<
        unsafe extern "C" fn(context: *mut c_void, object: u64, offset: u64, memory: u64, bytes: u64) -> i32,
    >,
    /// [`Multicast::unbind`].
    pub multicast_unbind: Option<
        unsafe extern "C" fn(context: *mut c_void, object: u64, device: u16, offset: u64, bytes: u64) -> i32,
    >,
    /// [`HostAccess::unprotect`].
    pub host_access_unprotect: Option<unsafe extern "C" fn(context: *mut c_void, ptr: u64) -> i32>,
    /// [`HostAccess::protect`].
    pub host_access_protect: Option<unsafe extern "C" fn(context: *mut c_void, ptr: u64) -> i32>,
    /// [`HostAccess::host_access_of`].
    pub host_access_of: Option<
        unsafe extern "C" fn(context: *mut c_void, ptr: u64, answer: *mut <Access as Value>::Raw) -> i32,
    >,
    /// [`HostAccess::accounted`].
    pub host_access_accounted: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            device: u16,
            answer: *mut <MemoryInfo as Value>::Raw,
        ) -> i32,
    >,
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
        exchange_device: None,
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
        virtual_memory_retain_physical: None,
        virtual_memory_physical_properties: None,
        ipc_export_memory: None,
        ipc_open_memory: None,
        ipc_close_memory: None,
        ipc_export_event: None,
        ipc_open_event: None,
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
        capture_retain_until_graph_ends: None,
        driver_pools_malloc_async: None,
        driver_pools_free_async: None,
        driver_pools_trim: None,
        driver_pools_pool_attribute: None,
        driver_pools_set_pool_attribute: None,
        host_registration_register: None,
        host_registration_unregister: None,
        host_registration_device_pointer: None,
        managed_memory_malloc_managed: None,
        managed_memory_prefetch_async: None,
        stream_memory_write_value32: None,
        multicast_granularity: None,
        multicast_create: None,
        multicast_add_device: None,
        multicast_bind: None,
        multicast_unbind: None,
        host_access_unprotect: None,
        host_access_protect: None,
        host_access_of: None,
        host_access_accounted: None,
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

// SAFETY: I1 to I4 are the table's; who called `from_table` promised them.
unsafe impl Backend for CBackend {
    fn id(&self) -> BackendId {
        self.id
    }

    fn kind(&self) -> DeviceKind {
        self.kind
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn label(&self) -> &'static str {
        self.label
    }

    fn error_name(&self, code: i32) -> String {
        let name = self
            .table
            .error_name
            // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
            .map(|entry| unsafe { entry(self.table.context, code) });
        self.text_or(name, "unknown")
    }

    fn clear_error(&self) {
        if let Some(entry) = self.table.clear_error {
            // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
            unsafe { entry(self.table.context) }
        }
    }

    fn device_count(&self) -> Result<u16> {
        let call = self.call("device_count", DeviceIndex(0));
        let entry = call.function(self.table.device_count)?;
        let mut answer = <u16 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, &raw mut answer) };
        call.answer::<u16>(status, answer)
    }

    fn current_device(&self) -> Result<DeviceIndex> {
        let call = self.call("current_device", DeviceIndex(0));
        let entry = call.function(self.table.current_device)?;
        let mut answer = <DeviceIndex as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, &raw mut answer) };
        call.answer::<DeviceIndex>(status, answer)
    }

    fn set_device(&self, device: DeviceIndex) -> Result<()> {
        let call = self.call("set_device", device);
        let entry = call.function(self.table.set_device)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?) };
        call.done(status)
    }

    fn exchange_device(&self, device: DeviceIndex) -> Result<DeviceIndex> {
        let call = self.call("exchange_device", device);
        let Some(entry) = self.table.exchange_device else {
            return defaults::exchange_device(self, device);
        };
        let mut answer = <DeviceIndex as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<DeviceIndex>(status, answer)
    }

    fn has_primary_context(&self, device: DeviceIndex) -> Result<bool> {
        let call = self.call("has_primary_context", device);
        let Some(entry) = self.table.has_primary_context else {
            return defaults::has_primary_context(self, device);
        };
        let mut answer = <bool as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<bool>(status, answer)
    }

    fn attribute(&self, device: DeviceIndex, attribute: Attribute) -> Result<i64> {
        let call = self.call("attribute", device);
        let Some(entry) = self.table.attribute else {
            return defaults::attribute(self, device, attribute);
        };
        let mut answer = <i64 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, attribute as i32, &raw mut answer) };
        call.answer::<i64>(status, answer)
    }

    fn properties(&self, device: DeviceIndex) -> Result<DeviceProperties> {
        let call = self.call("properties", device);
        let Some(entry) = self.table.properties else {
            return defaults::properties(self, device);
        };
        let mut answer = <DeviceProperties as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<DeviceProperties>(status, answer)
    }

    fn synchronize_device(&self, device: DeviceIndex) -> Result<()> {
        let call = self.call("synchronize_device", device);
        let entry = call.function(self.table.synchronize_device)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?) };
        call.done(status)
    }

    fn malloc(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let call = self.call("malloc", device);
        let entry = call.function(self.table.malloc)?;
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, call.size(bytes)?, &raw mut answer) };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn free(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<()> {
        let call = self.call("free", device);
        let entry = call.function(self.table.free)?;
        if ptr.is_null() {
            return Ok(());
        }
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, ptr.0) };
        call.done(status)
    }

    fn memory_info(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        let call = self.call("memory_info", device);
        let entry = call.function(self.table.memory_info)?;
        let mut answer = <MemoryInfo as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<MemoryInfo>(status, answer)
    }

    fn pointer_info(&self, ptr: DevicePtr) -> Result<PointerInfo> {
        let call = self.call("pointer_info", DeviceIndex(0));
        let entry = call.function(self.table.pointer_info)?;
        let mut answer = <PointerInfo as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0, &raw mut answer) };
        call.answer::<PointerInfo>(status, answer)
    }

    fn address_range(&self, ptr: DevicePtr) -> Result<AddressRange> {
        let call = self.call("address_range", DeviceIndex(0));
        let entry = call.function(self.table.address_range)?;
        let mut answer = <AddressRange as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0, &raw mut answer) };
        call.answer::<AddressRange>(status, answer)
    }

    unsafe fn copy(&self, dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()> {
        let call = self.call("copy", DeviceIndex(0));
        let Some(entry) = self.table.copy else {
            // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
            return unsafe { defaults::copy(self, dst, src, bytes, kind) };
        };
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, dst.0, src.0, call.size(bytes)?, kind as i32) };
        call.done(status)
    }

    unsafe fn copy_async(
        &self,
        dst: DevicePtr,
        src: DevicePtr,
        bytes: u64,
        kind: CopyKind,
        stream: Stream,
    ) -> Result<()> {
        let call = self.call("copy_async", stream.device);
        let entry = call.function(self.table.copy_async)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, dst.0, src.0, call.size(bytes)?, kind as i32, stream) };
        call.done(status)
    }

    unsafe fn memset_async(&self, dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()> {
        let call = self.call("memset_async", stream.device);
        let entry = call.function(self.table.memset_async)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, dst.0, value, call.size(bytes)?, stream) };
        call.done(status)
    }

    fn create_stream(&self, device: DeviceIndex, priority: i32) -> Result<Stream> {
        let call = self.call("create_stream", device);
        let entry = call.function(self.table.create_stream)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, priority, &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(Stream { raw, device, backend: self.id })
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        let call = self.call("destroy_stream", stream.device);
        let entry = call.function(self.table.destroy_stream)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream) };
        call.done(status)
    }

    fn priority_range(&self, device: DeviceIndex) -> Result<PriorityRange> {
        let call = self.call("priority_range", device);
        let Some(entry) = self.table.priority_range else {
            return defaults::priority_range(self, device);
        };
        let mut answer = <PriorityRange as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<PriorityRange>(status, answer)
    }

    fn query_stream(&self, stream: Stream) -> Result<Readiness> {
        let call = self.call("query_stream", stream.device);
        let entry = call.function(self.table.query_stream)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream) };
        call.readiness(status)
    }

    fn synchronize_stream(&self, stream: Stream) -> Result<()> {
        let call = self.call("synchronize_stream", stream.device);
        let entry = call.function(self.table.synchronize_stream)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream) };
        call.done(status)
    }

    fn wait_event(&self, stream: Stream, event: Event) -> Result<()> {
        let call = self.call("wait_event", stream.device);
        let entry = call.function(self.table.wait_event)?;
        let stream = call.stream(stream)?;
        let event = call.event(event)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, event) };
        call.done(status)
    }

    fn launch_host_function(&self, stream: Stream, function: HostFunction) -> Result<()> {
        let call = self.call("launch_host_function", stream.device);
        let entry = call.function(self.table.launch_host_function)?;
        let stream = call.stream(stream)?;
        let work = HandedOver::new(function);
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, run_on_host, work.argument()) };
        call.handed_over(status, work)
    }

    fn create_event(&self, device: DeviceIndex, flags: EventFlags) -> Result<Event> {
        let call = self.call("create_event", device);
        let entry = call.function(self.table.create_event)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, flags.bits(), &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(Event { raw, device, backend: self.id })
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        let call = self.call("destroy_event", event.device);
        let entry = call.function(self.table.destroy_event)?;
        let event = call.event(event)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, event) };
        call.done(status)
    }

    fn record_event(&self, event: Event, stream: Stream) -> Result<()> {
        let call = self.call("record_event", event.device);
        let entry = call.function(self.table.record_event)?;
        call.of_one_device(event, stream)?;
        let event = call.event(event)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, event, stream) };
        call.done(status)
    }

    fn query_event(&self, event: Event) -> Result<Readiness> {
        let call = self.call("query_event", event.device);
        let entry = call.function(self.table.query_event)?;
        let event = call.event(event)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, event) };
        call.readiness(status)
    }

    fn synchronize_event(&self, event: Event) -> Result<()> {
        let call = self.call("synchronize_event", event.device);
        let entry = call.function(self.table.synchronize_event)?;
        let event = call.event(event)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, event) };
        call.done(status)
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32> {
        let call = self.call("elapsed_ms", start.device);
        let Some(entry) = self.table.elapsed_ms else {
            return defaults::elapsed_ms(self, start, end);
        };
        let start = call.event(start)?;
        let end = call.event(end)?;
        let mut answer = <f32 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, start, end, &raw mut answer) };
        call.answer::<f32>(status, answer)
    }

    fn pinned_host(&self) -> std::result::Result<&dyn PinnedHost, Unsupported> {
        self.family(
            "pinned host memory",
            &[
                ("host_malloc", self.table.host_malloc.is_some()),
                ("host_free", self.table.host_free.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn virtual_memory(&self) -> std::result::Result<&dyn VirtualMemory, Unsupported> {
        self.family(
            "virtual memory",
            &[
                ("virtual_memory_granularity", self.table.virtual_memory_granularity.is_some()),
                ("virtual_memory_reserve_address", self.table.virtual_memory_reserve_address.is_some()),
                ("virtual_memory_release_address", self.table.virtual_memory_release_address.is_some()),
                ("virtual_memory_create_physical", self.table.virtual_memory_create_physical.is_some()),
                ("virtual_memory_release_physical", self.table.virtual_memory_release_physical.is_some()),
                ("virtual_memory_map", self.table.virtual_memory_map.is_some()),
                ("virtual_memory_unmap", self.table.virtual_memory_unmap.is_some()),
                ("virtual_memory_set_access", self.table.virtual_memory_set_access.is_some()),
                ("virtual_memory_access", self.table.virtual_memory_access.is_some()),
                ("virtual_memory_retain_physical", self.table.virtual_memory_retain_physical.is_some()),
                (
                    "virtual_memory_physical_properties",
                    self.table.virtual_memory_physical_properties.is_some(),
                ),
            ],
        )?;
        Ok(self)
    }

    fn physical_sharing(&self) -> std::result::Result<&dyn PhysicalSharing, Unsupported> {
        self.virtual_memory()?;
        self.family(
            "sharing of physical memory",
            &[
                ("virtual_memory_export_physical", self.table.virtual_memory_export_physical.is_some()),
                ("virtual_memory_import_physical", self.table.virtual_memory_import_physical.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn ipc(&self) -> std::result::Result<&dyn Ipc, Unsupported> {
        self.family(
            "IPC",
            &[
                ("ipc_export_memory", self.table.ipc_export_memory.is_some()),
                ("ipc_open_memory", self.table.ipc_open_memory.is_some()),
                ("ipc_close_memory", self.table.ipc_close_memory.is_some()),
                ("ipc_export_event", self.table.ipc_export_event.is_some()),
                ("ipc_open_event", self.table.ipc_open_event.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn peers(&self) -> std::result::Result<&dyn Peers, Unsupported> {
        self.family(
            "peers",
            &[
                ("peers_can_access", self.table.peers_can_access.is_some()),
                ("peers_enable_access", self.table.peers_enable_access.is_some()),
                ("peers_copy_peer_async", self.table.peers_copy_peer_async.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn capture(&self) -> std::result::Result<&dyn Capture, Unsupported> {
        self.family(
            "capture",
            &[
                ("capture_status", self.table.capture_status.is_some()),
                ("capture_begin", self.table.capture_begin.is_some()),
                ("capture_end", self.table.capture_end.is_some()),
                ("capture_launch", self.table.capture_launch.is_some()),
                ("capture_destroy_graph", self.table.capture_destroy_graph.is_some()),
                ("capture_exchange_mode", self.table.capture_exchange_mode.is_some()),
                ("capture_frontier", self.table.capture_frontier.is_some()),
                ("capture_dependencies", self.table.capture_dependencies.is_some()),
                ("capture_retain_until_graph_ends", self.table.capture_retain_until_graph_ends.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn driver_pools(&self) -> std::result::Result<&dyn DriverPools, Unsupported> {
        self.family(
            "driver pools",
            &[
                ("driver_pools_malloc_async", self.table.driver_pools_malloc_async.is_some()),
                ("driver_pools_free_async", self.table.driver_pools_free_async.is_some()),
                ("driver_pools_trim", self.table.driver_pools_trim.is_some()),
                ("driver_pools_pool_attribute", self.table.driver_pools_pool_attribute.is_some()),
                ("driver_pools_set_pool_attribute", self.table.driver_pools_set_pool_attribute.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn host_registration(&self) -> std::result::Result<&dyn HostRegistration, Unsupported> {
        self.family(
            "host registration",
            &[
                ("host_registration_register", self.table.host_registration_register.is_some()),
                ("host_registration_unregister", self.table.host_registration_unregister.is_some()),
                ("host_registration_device_pointer", self.table.host_registration_device_pointer.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn managed_memory(&self) -> std::result::Result<&dyn ManagedMemory, Unsupported> {
        self.family(
            "managed memory",
            &[
                ("managed_memory_malloc_managed", self.table.managed_memory_malloc_managed.is_some()),
                ("managed_memory_prefetch_async", self.table.managed_memory_prefetch_async.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn stream_memory(&self) -> std::result::Result<&dyn StreamMemory, Unsupported> {
        self.family(
            "stream memory",
            &[("stream_memory_write_value32", self.table.stream_memory_write_value32.is_some())],
        )?;
        Ok(self)
    }

    fn multicast(&self) -> std::result::Result<&dyn Multicast, Unsupported> {
        self.family(
            "multicast",
            &[
                ("multicast_granularity", self.table.multicast_granularity.is_some()),
                ("multicast_create", self.table.multicast_create.is_some()),
                ("multicast_add_device", self.table.multicast_add_device.is_some()),
                ("multicast_bind", self.table.multicast_bind.is_some()),
                ("multicast_unbind", self.table.multicast_unbind.is_some()),
            ],
        )?;
        Ok(self)
    }

    fn host_access(&self) -> std::result::Result<&dyn HostAccess, Unsupported> {
        self.family(
            "host access",
            &[
                ("host_access_unprotect", self.table.host_access_unprotect.is_some()),
                ("host_access_protect", self.table.host_access_protect.is_some()),
                ("host_access_of", self.table.host_access_of.is_some()),
                ("host_access_accounted", self.table.host_access_accounted.is_some()),
            ],
        )?;
        Ok(self)
    }
}

impl PinnedHost for CBackend {
    fn host_malloc(&self, bytes: u64, flags: HostFlags) -> Result<DevicePtr> {
        let call = self.call("host_malloc", DeviceIndex(0));
        let entry = call.function(self.table.host_malloc)?;
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.size(bytes)?, flags.bits(), &raw mut answer) };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn host_free(&self, ptr: DevicePtr) -> Result<()> {
        let call = self.call("host_free", DeviceIndex(0));
        let entry = call.function(self.table.host_free)?;
        if ptr.is_null() {
            return Ok(());
        }
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0) };
        call.done(status)
    }
}

impl VirtualMemory for CBackend {
    fn granularity(&self, device: DeviceIndex, which: Granularity) -> Result<u64> {
        let call = self.call("virtual_memory_granularity", device);
        let entry = call.function(self.table.virtual_memory_granularity)?;
        let mut answer = <u64 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, which as i32, &raw mut answer) };
        call.answer::<u64>(status, answer)
    }

    fn reserve_address(
        &self,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        let call = self.call("virtual_memory_reserve_address", device);
        let entry = call.function(self.table.virtual_memory_reserve_address)?;
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.device(device)?,
                call.size(bytes)?,
                alignment,
                hint.0,
                &raw mut answer,
            )
        };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn release_address(&self, base: DevicePtr, bytes: u64) -> Result<()> {
        let call = self.call("virtual_memory_release_address", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_release_address)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, base.0, call.size(bytes)?) };
        call.done(status)
    }

    fn create_physical(
        &self,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        let call = self.call("virtual_memory_create_physical", device);
        let entry = call.function(self.table.virtual_memory_create_physical)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.device(device)?,
                call.size(bytes)?,
                handle_type as i32,
                &raw mut answer,
            )
        };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(PhysicalHandle { raw, backend: self.id })
    }

    unsafe fn release_physical(&self, handle: PhysicalHandle) -> Result<()> {
        let call = self.call("virtual_memory_release_physical", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_release_physical)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.handle(handle.raw, handle.backend)?) };
        call.done(status)
    }

    unsafe fn map(&self, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()> {
        let call = self.call("virtual_memory_map", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_map)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(self.table.context, at.0, call.size(bytes)?, call.handle(handle.raw, handle.backend)?)
        };
        call.done(status)
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let call = self.call("virtual_memory_unmap", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_unmap)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, at.0, call.size(bytes)?) };
        call.done(status)
    }

    unsafe fn set_access(
        &self,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        let call = self.call("virtual_memory_set_access", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_set_access)?;
        let devices = call.devices(devices)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                at.0,
                call.size(bytes)?,
                devices.as_ptr(),
                devices.len() as u64,
                access as i32,
            )
        };
        call.done(status)
    }

    fn access(&self, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        let call = self.call("virtual_memory_access", device);
        let entry = call.function(self.table.virtual_memory_access)?;
        let mut answer = <Access as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, at.0, call.device(device)?, &raw mut answer) };
        call.answer::<Access>(status, answer)
    }

    fn retain_physical(&self, at: DevicePtr) -> Result<PhysicalHandle> {
        let call = self.call("virtual_memory_retain_physical", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_retain_physical)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, at.0, &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(PhysicalHandle { raw, backend: self.id })
    }

    fn physical_properties(&self, handle: PhysicalHandle) -> Result<PhysicalProperties> {
        let call = self.call("virtual_memory_physical_properties", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_physical_properties)?;
        let mut answer = <PhysicalProperties as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.handle(handle.raw, handle.backend)?, &raw mut answer) };
        call.answer::<PhysicalProperties>(status, answer)
    }
}

impl PhysicalSharing for CBackend {
    fn export_physical(&self, handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle> {
        let call = self.call("virtual_memory_export_physical", DeviceIndex(0));
        let entry = call.function(self.table.virtual_memory_export_physical)?;
        let mut answer = <ShareableHandle as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.handle(handle.raw, handle.backend)?,
                handle_type as i32,
                &raw mut answer,
            )
        };
        call.answer::<ShareableHandle>(status, answer)
    }

    fn import_physical(&self, device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle> {
        let call = self.call("virtual_memory_import_physical", device);
        let entry = call.function(self.table.virtual_memory_import_physical)?;
        let shared = RawShareableHandle::lent(shared);
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, &raw const shared, &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(PhysicalHandle { raw, backend: self.id })
    }
}

impl Ipc for CBackend {
    fn export_memory(&self, base: DevicePtr) -> Result<IpcMemoryHandle> {
        let call = self.call("ipc_export_memory", DeviceIndex(0));
        let entry = call.function(self.table.ipc_export_memory)?;
        let mut answer = <IpcMemoryHandle as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, base.0, &raw mut answer) };
        call.answer::<IpcMemoryHandle>(status, answer)
    }

    fn open_memory(&self, device: DeviceIndex, handle: &IpcMemoryHandle) -> Result<DevicePtr> {
        let call = self.call("ipc_open_memory", device);
        let entry = call.function(self.table.ipc_open_memory)?;
        let handle = RawIpcHandle { bytes: handle.0 };
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, &raw const handle, &raw mut answer) };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn close_memory(&self, ptr: DevicePtr) -> Result<()> {
        let call = self.call("ipc_close_memory", DeviceIndex(0));
        let entry = call.function(self.table.ipc_close_memory)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0) };
        call.done(status)
    }

    fn export_event(&self, event: Event) -> Result<IpcEventHandle> {
        let call = self.call("ipc_export_event", event.device);
        let entry = call.function(self.table.ipc_export_event)?;
        let event = call.event(event)?;
        let mut answer = <IpcEventHandle as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, event, &raw mut answer) };
        call.answer::<IpcEventHandle>(status, answer)
    }

    fn open_event(&self, device: DeviceIndex, handle: &IpcEventHandle) -> Result<Event> {
        let call = self.call("ipc_open_event", device);
        let entry = call.function(self.table.ipc_open_event)?;
        let handle = RawIpcHandle { bytes: handle.0 };
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, &raw const handle, &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(Event { raw, device, backend: self.id })
    }
}

impl Peers for CBackend {
    fn can_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<bool> {
        let call = self.call("peers_can_access", from);
        let entry = call.function(self.table.peers_can_access)?;
        let mut answer = <bool as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(from)?, call.device(to)?, &raw mut answer) };
        call.answer::<bool>(status, answer)
    }

    fn enable_access(&self, from: DeviceIndex, to: DeviceIndex) -> Result<()> {
        let call = self.call("peers_enable_access", from);
        let entry = call.function(self.table.peers_enable_access)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(from)?, call.device(to)?) };
        call.done(status)
    }

    unsafe fn copy_peer_async(
        &self,
        dst: (DeviceIndex, DevicePtr),
        src: (DeviceIndex, DevicePtr),
        bytes: u64,
        stream: Stream,
    ) -> Result<()> {
        let call = self.call("peers_copy_peer_async", stream.device);
        let entry = call.function(self.table.peers_copy_peer_async)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.device(dst.0)?,
                dst.1.0,
                call.device(src.0)?,
                src.1.0,
                call.size(bytes)?,
                stream,
            )
        };
        call.done(status)
    }
}

impl Capture for CBackend {
    fn status(&self, stream: Stream) -> Result<CaptureStatus> {
        let call = self.call("capture_status", stream.device);
        let entry = call.function(self.table.capture_status)?;
        let stream = call.stream(stream)?;
        let mut answer = <CaptureStatus as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, &raw mut answer) };
        call.answer::<CaptureStatus>(status, answer)
    }

    fn begin(&self, stream: Stream, mode: CaptureMode) -> Result<()> {
        let call = self.call("capture_begin", stream.device);
        let entry = call.function(self.table.capture_begin)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, mode as i32) };
        call.done(status)
    }

    fn end(&self, stream: Stream) -> Result<Graph> {
        let call = self.call("capture_end", stream.device);
        let entry = call.function(self.table.capture_end)?;
        let stream = call.stream(stream)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(Graph { raw, backend: self.id })
    }

    unsafe fn launch(&self, graph: Graph, stream: Stream) -> Result<()> {
        let call = self.call("capture_launch", stream.device);
        let entry = call.function(self.table.capture_launch)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.handle(graph.raw, graph.backend)?, stream) };
        call.done(status)
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let call = self.call("capture_destroy_graph", DeviceIndex(0));
        let entry = call.function(self.table.capture_destroy_graph)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.handle(graph.raw, graph.backend)?) };
        call.done(status)
    }

    fn exchange_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let call = self.call("capture_exchange_mode", DeviceIndex(0));
        let entry = call.function(self.table.capture_exchange_mode)?;
        let mut answer = <CaptureMode as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, mode as i32, &raw mut answer) };
        call.answer::<CaptureMode>(status, answer)
    }

    fn frontier(&self, stream: Stream) -> Result<Vec<CaptureNode>> {
        let call = self.call("capture_frontier", stream.device);
        let entry = call.function(self.table.capture_frontier)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        call.nodes(|nodes, capacity, count| unsafe {
            entry(self.table.context, stream, nodes, capacity, count)
        })
    }

    fn dependencies(&self, stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>> {
        let call = self.call("capture_dependencies", stream.device);
        let entry = call.function(self.table.capture_dependencies)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        call.nodes(|nodes, capacity, count| unsafe {
            entry(self.table.context, stream, node.0, nodes, capacity, count)
        })
    }

    fn retain_until_graph_ends(&self, stream: Stream, release: HostFunction) -> Result<()> {
        let call = self.call("capture_retain_until_graph_ends", stream.device);
        let entry = call.function(self.table.capture_retain_until_graph_ends)?;
        let stream = call.stream(stream)?;
        let work = HandedOver::new(release);
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, run_on_host, work.argument()) };
        call.handed_over(status, work)
    }
}

impl DriverPools for CBackend {
    fn malloc_async(&self, bytes: u64, stream: Stream) -> Result<DevicePtr> {
        let call = self.call("driver_pools_malloc_async", stream.device);
        let entry = call.function(self.table.driver_pools_malloc_async)?;
        let stream = call.stream(stream)?;
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.size(bytes)?, stream, &raw mut answer) };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn free_async(&self, ptr: DevicePtr, stream: Stream) -> Result<()> {
        let call = self.call("driver_pools_free_async", stream.device);
        let entry = call.function(self.table.driver_pools_free_async)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0, stream) };
        call.done(status)
    }

    fn trim(&self, device: DeviceIndex, keep: u64) -> Result<()> {
        let call = self.call("driver_pools_trim", device);
        let entry = call.function(self.table.driver_pools_trim)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, keep) };
        call.done(status)
    }

    fn pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute) -> Result<u64> {
        let call = self.call("driver_pools_pool_attribute", device);
        let entry = call.function(self.table.driver_pools_pool_attribute)?;
        let mut answer = <u64 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, which as i32, &raw mut answer) };
        call.answer::<u64>(status, answer)
    }

    fn set_pool_attribute(&self, device: DeviceIndex, which: DriverPoolAttribute, value: u64) -> Result<()> {
        let call = self.call("driver_pools_set_pool_attribute", device);
        let entry = call.function(self.table.driver_pools_set_pool_attribute)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, which as i32, value) };
        call.done(status)
    }
}

impl HostRegistration for CBackend {
    unsafe fn register(&self, ptr: DevicePtr, bytes: u64, flags: HostFlags) -> Result<()> {
        let call = self.call("host_registration_register", DeviceIndex(0));
        let entry = call.function(self.table.host_registration_register)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0, call.size(bytes)?, flags.bits()) };
        call.done(status)
    }

    unsafe fn unregister(&self, ptr: DevicePtr) -> Result<()> {
        let call = self.call("host_registration_unregister", DeviceIndex(0));
        let entry = call.function(self.table.host_registration_unregister)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0) };
        call.done(status)
    }

    fn device_pointer(&self, device: DeviceIndex, ptr: DevicePtr) -> Result<DevicePtr> {
        let call = self.call("host_registration_device_pointer", device);
        let entry = call.function(self.table.host_registration_device_pointer)?;
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, ptr.0, &raw mut answer) };
        call.answer::<DevicePtr>(status, answer)
    }
}

impl ManagedMemory for CBackend {
    fn malloc_managed(&self, device: DeviceIndex, bytes: u64) -> Result<DevicePtr> {
        let call = self.call("managed_memory_malloc_managed", device);
        let entry = call.function(self.table.managed_memory_malloc_managed)?;
        let mut answer = <DevicePtr as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, call.device(device)?, call.size(bytes)?, &raw mut answer) };
        call.answer::<DevicePtr>(status, answer)
    }

    unsafe fn prefetch_async(
        &self,
        ptr: DevicePtr,
        bytes: u64,
        to: Option<DeviceIndex>,
        stream: Stream,
    ) -> Result<()> {
        let call = self.call("managed_memory_prefetch_async", stream.device);
        let entry = call.function(self.table.managed_memory_prefetch_async)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status =
            unsafe { entry(self.table.context, ptr.0, call.size(bytes)?, call.device_or_host(to)?, stream) };
        call.done(status)
    }
}

impl StreamMemory for CBackend {
    unsafe fn write_value32(&self, stream: Stream, at: DevicePtr, value: u32) -> Result<()> {
        let call = self.call("stream_memory_write_value32", stream.device);
        let entry = call.function(self.table.stream_memory_write_value32)?;
        let stream = call.stream(stream)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, stream, at.0, value) };
        call.done(status)
    }
}

impl Multicast for CBackend {
    fn multicast_granularity(&self, devices: u32, bytes: u64) -> Result<u64> {
        let call = self.call("multicast_granularity", DeviceIndex(0));
        let entry = call.function(self.table.multicast_granularity)?;
        let mut answer = <u64 as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, devices, call.size(bytes)?, &raw mut answer) };
        call.answer::<u64>(status, answer)
    }

    fn create(&self, devices: u32, bytes: u64) -> Result<MulticastHandle> {
        let call = self.call("multicast_create", DeviceIndex(0));
        let entry = call.function(self.table.multicast_create)?;
        let mut answer = 0;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, devices, call.size(bytes)?, &raw mut answer) };
        let raw = call.answer::<u64>(status, answer)?;
        Ok(MulticastHandle { raw, backend: self.id })
    }

    fn add_device(&self, object: MulticastHandle, device: DeviceIndex) -> Result<()> {
        let call = self.call("multicast_add_device", device);
        let entry = call.function(self.table.multicast_add_device)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(self.table.context, call.handle(object.raw, object.backend)?, call.device(device)?)
        };
        call.done(status)
    }

    unsafe fn bind(
        &self,
        object: MulticastHandle,
        offset: u64,
        memory: PhysicalHandle,
        bytes: u64,
    ) -> Result<()> {
        let call = self.call("multicast_bind", DeviceIndex(0));
        let entry = call.function(self.table.multicast_bind)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.handle(object.raw, object.backend)?,
                offset,
                call.handle(memory.raw, memory.backend)?,
                call.size(bytes)?,
            )
        };
        call.done(status)
    }

    unsafe fn unbind(
        &self,
        object: MulticastHandle,
        device: DeviceIndex,
        offset: u64,
        bytes: u64,
    ) -> Result<()> {
        let call = self.call("multicast_unbind", device);
        let entry = call.function(self.table.multicast_unbind)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe {
            entry(
                self.table.context,
                call.handle(object.raw, object.backend)?,
                call.device(device)?,
                offset,
                call.size(bytes)?,
            )
        };
        call.done(status)
    }
}

impl HostAccess for CBackend {
    unsafe fn unprotect(&self, ptr: DevicePtr) -> Result<()> {
        let call = self.call("host_access_unprotect", DeviceIndex(0));
        let entry = call.function(self.table.host_access_unprotect)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0) };
        call.done(status)
    }

    unsafe fn protect(&self, ptr: DevicePtr) -> Result<()> {
        let call = self.call("host_access_protect", DeviceIndex(0));
        let entry = call.function(self.table.host_access_protect)?;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0) };
        call.done(status)
    }

    fn host_access_of(&self, ptr: DevicePtr) -> Result<Access> {
        let call = self.call("host_access_of", DeviceIndex(0));
        let entry = call.function(self.table.host_access_of)?;
        let mut answer = <Access as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, ptr.0, &raw mut answer) };
        call.answer::<Access>(status, answer)
    }

    fn accounted(&self, device: DeviceIndex) -> Result<MemoryInfo> {
        let call = self.call("host_access_accounted", device);
        let entry = call.function(self.table.host_access_accounted)?;
        let mut answer = <MemoryInfo as Value>::BLANK;
        // SAFETY: the table keeps its header's word (`from_table`), and the caller's promise is passed on.
        let status = unsafe { entry(self.table.context, call.device(device)?, &raw mut answer) };
        call.answer::<MemoryInfo>(status, answer)
    }
}
