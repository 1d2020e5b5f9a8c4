//! Modules and launches.

#![allow(clippy::borrow_as_ptr, clippy::macro_metavars_in_unsafe, reason = "tests call as C does")]

mod support;

use std::ffi::c_void;
use std::ptr::{from_ref, null_mut};
use support::header::*;
use support::{Driver, in_process, library};

/// Text with the names of kernels is all that this driver looks at.
const IMAGE: &std::ffi::CStr = c".visible .entry axpy_f32(.param .u64 y) { ret; } .entry unknown() { ret; }";

#[test]
fn a_kernel_is_found_by_its_name_and_computes_on_real_bytes() {
    in_process("a_kernel_is_found_by_its_name_and_computes_on_real_bytes", "", || {
        let d = &Driver::load(&library());
        d.enter(0);
        let (mut module, mut axpy) = (null_mut(), null_mut());
        ok!(d.cuModuleLoadData(&mut module, IMAGE.as_ptr().cast()));
        for absent in [c"unknown", c"axpy", c"ret"] {
            let answer = cu!(d.cuModuleGetFunction(&mut axpy, module, absent.as_ptr()));
            assert_eq!(answer, CUDA_ERROR_NOT_FOUND, "{absent:?}");
        }
        ok!(d.cuModuleGetFunction(&mut axpy, module, c"axpy_f32".as_ptr()));

        let (y, x, stream) = (d.memory(512), d.memory(512), d.stream());
        let (mut ys, xs) = ([1.0_f32; 128], [4.0_f32; 128]);
        ok!(d.cuMemcpyHtoD_v2(y, ys.as_ptr().cast(), 512));
        ok!(d.cuMemcpyHtoD_v2(x, xs.as_ptr().cast(), 512));
        let (a, mut n) = (0.5_f32, 100_u64);
        let launch = |n: &u64| {
            let place = |argument: *const c_void| argument.cast_mut();
            let mut arguments = [
                place(from_ref(&y).cast()),
                place(from_ref(&x).cast()),
                place(from_ref(&a).cast()),
                place(from_ref(n).cast()),
            ];
            let arguments = arguments.as_mut_ptr();
            cu!(d.cuLaunchKernel(axpy, 1, 1, 1, 128, 1, 1, 0, stream, arguments, null_mut()))
        };
        assert_eq!(launch(&n), CUDA_SUCCESS);
        ok!(d.cuStreamSynchronize(stream));
        ok!(d.cuMemcpyDtoH_v2(ys.as_mut_ptr().cast(), y, 512));
        assert!(ys[..100].iter().all(|y| *y == 3.0) && ys[100..].iter().all(|y| *y == 1.0), "{ys:?}");

        assert_eq!(cu!(d.granule_lookalike_traps()), 0);
        n = 1 << 20;
        assert_ne!(launch(&n), CUDA_SUCCESS, "beyond the memory");
        assert_eq!(cu!(d.granule_lookalike_traps()), 1);
        ok!(d.cuModuleUnload(module));
        assert_eq!(cu!(d.cuModuleUnload(module)), CUDA_ERROR_INVALID_HANDLE);
    });
}
