//! Pinned host memory on the machines of [`rig`](crate::rig).

use crate::rig::Rig;
use alloc_core::config::Settings;
use alloc_core::host::{HostAllocator, HostBlock, HostOptions};
use backend_openreg::{Call, Clock, OpenReg, OpenRegConfig};

/// A machine with one device.
#[must_use]
pub fn machine() -> OpenRegConfig {
    OpenRegConfig::default().devices(1)
}

/// A machine whose streams can be held up.
#[must_use]
pub fn working() -> OpenRegConfig {
    machine().clock(Clock::Workers)
}

/// An allocator as PyTorch has it.
///
/// # Panics
/// Where the settings are refused.
#[must_use]
pub fn host(rig: &Rig, settings: &Settings) -> HostAllocator {
    HostAllocator::new(rig.backend.clone(), settings, HostOptions::default()).expect("the settings are valid")
}

/// Calls of one kind that reached the machine.
#[must_use]
pub fn calls(rig: &Rig, call: Call) -> u64 {
    rig.device.calls().get(call)
}

/// Everything goes back: what was pinned is not any more.
///
/// # Panics
/// Where something is left.
pub fn nothing_is_left(rig: &Rig, host: HostAllocator) {
    drop(host);
    nothing_is_pinned(&rig.device);
}

/// Everything went back to the driver of a machine.
///
/// # Panics
/// Where something is left.
pub fn nothing_is_pinned(machine: &OpenReg) {
    let calls = |call| machine.calls().get(call);
    assert_eq!(calls(Call::HostMalloc), calls(Call::HostFree));
    assert_eq!(calls(Call::RegisterHost), calls(Call::UnregisterHost));
    assert_eq!(machine.traps(), Vec::new(), "no memory left while work used it");
}

/// Writes every byte of a block that the caller has: the n-th is `byte(n)`.
pub fn write(block: &HostBlock, byte: impl Fn(usize) -> u8) {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(block.ptr.0 as usize);
    for n in 0..block.bytes as usize {
        // SAFETY: inside of the block, which is the caller's.
        let place = unsafe { at.add(n) };
        // SAFETY: as above.
        unsafe { place.write(byte(n)) };
    }
}

/// The bytes of a block that the caller has.
#[must_use]
pub fn read(block: &HostBlock) -> Vec<u8> {
    let at = std::ptr::with_exposed_provenance::<u8>(block.ptr.0 as usize);
    // SAFETY: the whole of the block, which is the caller's; what the driver hands out is real memory.
    unsafe { std::slice::from_raw_parts(at, block.bytes as usize) }.to_vec()
}
