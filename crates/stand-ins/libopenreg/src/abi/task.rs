//! The C++ function under PyTorch's inline `orLaunchKernel`.

use crate::function::Function;
use crate::status::{Refused, Status, status};
use crate::stream::STREAMS;
use std::ffi::c_void;
use std::ptr::NonNull;

/// `orError_t openreg::addTaskToStream(orStream*, std::function<void()>)`
///
/// The name is GNU's `std::function` in the Itanium C++ ABI. That ABI passes a class with a copy constructor of
/// its own by the address of a copy that the caller makes and ends, which this function moves out of. Defining
/// it here under that name needs no linker script to get it out of a Rust library.
///
/// `orErrorUnknown` for a stream that is not live, and for an empty function. An exception that leaves the
/// function ends the process.
///
/// # Safety
/// `function` is null or points to a `std::function<void()>` that nobody else uses meanwhile, and which the
/// stream's thread may call.
#[unsafe(export_name = "_ZN7openreg15addTaskToStreamEP8orStreamSt8functionIFvvEE")]
pub unsafe extern "C" fn add_task_to_stream(stream: *mut c_void, function: *mut c_void) -> Status {
    status(|| {
        let stream = STREAMS.get(stream)?;
        let function = NonNull::new(function).ok_or(Refused)?;
        // SAFETY: the caller's promise.
        let function = unsafe { Function::keep(function) }.ok_or(Refused)?;
        stream.queue(Box::new(move || function.call()))
    })
}
