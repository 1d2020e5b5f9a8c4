//! Every CUDA device by name; then memory that travels between two streams of the first.
//!
//! Built with the feature `cuda`, it runs on NVIDIA GPUs; with `hip-as-cuda` alone, the same source runs on AMD
//! GPUs and cannot tell the difference.

use anyhow::{Result, ensure};
use granule::backend::EventFlags;
use granule::config::Settings;
use granule::cuda::{CachingAllocator, Device, Event};
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
    let mut buffer = allocator.allocate(4096, &producer)?;
    buffer.fill(7)?;
    buffer.write(&written)?;

    // The consumer reads after the producer has written, and the memory waits for both.
    let ready = Event::new(device, EventFlags::empty())?;
    ready.record(&producer)?;
    consumer.wait(&ready)?;
    buffer.record_stream(&consumer)?;
    let mut read = vec![0; 512];
    buffer.read(&mut read)?;
    ensure!(read[..256] == written && read[256..].iter().all(|byte| *byte == 7), "other bytes came back");
    drop(buffer);

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
