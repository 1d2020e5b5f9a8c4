//! C and Rust put the fields of the header's structs at the same places.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use backend_c::*;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::mem::offset_of;

/// `struct place` of layout.c.
#[repr(C)]
struct Place {
    name: *const c_char,
    offset: u64,
}

unsafe extern "C" {
    fn layout_places(count: *mut u64) -> *const Place;
}

/// What C's compiler says.
fn of_c() -> BTreeMap<String, u64> {
    // The table of another object: without a use of it, the archive is not linked.
    assert!(!c_backend::table().is_null());
    let mut count = 0;
    // SAFETY: the function writes one number.
    let places = unsafe { layout_places(&raw mut count) };
    // SAFETY: the function's answer is a static array of that many places.
    let places = unsafe { std::slice::from_raw_parts(places, count as usize) };
    let named = |place: &Place| {
        // SAFETY: a literal of layout.c.
        let name = unsafe { CStr::from_ptr(place.name) };
        (name.to_str().unwrap().to_owned(), place.offset)
    };
    places.iter().map(named).collect()
}

macro_rules! of_rust {
    ($($rust:ident = $c:literal { $($field:ident)* })*) => {{
        let mut places = BTreeMap::new();
        $(
            places.insert($c.to_owned(), size_of::<$rust>() as u64);
            $(places.insert(format!("{}.{}", $c, stringify!($field)), offset_of!($rust, $field) as u64);)*
        )*
        places
    }};
}

#[test]
fn every_field_is_where_c_has_it() {
    let rust = of_rust! {
        RawStream = "granule_backend_stream" {
            raw device
        }
        RawEvent = "granule_backend_event" {
            raw device
        }
        RawMemoryInfo = "granule_backend_memory_info" {
            free total
        }
        RawAddressRange = "granule_backend_address_range" {
            base bytes
        }
        RawPointerInfo = "granule_backend_pointer_info" {
            kind device base
        }
        RawDeviceProperties = "granule_backend_device_properties" {
            name uuid pci_bus_id total_memory warp_size
        }
        RawPriorityRange = "granule_backend_priority_range" {
            least greatest
        }
        RawIpcHandle = "granule_backend_ipc_handle" {
            bytes
        }
        RawShareableHandle = "granule_backend_shareable_handle" {
            handle_type fd fabric
        }
        RawCaptureStatus = "granule_backend_capture_status" {
            id state
        }
        Table = "granule_backend_table" {
            size version context last_error device_count current_device set_device synchronize_device
            malloc free memory_info pointer_info address_range copy_async memset_async create_stream
            destroy_stream query_stream synchronize_stream wait_event launch_host_function
            create_event destroy_event record_event query_event synchronize_event host_malloc
            host_free error_name clear_error has_primary_context attribute properties copy
            priority_range elapsed_ms virtual_memory_granularity virtual_memory_reserve_address
            virtual_memory_release_address virtual_memory_create_physical
            virtual_memory_release_physical virtual_memory_map virtual_memory_unmap
            virtual_memory_set_access virtual_memory_access virtual_memory_export_physical
            virtual_memory_import_physical ipc_export_memory ipc_open_memory ipc_close_memory
            peers_can_access peers_enable_access peers_copy_peer_async capture_status capture_begin
            capture_end capture_launch capture_destroy_graph capture_exchange_mode capture_frontier
            capture_dependencies host_registration_register host_registration_unregister name label
        }
    };
    assert_eq!(rust, of_c());
    // The last field ends the table: a field that is missing in both lists would leave a gap.
    let functions = rust.keys().filter(|name| name.starts_with("granule_backend_table.")).count();
    assert_eq!(functions * 8, size_of::<Table>());
}
