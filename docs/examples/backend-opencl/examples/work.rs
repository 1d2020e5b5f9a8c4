//! Real work on memory that Granule hands out over OpenCL: `cargo run --example work`. Results are compared with the host's.
//!
//! `GRANULE_OPENCL=...` chooses a device by a part of its platform's or its own name.

mod hold;

use alloc_core::CachingAllocator;
use alloc_core::config::Settings;
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Backend, CopyKind, EventFlags};
use backend_opencl::OpenClBackend;
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::program::Program;
use std::error::Error;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

const KERNELS: &str = "
kernel void saxpy(global float *y, global const float *x, float a) {
    size_t i = get_global_id(0);
    y[i] = a * x[i] + y[i];
}
kernel void fold(global float *x, uint step) {
    size_t i = get_global_id(0);
    x[i] += x[i + step];
}";
const DEVICE: DeviceIndex = DeviceIndex(0);
/// Floats of a buffer.
const COUNT: usize = 1 << 16;
const BYTES: u64 = 4 * COUNT as u64;

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// A device, its kernels, and the allocator of its memory.
struct Desk {
    backend: Arc<OpenClBackend>,
    allocator: CachingAllocator,
    saxpy: Kernel,
    fold: Kernel,
}

fn main() -> Done {
    let backend = OpenClBackend::new()?;
    let allocator = CachingAllocator::new(backend.clone(), Settings::default())?;
    let program = Program::create_and_build_from_source(&backend.context, KERNELS, "")?;
    let (saxpy, fold) = (Kernel::create(&program, "saxpy")?, Kernel::create(&program, "fold")?);
    let desk = Desk { backend, allocator, saxpy, fold };

    for round in 0..200 {
        desk.saxpy_matches(round)?;
        desk.reduction_matches(round)?;
        desk.chain_matches(round)?;
    }
    let (with, without) = (desk.reuse(true)?, desk.reuse(false)?);
    if with != 1.0 || without == 1.0 {
        return Err(format!("the second stream read {with} with record_stream, {without} without it").into());
    }
    desk.allocator.synchronise(DEVICE)?;
    let held = desk.allocator.stats(DEVICE)?.allocated_bytes.all;
    println!("200 rounds of saxpy, a sum and a chain over two streams agree with the host");
    println!("without record_stream a stream reads {without} where 1 was due, with it {with}");
    println!(
        "{} bytes were allocated in all, {} at once, {} are left",
        held.allocated, held.peak, held.current
    );
    Ok(())
}

impl Desk {
    fn stream(&self) -> Done<Stream> {
        Ok(self.backend.create_stream(DEVICE, 0)?)
    }

    /// Ends a stream and what the allocator knows of it.
    fn end(&self, stream: Stream) -> Done {
        // SAFETY: all its work is queued, and it is not used again.
        unsafe { self.allocator.retire_stream(stream)? };
        // SAFETY: rule 1: made here, and destroyed once.
        unsafe { self.backend.destroy_stream(stream)? };
        Ok(())
    }

    /// A buffer with these floats.
    fn upload(&self, floats: &[f32], stream: Stream) -> Done<DevicePtr> {
        let ptr = self.allocator.malloc(BYTES, stream)?;
        let from = DevicePtr(floats.as_ptr().expose_provenance() as u64);
        // SAFETY: rule 2: the wait below ends the copy.
        unsafe { self.backend.copy_async(ptr, from, BYTES, CopyKind::HostToDevice, stream)? };
        self.backend.synchronize_stream(stream)?;
        Ok(ptr)
    }

