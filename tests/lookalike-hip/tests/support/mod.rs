//! Loads the built runtime as a backend does, in a process of its own for each test.

#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]
#![allow(clippy::borrow_as_ptr, reason = "tests call as C does")]

#[path = "../../../lookalike-cuda/tests/support/processes.rs"]
pub mod processes;

use granule_hip_sys::abi6::*;
use granule_hip_sys::{Library, abi7};
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

/// Calls a function of the runtime.
#[macro_export]
macro_rules! hip {
    ($runtime:ident.$name:ident($($argument:expr),* $(,)?)) => {{
        let called = $runtime.functions.base.$name.expect(stringify!($name));
        // SAFETY: the test passes places and sizes as the header asks.
        #[allow(unused_unsafe)]
        unsafe { called($($argument),*) }
    }};
}

/// The same, for a call that must succeed.
#[macro_export]
macro_rules! ok {
    ($runtime:ident.$name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!($crate::hip!($runtime.$name($($argument),*)), hipSuccess, stringify!($name))
    };
}

/// The loaded runtime.
pub struct Runtime {
    library: Library,
    /// Its functions; 7's, which other releases have a part of.
    pub functions: abi7::Functions,
}

/// Declares the controls of the lookalike.
macro_rules! controls {
    ($($(#[$meta:meta])* fn $name:ident = $symbol:literal: $type:ty, ($($argument:ident: $of:ty),*) -> $answer:ty;)*) => {
        impl Runtime {
            $($(#[$meta])*
            pub fn $name(&self, $($argument: $of),*) -> $answer {
                let address = self.library.symbol($symbol).expect("a control");
                // SAFETY: the type with which the lookalike declares this function.
                let control = unsafe { std::mem::transmute::<*mut c_void, $type>(address) };
                control($($argument),*)
            })*
        }
    };
}

controls! {
    /// Entry points called so far.
    fn calls = c"granule_lookalike_calls": extern "C" fn() -> u64, () -> u64;
    /// Lets a call fail.
    fn fail = c"granule_lookalike_fail": extern "C" fn(u64, i32), (k: u64, code: i32) -> ();
    /// Lets a call of one function fail.
    fn fail_function = c"granule_lookalike_fail_function": extern "C" fn(*const std::ffi::c_char, u64, i32),
        (name: *const std::ffi::c_char, nth: u64, code: i32) -> ();
    /// Bytes in use.
    fn used = c"granule_lookalike_used": extern "C" fn(u16) -> u64, (device: u16) -> u64;
    /// Misuses so far.
    fn traps = c"granule_lookalike_traps": extern "C" fn() -> u64, () -> u64;
    /// The error left for the next caller.
    fn last_error = c"granule_lookalike_last_error": extern "C" fn() -> i32, () -> i32;
    /// Loses a device.
    fn lose_device = c"granule_lookalike_lose_device": extern "C" fn(u16), (device: u16) -> ();
}

impl Runtime {
    /// Loads it as a backend does.
    pub fn load() -> Self {
        let library = Library::open().expect("the lookalike loads");
        // SAFETY: the lookalike has 6's signatures, and 7's for what 7 added, in every personality.
        let functions = unsafe { abi7::Functions::load(|name| library.symbol(name)) };
        Self { library, functions }
    }

    /// Whether the library exports a name.
    pub fn exports(&self, name: &CStr) -> bool {
        self.library.symbol(name).is_some()
    }

    /// Device memory.
    pub fn memory(&self, bytes: usize) -> *mut c_void {
        let mut pointer = null_mut();
        ok!(self.hipMalloc(&mut pointer, bytes));
        pointer
    }

    /// A non-blocking stream.
    pub fn stream(&self) -> hipStream_t {
        let mut stream = null_mut();
        ok!(self.hipStreamCreateWithPriority(&mut stream, hipStreamNonBlocking, 0));
        stream
    }

    /// An event.
    pub fn event(&self, flags: u32) -> hipEvent_t {
        let mut event = null_mut();
        ok!(self.hipEventCreateWithFlags(&mut event, flags));
        event
    }

    /// Fills device memory with a pattern of `seed`.
    pub fn write(&self, to: *mut c_void, seed: u8) {
        let bytes = pattern(seed);
        ok!(self.hipMemcpy(to, bytes.as_ptr().cast(), bytes.len(), hipMemcpyHostToDevice));
    }

    /// Whether device memory holds the pattern of `seed`.
    pub fn holds(&self, at: *mut c_void, seed: u8) -> bool {
        let mut bytes = [0; SAMPLE];
        ok!(self.hipMemcpy(bytes.as_mut_ptr().cast(), at, SAMPLE, hipMemcpyDeviceToHost));
        bytes == pattern(seed)
    }
}

/// Physical memory of device 0 that can leave the process by descriptor.
pub fn properties() -> hipMemAllocationProp {
    hipMemAllocationProp {
        type_: hipMemAllocationTypePinned,
        requestedHandleType: hipMemHandleTypePosixFileDescriptor,
        location: hipMemLocation { type_: hipMemLocationTypeDevice, id: 0 },
        win32HandleMetaData: null_mut(),
        allocFlags: hipMemAllocationProp__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
        },
    }
}

/// Bytes of a pattern.
pub const SAMPLE: usize = 4096;

fn pattern(seed: u8) -> [u8; SAMPLE] {
    std::array::from_fn(|at| (at as u8).wrapping_mul(7).wrapping_add(seed))
}

/// Runs `body` in a process of its own, with the runtime that `settings` asks for.
pub fn in_process(test: &str, settings: &str, body: impl FnOnce(&Runtime)) {
    processes::in_process(test, settings, || body(&Runtime::load()));
}
