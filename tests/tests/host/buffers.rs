//! Pinned buffers: memory that frees itself, and that nobody else can free.

use crate::machines::{idle, machine, plain};
use alloc_core::backend::{Backend, CopyKind};
use alloc_core::config::Settings;
use alloc_core::host::{HostAllocator, HostOptions, PinnedBuffer};
use alloc_core::types::{DevicePtr, KIB};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{MemoryMode, OpenReg, OpenRegConfig};
use granule_tests::pinned::nothing_is_pinned;
use granule_tests::rig::DEVICE;
use std::sync::Arc;

/// Safe code cannot make two buffers of one block.
#[test]
fn a_buffers_block_is_not_freed_behind_its_back() {
    let machine = OpenReg::new(OpenRegConfig::default().devices(1)).unwrap();
    let host = Arc::new(HostAllocator::new(machine, &Settings::default(), HostOptions::default()).unwrap());
    let first = PinnedBuffer::zeroed(&host, 100).unwrap();
    let refused = host.free(first.block().id).unwrap_err();
    assert!(matches!(refused, AllocError::UnknownHostBlock { id } if id == first.block().id.0));
    let second = PinnedBuffer::copied(&host, &[7; 100]).unwrap();
    assert_ne!(first.ptr(), second.ptr());
    assert_eq!((first.as_slice(), second.as_slice()), (&[0; 100][..], &[7; 100][..]));
    // Given up, it is the program's.
    let raw = first.into_raw();
    host.free(raw.id).unwrap();
    host.free(raw.id).unwrap_err();
    let again = host.allocate(100).unwrap();
    assert_eq!(again.ptr, raw.ptr);
    host.free(again.id).unwrap();
    drop(second);
    assert_eq!(host.stats().active_requests.current, 0);
}

#[test]
fn a_buffer_is_ordinary_memory_and_frees_itself() {
    let machine = machine(OpenRegConfig::default().devices(1).memory(MemoryMode::Mapped));
    let host = Arc::new(plain(&machine));
    let mut written = PinnedBuffer::copied(&host, b"pinned").unwrap();
    assert_eq!((written.len(), written.as_slice()), (6, &b"pinned"[..]));
    written.as_mut_slice()[0] = b'P';
    let mut read = PinnedBuffer::zeroed(&host, 6).unwrap();
    assert_eq!(read.as_ref(), [0; 6]);
    let (stream, devices) = (
        machine.default_stream(DEVICE),
        Arc::new(CachingAllocator::new(machine.clone(), Settings::default()).unwrap()),
    );
    let device = alloc_core::DeviceBuffer::<u8>::new(&devices, 6, stream).unwrap();
    // SAFETY: rule 2: all three live on, and no slice is used before the stream was waited for.
    unsafe { host.copy_async(device.ptr(), written.ptr(), 6, CopyKind::HostToDevice, stream) }.unwrap();
    // SAFETY: as above.
    unsafe { host.copy_async(read.ptr(), device.ptr(), 6, CopyKind::DeviceToHost, stream) }.unwrap();
    machine.synchronize_stream(stream).unwrap();
    assert_eq!(read.as_mut(), b"Pinned");
    read.record_stream(stream).unwrap();
    let at = read.ptr();
    drop(read);
    let again = PinnedBuffer::zeroed(&host, 8).unwrap();
    assert_eq!((again.ptr(), again.as_slice()), (at, &[0; 8][..]), "nothing of the last owner's is seen");
    let nothing = PinnedBuffer::zeroed(&host, 0).unwrap();
    assert!(nothing.is_empty() && nothing.ptr().is_null() && nothing.as_slice().is_empty());
    let raw = again.into_raw();
    assert_eq!(host.stats().active_requests.current, 2);
    host.free(raw.id).unwrap();
    drop((written, nothing, device));
    host.poll().unwrap();
    assert_eq!(host.stats().active_requests.current, 0);
    drop(host);
    nothing_is_pinned(&machine);
}

/// The allocator goes with its last buffer.
#[test]
fn a_buffer_keeps_its_allocator() {
    let machine = idle();
    let host = Arc::new(plain(&machine));
    let buffer = PinnedBuffer::copied(&host, &[7; 100]).unwrap();
    drop(host);
    assert_eq!(buffer.as_slice(), [7; 100]);
    drop(buffer);
    nothing_is_pinned(&machine);
}

#[test]
fn an_address_is_pinned_and_nothing_else_is_named_by_it() {
    let machine = idle();
    let host = plain(&machine);
    let block = host.allocate(3 * KIB).unwrap();
    assert_ne!(DevicePtr(block.id.0), block.ptr, "PyTorch's context is not the address either");
    assert!(block.ptr.0.is_multiple_of(64));
}