    fn download(&self, ptr: DevicePtr, stream: Stream) -> Done<Vec<f32>> {
        let mut floats = vec![0.0; COUNT];
        let to = DevicePtr(floats.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: rule 2: the wait below ends the copy.
        unsafe { self.backend.copy_async(to, ptr, BYTES, CopyKind::DeviceToHost, stream)? };
        self.backend.synchronize_stream(stream)?;
        Ok(floats)
    }

    /// Queues `y = a * x + y`.
    fn saxpy(&self, y: DevicePtr, x: DevicePtr, a: f32, stream: Stream) -> Done {
        let [y, x] = [y, x].map(|ptr| with_exposed_provenance_mut::<f32>(ptr.0 as usize));
        Ok(self.backend.submit("saxpy", stream, |queue| {
            let mut call = ExecuteKernel::new(&self.saxpy);
            // SAFETY: the buffers are COUNT floats, alive until the stream has passed.
            unsafe { call.set_arg_svm(y).set_arg_svm(x).set_arg(&a) };
            // SAFETY: as above.
            unsafe { call.set_global_work_size(COUNT).enqueue_nd_range(queue) }
        })?)
    }

    /// Queues the sum of a buffer's floats into its first one.
    fn sum(&self, x: DevicePtr, stream: Stream) -> Done {
        let x = with_exposed_provenance_mut::<f32>(x.0 as usize);
        let mut half = COUNT / 2;
        while half > 0 {
            self.backend.submit("fold", stream, |queue| {
                let mut call = ExecuteKernel::new(&self.fold);
                // SAFETY: the buffer is COUNT floats, alive until the stream has passed.
                unsafe { call.set_arg_svm(x).set_arg(&(half as u32)) };
                // SAFETY: as above.
                unsafe { call.set_global_work_size(half).enqueue_nd_range(queue) }
            })?;
            half /= 2;
        }
        Ok(())
    }

    fn saxpy_matches(&self, round: usize) -> Done {
        let stream = self.stream()?;
        let host: Vec<f32> = (0..COUNT).map(|i| ((i + round) % 97) as f32).collect();
        let (x, y) = (self.upload(&host, stream)?, self.upload(&host, stream)?);
        self.saxpy(y, x, 3.0, stream)?;
        let due: Vec<f32> = host.iter().map(|x| 3.0 * x + x).collect();
        agree("saxpy", &self.download(y, stream)?, &due)?;
        self.allocator.free(x)?;
        self.allocator.free(y)?;
        self.end(stream)
    }

    fn reduction_matches(&self, round: usize) -> Done {
        let stream = self.stream()?;
        // Whole numbers, whose sums are exact.
        let host: Vec<f32> = (0..COUNT).map(|i| ((i * 7 + round) % 31) as f32).collect();
        let x = self.upload(&host, stream)?;
        self.sum(x, stream)?;
        agree("the sum", &self.download(x, stream)?[..1], &[host.iter().sum()])?;
        self.allocator.free(x)?;
        self.end(stream)
    }

    /// One stream fills, another one computes behind an event, and the buffers are freed at once.
    fn chain_matches(&self, round: usize) -> Done {
        let (first, second) = (self.stream()?, self.stream()?);
        let event = self.backend.create_event(DEVICE, EventFlags::empty())?;
        let ones = vec![1.0; COUNT];
        let (x, y) = (self.upload(&ones, first)?, self.upload(&ones, second)?);
        self.saxpy(x, x, round as f32, first)?;
        self.backend.record_event(event, first)?;
        self.backend.wait_event(second, event)?;
        self.saxpy(y, x, 2.0, second)?;
        self.allocator.record_stream(x, second)?;
        self.allocator.free(x)?;
        // The first stream goes on with other memory at once.
        let next = self.upload(&vec![9.0; COUNT], first)?;
        agree("the chain", &self.download(y, second)?, &vec![2.0 * (round as f32 + 1.0) + 1.0; COUNT])?;
        self.allocator.free(next)?;
        self.allocator.free(y)?;
        // SAFETY: rule 1: made here, and destroyed once.
        unsafe { self.backend.destroy_event(event)? };
        self.end(first)?;
        self.end(second)
    }

    /// What a held stream copies of a buffer of ones that was freed and asked for again meanwhile.
    fn reuse(&self, record: bool) -> Done<f32> {
        let (first, second) = (self.stream()?, self.stream()?);
        let x = self.upload(&vec![1.0; COUNT], first)?;
        let y = self.upload(&vec![0.0; COUNT], second)?;
        let open = hold::hold(&self.backend, second)?;
        self.saxpy(y, x, 1.0, second)?;
        if record {
            self.allocator.record_stream(x, second)?;
        }
        self.allocator.free(x)?;
        let next = self.upload(&vec![5.0; COUNT], first)?;
        open();
        let read = self.download(y, second)?[COUNT - 1];
        self.allocator.free(next)?;
        self.allocator.free(y)?;
        self.end(first)?;
        self.end(second)?;
        Ok(read)
    }
}

fn agree(what: &str, found: &[f32], due: &[f32]) -> Result<(), String> {
    match found.iter().zip(due).position(|(found, due)| found != due) {
        None => Ok(()),
        Some(at) => Err(format!("{what}: {} at {at} where {} was due", found[at], due[at])),
    }
}
