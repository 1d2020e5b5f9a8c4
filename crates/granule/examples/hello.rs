//! Memory on the simulated device, from settings in a text: `cargo run -p granule --example hello`
//!
//! On a GPU, take the backend of `granule::backends::choose(None)` in place of `OpenReg`; the rest stays.

use granule::prelude::*;
use std::sync::Arc;

fn main() -> Result<(), AllocError> {
    let device = DeviceIndex(0);
    // Memory with contents: the default only counts.
    let machine = OpenReg::new(OpenRegConfig::default().memory(MemoryMode::Mapped))?;
    // What `GRANULE_CONF` takes; an error names the word that is wrong, and what is allowed.
    let settings = Settings::parse("expandable_segments:True,memory_limit:4GiB")?;
    let allocator = Arc::new(CachingAllocator::new(machine.clone(), settings)?);

    let stream = machine.create_stream(device, 0)?;
    let mut weights = DeviceBuffer::<f32>::new(&allocator, 12 << 20, stream)?;
    println!("hello: {} values, {} bytes, at {}", weights.len(), weights.bytes(), weights.ptr());
    weights.write(&[1.0, 2.0, 3.0])?;
    let mut first = [0.0; 3];
    weights.read(&mut first)?;
    println!("the first three: {first:?}");

    if let Err(refused) = DeviceBuffer::<u8>::new(&allocator, 8 << 30, stream) {
        println!("\n8 GiB more are refused, and the error says why:\n\n{refused}\n");
    }

    drop(weights); // in the order of the stream's work
    let reserved = allocator.stats(device)?.reserved_bytes.all;
    println!("reserved at most: {} bytes, now: {}", reserved.peak, reserved.current);
    allocator.empty_cache()?;
    println!("after empty_cache: {}", allocator.stats(device)?.reserved_bytes.all.current);
    Ok(())
}
