//! A Granule backend given as a C table of function pointers.
//!
//! A vendor who writes C fills the table of `include/granule_backend.h` and hands it over: [`CBackend::from_table`]
//! checks it and gives a [`Backend`](backend_api::Backend) like any other. The table, its header and the
//! calls through it are generated from the contract by `cargo xtask codegen`.
//!
//! What the contract lets Granule do itself, a C vendor need not write: handles carry their backend and are
//! checked here, so are sizes and device numbers; host functions are boxed and cannot unwind into C; and some
//! functions follow from others ([`Table`] with `None` there).

mod backend;
mod call;
mod forward;
mod host_function;
mod names;
mod table;
mod values;

pub use backend::{CBackend, TableError};
pub use host_function::HostCallback;
pub use table::Table;
pub use values::{
    RawAddressRange, RawCaptureStatus, RawDeviceProperties, RawEvent, RawIpcHandle, RawMemoryInfo,
    RawPointerInfo, RawPriorityRange, RawShareableHandle, RawStream, Value,
};

/// `GRANULE_BACKEND_VERSION` of the header: the layout of [`Table`]. A change that only appends keeps it.
pub const VERSION: u64 = 2;
