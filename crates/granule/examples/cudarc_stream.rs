//! Memory from Granule on a stream that the program made with cudarc.
//!
//! `cargo run -p granule --features cuda --example cudarc_stream`

use cudarc::driver::result::stream::{self, StreamKind};
use granule::config::Settings;
use granule::cuda::{CachingAllocator, Device, Stream};

fn main() -> anyhow::Result<()> {
    // Granule finds the driver, or says what to do; cudarc would panic where there is none.
    let device = Device::new(0)?;
    let allocator = CachingAllocator::new(Settings::default())?;
    // cudarc's calls are about the thread's current device.
    device.make_current()?;
    let theirs = stream::create(StreamKind::NonBlocking)?;
    {
        // SAFETY: a stream of this device, destroyed below, when the buffer and this value are gone.
        let ours = unsafe { Stream::from_external(&device, theirs.addr() as u64) };
        let mut buffer = allocator.allocate(1 << 20, &ours)?;
        buffer.fill_bytes(42)?;
        let mut first = [0; 16];
        buffer.read(&mut first)?;
        println!("{} bytes at {} on cudarc's stream begin with {first:?}", buffer.len(), buffer.ptr());
        drop(buffer);
        // SAFETY: all work was queued before, and the buffer is gone.
        unsafe { allocator.retire_stream(&ours)? };
    }
    // SAFETY: made above; the allocator has been told, and nothing uses it any more.
    unsafe { stream::destroy(theirs)? };
    Ok(())
}
