//! Buffers go where slices go, and carry their bytes.

use crate::support::{N, address, allocated, axpy, controls, over_driver, start};
use cudarc::driver::{CudaSlice, DeviceSlice, LaunchConfig, PushKernelArg};
use granule_cudarc::Buffer;

#[test]
fn copies_fills_and_views_move_the_bytes() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let sent: Vec<u32> = (0..N as u32).collect();
        let first = memory.clone_htod(&stream, &sent).unwrap();
        let mut second = memory.alloc_zeros::<u32>(&stream, N).unwrap();
        assert_eq!(stream.clone_dtoh(&second).unwrap(), vec![0; N]);
        stream.memcpy_dtod(&first.slice(..100), &mut second.slice_mut(100..200)).unwrap();
        let (mut low, mut high) = second.split_at_mut(50);
        stream.memset_zeros(&mut high).unwrap();
        stream.memcpy_htod(&[7; 50], &mut low).unwrap();
        assert_eq!(stream.clone_dtoh(&second.slice(..60)).unwrap(), [[7; 50].as_slice(), &[0; 10]].concat());
        stream.memcpy_dtod(&first, &mut second).unwrap();
        assert_eq!(stream.clone_dtoh(&second).unwrap(), sent);
        stream.memset_zeros(&mut second.as_view_mut()).unwrap();
        assert!(second.try_slice_mut(..N + 1).is_none());
        assert_eq!(stream.clone_dtoh(&second.clone()).unwrap(), vec![0; N]);
        assert_eq!((DeviceSlice::len(&first), first.num_bytes(), first.stream()), (N, 4 * N, &stream));
        // SAFETY: any bits are a `u8` and a `u32`.
        let bytes = unsafe { second.transmute_mut::<u8>(4 * N) };
        stream.memset_zeros(&mut bytes.unwrap()).unwrap();
    });
}

/// By value, as code does that is generic over what it is given.
fn sum<Src: cudarc::driver::DevicePtr<f32>>(of: &Src) -> f32 {
    of.stream().clone_dtoh(of).unwrap().iter().sum()
}

#[test]
fn kernels_take_buffers_and_views_beside_slices_of_cudarcs() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let axpy = axpy(&context);
        let mut y = memory.clone_htod(&stream, &[1.0_f32; N]).unwrap();
        let x = memory.clone_htod(&stream, &[2.0_f32; N]).unwrap();
        let theirs: CudaSlice<f32> = stream.clone_htod(&[3.0_f32; N]).unwrap();
        let (a, n, half) = (0.5_f32, N as u64, N as u64 / 2);
        let all = LaunchConfig::for_num_elems(N as u32);

        // SAFETY: the kernel's parameters, with memory for as many elements.
        unsafe { stream.launch_builder(&axpy).arg(&mut y).arg(&x).arg(&a).arg(&n).launch(all) }.unwrap();
        let mut view = y.slice_mut(N / 2..);
        let mut of_views = stream.launch_builder(&axpy);
        of_views.arg(&mut view).arg(&theirs).arg(&a).arg(&half);
        // SAFETY: as above.
        unsafe { of_views.launch(all) }.unwrap();

        let computed = stream.clone_dtoh(&y).unwrap();
        assert!(computed[..N / 2].iter().all(|y| *y == 2.0) && computed[N / 2..].iter().all(|y| *y == 3.5));
        assert_eq!((sum(&y), sum(&theirs)), (5.5 * half as f32, 3.0 * n as f32));
        assert_eq!(controls().traps(), 0);
    });
}

#[test]
fn slices_of_cudarcs_work_beside_buffers_and_are_not_granules() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.default_stream();
        let theirs = stream.clone_htod(&[5_u8; 1000]).unwrap();
        assert_eq!(allocated(&memory), 0);
        let ours = memory.clone_dtod(&stream, &theirs).unwrap();
        let mut back = stream.clone_dtod(&ours).unwrap();
        drop((theirs, ours));
        assert_eq!(stream.clone_dtoh(&back).unwrap(), [5; 1000]);
        let ours = memory.clone_dtod(&stream, &back.slice(..10)).unwrap();
        stream.memcpy_dtod(&ours, &mut back).unwrap();
        assert_eq!((ours.len(), stream.clone_dtoh(&ours).unwrap()), (10, vec![5; 10]));
        drop(back);
        stream.synchronize().unwrap();
        assert_eq!(controls().traps(), 0);
    });
}

#[test]
fn a_clone_is_granules_too() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let one = memory.clone_htod(&stream, &[1_u8; 512]).unwrap();
        let two: Buffer<u8> = one.try_clone().unwrap();
        assert_eq!(allocated(&memory), 1024);
        assert_ne!(address(&one), address(&two));
        drop(one);
        assert_eq!(stream.clone_dtoh(&two).unwrap(), [1; 512]);
    });
}

#[test]
fn nothing_takes_no_memory() {
    over_driver(|| {
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let mut empty = memory.alloc_zeros::<f64>(&stream, 0).unwrap();
        // SAFETY: there is nothing to read.
        let other = unsafe { memory.alloc::<f64>(&stream, 0).unwrap() };
        stream.memcpy_dtod(&other, &mut empty).unwrap();
        let copied = memory.clone_dtod(&stream, &memory.clone_htod(&stream, &[0_u8; 0]).unwrap()).unwrap();
        assert_eq!(stream.clone_dtoh(&copied).unwrap(), [0; 0]);
        assert!(empty.is_empty() && empty.slice(..).is_empty());
        let nothing = memory.clone_htod(&stream, &[[0_u8; 0]; 9]).unwrap();
        assert_eq!((nothing.len(), nothing.num_bytes(), allocated(&memory)), (9, 0, 0));
    });
}

#[test]
fn a_graph_of_buffers_runs_again() {
    over_driver(|| {
        use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
        let (context, memory) = start();
        let stream = context.new_stream().unwrap();
        let axpy = axpy(&context);
        // SAFETY: all is on one stream. A captured stream may not wait for events of uses before the capture.
        unsafe { context.disable_event_tracking() };
        let mut y = memory.alloc_zeros::<f32>(&stream, N).unwrap();
        let x = memory.clone_htod(&stream, &[2.0_f32; N]).unwrap();
        stream.synchronize().unwrap();
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
        let (a, n) = (1.0_f32, N as u64);
        let mut launch = stream.launch_builder(&axpy);
        launch.arg(&mut y).arg(&x).arg(&a).arg(&n);
        // SAFETY: the kernel's parameters, with memory for as many elements.
        unsafe { launch.launch(LaunchConfig::for_num_elems(N as u32)) }.unwrap();
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).unwrap().unwrap();
        for _ in 0..3 {
            graph.launch().unwrap();
        }
        stream.synchronize().unwrap();
        assert_eq!(stream.clone_dtoh(&y).unwrap(), [6.0; N]);
    });
}
