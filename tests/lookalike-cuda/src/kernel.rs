//! Modules, and kernels with results.
//!
//! PTX is not run. A module's image is searched for the name of the kernel only, and what a kernel of that name
//! does is in [`Kernel`]: the launch reads its arguments, and the machine checks the memory and orders the work.
//! A kernel that is not there is not found.

use crate::entry::here;
use crate::header::*;
use alloc_core::types::{DevicePtr, Stream};
use backend_openreg::OpenReg;
use lookalike::handles::Handles;
use lookalike::{Answer, Code};
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::without_provenance_mut;

/// The kernels that this driver can run.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {
    /// `axpy_f32(float *y, const float *x, float a, uint64_t n)`: `y[i] += a * x[i]` for all `i` below `n`.
    Axpy,
}

impl Kernel {
    fn named(name: &str) -> Option<Self> {
        (name == "axpy_f32").then_some(Self::Axpy)
    }

    fn launch(self, machine: &OpenReg, stream: Stream, arguments: &Arguments) -> Answer {
        let Self::Axpy = self;
        let (y, x): (u64, u64) = (arguments.get(0)?, arguments.get(1)?);
        let (a, n): (f32, u64) = (arguments.get(2)?, arguments.get(3)?);
        let bytes = n.checked_mul(4).ok_or(Code::INVALID_VALUE)?;
        let axpy = move |y: &mut [u8], x: &[u8]| {
            for (y, x) in y.as_chunks_mut().0.iter_mut().zip(x.as_chunks().0) {
                *y = a.mul_add(f32::from_le_bytes(*x), f32::from_le_bytes(*y)).to_le_bytes();
            }
        };
        Ok(machine.launch_kernel(stream, (DevicePtr(y), bytes), (DevicePtr(x), bytes), axpy)?)
    }
}

/// The addresses of a launch's arguments.
struct Arguments(*const *mut c_void);

impl Arguments {
    fn get<T: Copy>(&self, index: usize) -> Answer<T> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller of a launch promises an entry for each of the kernel's parameters.
        let place = unsafe { self.0.add(index) };
        // SAFETY: as above.
        let argument = unsafe { place.read() };
        if argument.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: as above: the entry is the address of an argument of the parameter's type.
        Ok(unsafe { argument.cast::<T>().read_unaligned() })
    }
}

static MODULES: Handles<String, 0x7000_0000_0000> = Handles::new();
static FUNCTIONS: Handles<Kernel, 0x7100_0000_0000> = Handles::new();

/// Whether PTX text has an entry of that name.
fn has_entry(image: &str, name: &str) -> bool {
    let mut words = image.split(|letter: char| !(letter.is_ascii_alphanumeric() || "._$".contains(letter)));
    std::iter::from_fn(|| words.by_ref().find(|word| *word == ".entry").and_then(|_| words.next()))
        .any(|entry| entry == name)
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Loads PTX text.
    fn cuModuleLoadData as cuModuleLoadData_t(out module: *mut CUmodule, val image: *const c_void) {
        here()?;
        module.wanted()?;
        if image.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller promises an image; PTX is a text of C. Others begin with bytes that no text has, and the
        // first null byte of those is still theirs.
        let image = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
        let text = image.to_str().map_err(|_| Code::NOT_SUPPORTED)?;
        module.put(without_provenance_mut(MODULES.insert(text.to_owned())))
    }

    /// Unloads a module. Its functions end with it for real drivers; here they only become useless.
    fn cuModuleUnload as cuModuleUnload_t(val module: CUmodule) {
        here()?;
        MODULES.remove(module.addr()).map(drop)
    }

    /// A kernel of a module by its name.
    fn cuModuleGetFunction as cuModuleGetFunction_t(
        out function: *mut CUfunction, val module: CUmodule, input name: *const c_char,
    ) {
        here()?;
        function.wanted()?;
        let (image, name) = (MODULES.get(module.addr())?, name.text()?);
        let kernel = Kernel::named(&name).filter(|_| has_entry(&image, &name));
        function.put(without_provenance_mut(FUNCTIONS.insert(kernel.ok_or(Code::NOT_FOUND)?)))
    }

    /// Queues a kernel.
    fn cuLaunchKernel as cuLaunchKernel_t(
        val function: CUfunction, val grid_x: c_uint, val grid_y: c_uint, val grid_z: c_uint,
        val block_x: c_uint, val block_y: c_uint, val block_z: c_uint, val _shared_bytes: c_uint,
        val stream: CUstream, val arguments: *mut *mut c_void, val extra: *mut *mut c_void,
    ) {
        let here = here()?;
        let stream = here.work_stream(stream)?;
        let kernel = FUNCTIONS.get(function.addr())?;
        let is_empty = [grid_x, grid_y, grid_z, block_x, block_y, block_z].contains(&0);
        if is_empty || !extra.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        kernel.launch(here.machine, stream, &Arguments(arguments.cast_const()))
    }
}
