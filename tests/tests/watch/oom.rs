//! What a refusal for lack of memory says.

use alloc_core::AllocError;
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::types::MIB;
use backend_openreg::{Clock, OpenRegConfig};
use granule_tests::policy::{Policy, PytorchPolicy};
use granule_tests::rig::DEVICE;
use granule_tests::setup::of_bytes;
use granule_tests::with_policy;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn o01_the_message_has_pytorchs_words_and_figures() {
    let (_device, allocator, stream) = with_policy::<PytorchPolicy>(
        OpenRegConfig::default().devices(1).capacity(64 * MIB),
        Settings::default(),
    );
    let held = allocator.malloc(30 * MIB, stream).unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let observer = Arc::clone(&seen);
    allocator.hooks().on_out_of_memory(move |report| {
        assert_eq!(report.tried, 50 * MIB);
        observer.fetch_add(1, Ordering::SeqCst);
    });
    let error = allocator.malloc(50 * MIB, stream).unwrap_err();
    let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
    assert_eq!(
        report.pytorch_message(),
        "OpenReg out of memory. Tried to allocate 50.00 MiB. GPU 0 has a total capacity of 64.00 MiB of which \
         34.00 MiB is free. Of the allocated memory 30.00 MiB is allocated by PyTorch, and 0 bytes is reserved by \
         PyTorch but unallocated. If reserved but unallocated memory is large try setting \
         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory \
         Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    );
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    let stats = allocator.stats(DEVICE).unwrap();
    assert_eq!((stats.num_ooms, stats.num_alloc_retries), (1, 1));
    assert!(allocator.malloc(1 << 60, stream).unwrap_err().to_string().contains("more than 1EB"));
    allocator.malloc(1000, stream).expect("the next request works");
    allocator.free(held).unwrap();
}

/// Promise 1: the report names the largest fit, what keeps free memory apart, and what would help.
#[test]
fn the_report_names_blockers_and_remedies() {
    let (device, allocator, stream) = with_policy::<PytorchPolicy>(
        OpenRegConfig::default().devices(1).capacity(64 * MIB),
        Settings::default(),
    );
    let side = device.create_stream(DEVICE, 0).unwrap();
    let base = allocator.malloc(40 * MIB, stream).unwrap();
    allocator.free(base).unwrap();
    let parts: Vec<_> = (0..4).map(|_| allocator.malloc(10 * MIB, stream).unwrap()).collect();
    let _others = allocator.malloc(4 * MIB, side).unwrap();
    allocator.free(parts[0]).unwrap();
    allocator.free(parts[2]).unwrap();
    let error = allocator.malloc(24 * MIB, stream).unwrap_err();
    let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
    assert_eq!(report.largest_fit, 10 * MIB);
    let worst = report.blockers[0];
    assert_eq!((worst.ptr, worst.beside, worst.would_free()), (parts[1], 20 * MIB, 30 * MIB));
    let remedies: Vec<_> = report.remedies.iter().map(|r| (r.bytes, r.enough)).collect();
    assert_eq!(
        remedies,
        [(24 * MIB, true), (16 * MIB, false)],
        "joining the pieces; the other stream's cache"
    );
    let text = error.to_string();
    assert!(text.contains("30.00 MiB would be free in one piece"), "{text}");
    assert!(text.contains("expandable_segments:True") && text.contains(": enough"), "{text}");
    assert_eq!(report.shortfall(), 0);
    let too_much = allocator.malloc(100 * MIB, stream).unwrap_err();
    assert!(too_much.to_string().contains("need 60.00 MiB more than can be held"), "{too_much}");
}

fn the_report_names_the_fraction_as_a_remedy<P: Policy>() {
    let (device, allocator, home) =
        with_policy::<P>(of_bytes(100 * MIB).clock(Clock::Virtual { lag: 1000 }), Settings::default());
    allocator.set_memory_fraction(0.6, DEVICE).unwrap();
    let _held = allocator.malloc(50 * MIB, home).unwrap();
    let error = allocator.malloc(20 * MIB, home).unwrap_err();
    let AllocError::OutOfMemory(report) = &error else { panic!("{error}") };
    assert_eq!(report.blockers, [], "nothing free lies beside it");
    let remedies: Vec<_> = report.remedies.iter().map(|r| (r.what.as_str(), r.bytes)).collect();
    assert_eq!(remedies, [("raising the memory fraction", 40 * MIB)]);
    let _ = device;
}

granule_tests::for_each_policy!(the_report_names_the_fraction_as_a_remedy,);
