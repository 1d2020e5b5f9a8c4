//! What bad input gets.

use crate::support::{N, allocated, controls, over_driver, start};
use cudarc::driver::{CudaContext, result};
use granule_cudarc::{Allocator, Error};
use std::mem::ManuallyDrop;

#[test]
fn out_of_memory_is_granules_report() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let held = memory.alloc_zeros::<u8>(&stream, 40 << 20).unwrap();
        let error = memory.alloc_zeros::<u64>(&stream, 4 << 20).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        let text = error.to_string();
        assert!(text.contains("32.00 MiB") && text.contains("40.00 MiB"), "{text}");
        drop(held);
        memory.alloc_zeros::<u64>(&stream, 4 << 20).unwrap();
    });
}

#[test]
fn a_length_that_no_address_reaches_is_refused() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        for len in [usize::MAX, usize::MAX / 8, isize::MAX as usize / 8 + 1] {
            let error = memory.alloc_zeros::<u64>(&stream, len).unwrap_err();
            assert!(matches!(error, Error::TooLong { size: 8, .. }), "{error}");
        }
        assert_eq!(allocated(&memory), 0);
    });
}

#[test]
fn streams_of_other_contexts_are_refused_by_name() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let buffer = memory.alloc_zeros::<u8>(&stream, 512).unwrap();
        let (again, second) = (CudaContext::new(0).unwrap(), CudaContext::new(1).unwrap());
        for other in [again.default_stream(), second.new_stream().unwrap()] {
            let error = memory.alloc_zeros::<u8>(&other, 512).unwrap_err();
            assert!(matches!(error, Error::OtherContext { allocator: 0, .. }), "{error}");
            assert!(error.to_string().contains("Allocator::of(stream.context())"), "{error}");
            assert!(matches!(buffer.record_stream(&other), Err(Error::OtherContext { .. })));
        }
        assert_eq!(allocated(&memory), 512);
    });
}

#[test]
fn each_context_has_one_default_allocator_over_one_granule() {
    over_driver(|| {
        let (context, memory) = start();
        let second = CudaContext::new(1).unwrap();
        let of_second = Allocator::of(&second).unwrap();
        let engine = |memory: &Allocator| std::sync::Arc::as_ptr(memory.granule().engine());
        assert_eq!(engine(&memory), engine(&of_second));
        let calls = controls().calls();
        assert_eq!(engine(&memory), engine(&Allocator::of(&context).unwrap()));
        assert_eq!(controls().calls(), calls, "the driver is asked once");
        // Not the default streams: cudarc queues a copy between devices on that of whichever context is current.
        let (stream, here) = (second.new_stream().unwrap(), context.new_stream().unwrap());
        let theirs = of_second.clone_htod(&stream, &[3_u8; N]).unwrap();
        assert_eq!(theirs.ordinal(), 1);
        let ours = memory.clone_dtod(&here, &theirs).unwrap();
        assert_eq!(here.clone_dtoh(&ours).unwrap(), [3; N]);
        drop(of_second);
        assert!(std::sync::Arc::ptr_eq(theirs.allocator().context(), &second));
    });
}

#[test]
fn a_context_that_is_not_the_primary_one_is_refused() {
    over_driver(|| {
        let _contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let [device, other] = [0, 1].map(|ordinal| result::device::get(ordinal).unwrap());
        // SAFETY: a device of the driver's.
        let context = unsafe { result::primary_ctx::retain(other).unwrap() };
        // SAFETY: a living context that nobody destroys, for the value is never dropped.
        let wrapped = unsafe { CudaContext::from_raw_context(0, device, context).unwrap() };
        let wrapped = ManuallyDrop::new(wrapped);
        let error = Allocator::of(&wrapped).unwrap_err();
        assert!(matches!(error, Error::NotPrimary { ordinal: 0 }), "{error}");
        assert!(error.to_string().contains("CudaContext::new(0)"), "{error}");
    });
}
