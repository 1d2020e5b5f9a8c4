//! What a vendor's functions are called in its header, for errors that are found before the function is called.

/// `$d` is a dollar sign, for the macro in the macro.
macro_rules! names {
    ($d:tt $($field:ident: $name:literal,)*) => {
        /// The name of a driver's function for each thing to do.
        #[allow(missing_docs, reason = "each field is named after what it does")]
        #[derive(Clone, Copy, Debug)]
        pub struct Names {
            $(pub $field: &'static str,)*
        }

        /// [`Names`] behind a vendor's prefix: `names!("cu")`. A vendor whose function has another name says so with
        /// `Names { malloc: "hipMalloc", ..names!("hip") }`.
        #[macro_export]
        macro_rules! names {
            ($d prefix:literal) => {
                $crate::Names { $($field: concat!($d prefix, $name),)* }
            };
        }
    };
}

names! { $
    current: "CtxGetCurrent",
    device_of_current: "CtxGetDevice",
    set_current: "CtxSetCurrent",
    primary_state: "DevicePrimaryCtxGetState",
    attribute: "DeviceGetAttribute",
    graph_memory: "DeviceGetGraphMemAttribute",
    device_name: "DeviceGetName",
    synchronize_device: "CtxSynchronize",
    malloc: "MemAlloc",
    free: "MemFree",
    memory_info: "MemGetInfo",
    address_range: "MemGetAddressRange",
    pointer_attribute: "PointerGetAttribute",
    copy: "Memcpy",
    copy_async: "MemcpyAsync",
    memset_async: "MemsetD8Async",
    create_stream: "StreamCreateWithPriority",
    destroy_stream: "StreamDestroy",
    priority_range: "CtxGetStreamPriorityRange",
    query_stream: "StreamQuery",
    synchronize_stream: "StreamSynchronize",
    wait_event: "StreamWaitEvent",
    launch_host_function: "LaunchHostFunc",
    create_event: "EventCreate",
    destroy_event: "EventDestroy",
    record_event: "EventRecord",
    query_event: "EventQuery",
    synchronize_event: "EventSynchronize",
    elapsed: "EventElapsedTime",
    host_malloc: "MemHostAlloc",
    host_free: "MemFreeHost",
    register: "MemHostRegister",
    unregister: "MemHostUnregister",
    can_access_peer: "DeviceCanAccessPeer",
    enable_peer: "CtxEnablePeerAccess",
    copy_peer: "MemcpyPeerAsync",
    capture_info: "StreamGetCaptureInfo",
    begin_capture: "StreamBeginCapture",
    end_capture: "StreamEndCapture",
    exchange_mode: "ThreadExchangeStreamCaptureMode",
    launch_graph: "GraphLaunch",
    destroy_graph: "GraphDestroy",
    node_dependencies: "GraphNodeGetDependencies",
    granularity: "MemGetAllocationGranularity",
    reserve_addresses: "MemAddressReserve",
    free_addresses: "MemAddressFree",
    create_physical: "MemCreate",
    release_physical: "MemRelease",
    map: "MemMap",
    unmap: "MemUnmap",
    set_access: "MemSetAccess",
    access: "MemGetAccess",
    export_physical: "MemExportToShareableHandle",
    import_physical: "MemImportFromShareableHandle",
    export_memory: "IpcGetMemHandle",
    open_memory: "IpcOpenMemHandle",
    close_memory: "IpcCloseMemHandle",
}
