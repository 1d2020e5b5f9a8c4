//! Every CUDA device by name; then, on the first, memory that travels between two streams, a pool, and a graph.
//!
//! Built with the feature `cuda`, it runs on NVIDIA GPUs; with `hip-as-cuda` alone, the same source runs on AMD
//! GPUs and cannot tell the difference.

use anyhow::{Result, ensure};
use granule::backend::{CaptureMode, EventFlags};
use granule::config::Settings;
use granule::cuda::{
    CachingAllocator, Device, DeviceBuffer, Event, GraphCapture, HostAllocator, MemoryPool, Stream,
};
use granule::host::HostOptions;
use granule::pool::PoolOptions;
use granule::types::DeviceKind;

fn main() -> Result<()> {
    let devices = Device::all()?;
    for device in &devices {
        println!("{device:?}: {}", device.properties()?.name);
        ensure!(device.kind() == DeviceKind::Cuda, "a device of another kind");
    }
    let Some(device) = devices.first() else {
        println!("there is no device");
        return Ok(());
    };

    let allocator = CachingAllocator::new(Settings::default())?;
    let (producer, consumer) = (device.create_stream(0)?, device.create_stream(-1)?);
    let written: Vec<u8> = (0..=255).collect();
    let mut buffer = allocator.allocate::<u8>(4096, &producer)?;
    buffer.fill_bytes(7)?;
    buffer.write(&written)?;

    // The consumer reads after the producer has written, and the memory waits for both.
    let ready = Event::new(device, EventFlags::empty())?;
    ready.record(&producer)?;
    consumer.wait(&ready)?;
    buffer.record_stream(&consumer)?;
    let mut read = vec![0; 512];
    buffer.read(&mut read)?;
    ensure!(read[..256] == written && read[256..].iter().all(|byte| *byte == 7), "other bytes came back");
    copies(device, &allocator, &buffer, &consumer)?;
    drop(buffer);
    graphs(&allocator, &producer)?;

    consumer.synchronize()?;
    producer.synchronize()?;
    let stats = allocator.stats(device.index())?;
    println!(
        "round trip of {} bytes; {} bytes cached, {} in use",
        read.len(),
        stats.reserved_bytes.all.current,
        stats.allocated_bytes.all.current
    );
    Ok(())
}

/// A copy on another stream, in memory of a pool of its own.
fn copies(
    device: &Device,
    allocator: &CachingAllocator,
    buffer: &DeviceBuffer<u8>,
    stream: &Stream,
) -> Result<()> {
    let pool = MemoryPool::new(allocator, device.index(), PoolOptions::default())?;
    let scope = pool.enter()?;
    let mut copy = allocator.allocate::<u8>(4096, stream)?;
    drop(scope);
    // SAFETY: the stream has waited for what the buffer was given, and the buffer gets nothing more.
    unsafe { copy.copy_from(buffer, stream)? };
    let mut pinned = HostAllocator::new(&Settings::default(), HostOptions::default())?.zeroed(256)?;
    // SAFETY: nothing looks at it before the stream has been waited for.
    unsafe { copy.read_async(&mut pinned)? };
    stream.synchronize()?;
    ensure!(pinned.as_slice().iter().copied().eq(0..=255), "other bytes were copied");
    Ok(())
}

/// A graph that fills memory of its own, launched twice.
fn graphs(allocator: &CachingAllocator, stream: &Stream) -> Result<()> {
    let capture = GraphCapture::begin(allocator, stream, CaptureMode::ThreadLocal, None)?;
    let mut filled = allocator.allocate::<u8>(512, stream)?;
    filled.fill_bytes(9)?;
    let mut graph = capture.end()?;
    for _ in 0..2 {
        // SAFETY: all memory that it uses is of its own pool.
        unsafe { graph.launch(stream)? };
    }
    let mut read = [0; 512];
    filled.read(&mut read)?;
    ensure!(read == [9; 512], "the graph did not run");
    Ok(())
}
