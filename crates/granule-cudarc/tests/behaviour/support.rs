//! A context, its allocator, and streams that stop where a test wants.

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DevicePtr, result};
use cudarc::nvrtc::Ptx;
use granule::types::DeviceIndex;
use granule_cudarc::{Allocator, Buffer};
use granule_tests::lookalike::{Controls, cuda_library};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Elements that tests use: 16 KiB.
pub(crate) const N: usize = 4096;

/// Runs a test over the lookalike driver, in a process of its own.
pub(crate) fn over_driver(test: impl FnOnce()) {
    granule_tests::alone::over_named_lookalikes("devices=2,capacity=64MiB", test);
}

pub(crate) fn start() -> (Arc<CudaContext>, Allocator) {
    let context = CudaContext::new(0).unwrap();
    let memory = Allocator::of(&context).unwrap();
    (context, memory)
}

pub(crate) fn controls() -> Controls {
    Controls::of(&cuda_library())
}

/// Bytes in use by buffers, as Granule counts them.
pub(crate) fn allocated(memory: &Allocator) -> i64 {
    memory.granule().stats(DeviceIndex(0)).unwrap().allocated_bytes.all.current
}

/// The address of a buffer, without an event for it.
pub(crate) fn address<T>(buffer: &Buffer<T>) -> u64 {
    let (address, use_of_it) = buffer.device_ptr(buffer.stream());
    std::mem::forget(use_of_it);
    address
}

/// The kernel that the lookalike driver knows.
pub(crate) fn axpy(context: &Arc<CudaContext>) -> CudaFunction {
    let module = context.load_module(Ptx::from_src(include_str!("../../examples/axpy.ptx"))).unwrap();
    module.load_function("axpy_f32").unwrap()
}

/// Stops a stream until it is opened.
pub(crate) struct Gate(Sender<()>);

impl Gate {
    pub(crate) fn on(stream: &CudaStream) -> Self {
        unsafe extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: the receiver below, handed over with the call.
            let gate = unsafe { Box::from_raw(gate.cast::<Receiver<()>>()) };
            let _ = gate.recv();
        }
        let (open, gate) = channel();
        let gate = Box::into_raw(Box::new(gate)).cast();
        stream.context().bind_to_thread().unwrap();
        // SAFETY: a living stream, and a function that owns what it is called with.
        unsafe { result::stream::launch_host_function(stream.cu_stream(), wait, gate).unwrap() };
        Self(open)
    }

    /// Lets the stream go on, after others had time to overtake it.
    pub(crate) fn open_late(self) {
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(self.0);
    }
}
