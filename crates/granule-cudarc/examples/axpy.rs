//! A kernel on buffers from Granule, two streams, and what the cache did.
//!
//! `cargo run -p granule-cudarc --example axpy` on a machine with an NVIDIA GPU. No toolkit is needed: the kernel is PTX
//! text.

use anyhow::{Result, ensure};
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use granule::types::DeviceIndex;
use granule_cudarc::Allocator;

const N: usize = 1 << 20;

fn main() -> Result<()> {
    run()
}

pub(crate) fn run() -> Result<()> {
    // cudarc panics where it finds no driver; Granule says what is missing.
    granule::backends::Name::Cuda.check()?;
    let context = CudaContext::new(0)?;
    let memory = Allocator::of(&context)?;
    let axpy = context.load_module(Ptx::from_src(include_str!("axpy.ptx")))?.load_function("axpy_f32")?;
    let (compute, copies) = (context.new_stream()?, context.new_stream()?);

    for step in 0..10_u8 {
        let x = memory.clone_htod(&copies, &vec![f32::from(step); N])?;
        let mut y = memory.alloc_zeros::<f32>(&compute, N)?;
        let (a, n) = (2.0_f32, N as u64);
        let mut launch = compute.launch_builder(&axpy);
        launch.arg(&mut y).arg(&x).arg(&a).arg(&n);
        // SAFETY: the parameters of the kernel, and memory for `n` elements behind both.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32))? };
        // The other stream reads the result after the kernel: cudarc's events order the two.
        let result = copies.clone_dtoh(&y.slice(..4))?;
        ensure!(result == [2.0 * f32::from(step); 4], "step {step} computed {result:?}");
        // Both buffers go back into the cache here, and the next step has them again.
    }

    let stats = memory.granule().stats(DeviceIndex(0))?;
    println!(
        "{} allocations, {} requests to the driver, {} bytes held",
        stats.allocation.all.allocated, stats.segment.all.allocated, stats.reserved_bytes.all.current
    );
    Ok(())
}
