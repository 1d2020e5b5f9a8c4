//! Modules, and kernels with results.
//!
//! PTX is not run. A module's image is searched for the name of the kernel only, and what a kernel of that name
//! does is in [`Kernel`]: the launch reads its arguments, and the machine checks the memory and orders the work.
//! A kernel that is not there is not found; on the machine that real programs run on ([`is_h100`]) every kernel is
//! there, and those without a name here do nothing.

use crate::entry::{device, driver, here, is_h100};
use crate::header::*;
use backend_api::types::{DevicePtr, Stream};
use backend_openreg::OpenReg;
use lookalike::argument::{In, Out};
use lookalike::events::lag;
use lookalike::handles::Handles;
use lookalike::{Answer, Code, graphs};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::without_provenance_mut;

/// The kernels that this driver can run.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {
    /// `axpy_f32(float *y, const float *x, float a, uint64_t n)`: `y[i] += a * x[i]` for all `i` below `n`.
    Axpy,
    /// Any other of a real program's.
    Nothing,
}

impl Kernel {
    fn named(name: &str) -> Option<Self> {
        (name == "axpy_f32").then_some(Self::Axpy)
    }

    fn launch(self, machine: &OpenReg, stream: Stream, arguments: &Arguments) -> Answer {
        if matches!(self, Self::Nothing) {
            return launch_nothing(machine, stream);
        }
        let (y, x): (u64, u64) = (arguments.get(0)?, arguments.get(1)?);
        let (a, n): (f32, u64) = (arguments.get(2)?, arguments.get(3)?);
        let bytes = n.checked_mul(4).ok_or(Code::INVALID_VALUE)?;
        let axpy = move |y: &mut [u8], x: &[u8]| {
            for (y, x) in y.as_chunks_mut().0.iter_mut().zip(x.as_chunks().0) {
                *y = a.mul_add(f32::from_le_bytes(*x), f32::from_le_bytes(*y)).to_le_bytes();
            }
        };
        machine.launch_kernel(stream, (DevicePtr(y), bytes), (DevicePtr(x), bytes), axpy)?;
        lag::launched();
        Ok(())
    }
}

/// A kernel without results only takes its place in a capture: elsewhere it does nothing, and so waits for nothing.
fn launch_nothing(machine: &OpenReg, stream: Stream) -> Answer {
    if graphs::info(machine, stream)?.status == CU_STREAM_CAPTURE_STATUS_NONE {
        lag::launched();
        return Ok(());
    }
    Ok(machine.use_memory(stream, DevicePtr::NULL, 0)?)
}

/// Queues a kernel of a function, of which real programs may have handles from elsewhere.
fn launch(function: *mut CUfunc_st, stream: CUstream, arguments: *mut *mut c_void) -> Answer {
    let here = here()?;
    let stream = here.work_stream(stream)?;
    let known = FUNCTIONS.get(function.addr());
    let kernel = if is_h100()? { known.unwrap_or(Kernel::Nothing) } else { known? };
    kernel.launch(here.machine, stream, &Arguments(arguments.cast_const()))
}

/// A module of what is at `image`.
fn load(module: &Out<CUmodule>, image: *const c_void) -> Answer {
    here()?;
    module.wanted()?;
    if image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises an image; PTX is a text of C. Others begin with bytes that no text has, and the
    // first null byte of those is still theirs.
    let image = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
    let text = image.to_str();
    let text = if is_h100()? { text.unwrap_or_default() } else { text.map_err(|_| Code::NOT_SUPPORTED)? };
    module.put(without_provenance_mut(MODULES.insert(text.to_owned())))
}

/// A kernel of a module by its name.
fn function(module: usize, name: &In<c_char>) -> Answer<usize> {
    here()?;
    let (image, name) = (MODULES.get(module)?, name.text()?);
    let kernel = Kernel::named(&name).filter(|_| has_entry(&image, &name));
    let kernel = if is_h100()? { kernel.or(Some(Kernel::Nothing)) } else { kernel };
    Ok(FUNCTIONS.insert(kernel.ok_or(Code::NOT_FOUND)?))
}

/// Numbers about a kernel.
fn put_attribute(value: &Out<c_int>, which: CUfunction_attribute) -> Answer {
    value.put(match which {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        CU_FUNC_ATTRIBUTE_NUM_REGS => 32,
        _ => 0,
    })
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
        load(&module, image)
    }

    /// The same, with options for a compiler.
    fn cuModuleLoadDataEx as cuModuleLoadDataEx_t(
        out module: *mut CUmodule, val image: *const c_void, val _count: c_uint, input _options: *mut CUjit_option,
        input _values: *mut *mut c_void,
    ) {
        load(&module, image)
    }

    /// Loads an image for several devices.
    fn cuModuleLoadFatBinary as cuModuleLoadFatBinary_t(out module: *mut CUmodule, val image: *const c_void) {
        load(&module, image)
    }

    /// Loads a file, of which only the name is looked at.
    fn cuModuleLoad as cuModuleLoad_t(out module: *mut CUmodule, input file: *const c_char) {
        here()?;
        let file = file.text()?;
        if !is_h100()? {
            return Err(Code::NOT_SUPPORTED);
        }
        module.put(without_provenance_mut(MODULES.insert(file)))
    }

    /// A variable of a module: images are not looked into.
    fn cuModuleGetGlobal_v2 as cuModuleGetGlobal_v2_t(
        out _at: *mut CUdeviceptr, out _bytes: *mut usize, val module: CUmodule, input _name: *const c_char,
    ) {
        here()?;
        MODULES.get(module.addr())?;
        Err(Code::NOT_FOUND)
    }

    /// Whether modules are loaded when they are used first.
    fn cuModuleGetLoadingMode as cuModuleGetLoadingMode_t(out mode: *mut CUmoduleLoadingMode) {
        mode.put(CU_MODULE_LAZY_LOADING)
    }

    /// Loads an image for all contexts.
    fn cuLibraryLoadData as cuLibraryLoadData_t(
        out library: *mut CUlibrary, val image: *const c_void, input _options: *mut CUjit_option,
        input _values: *mut *mut c_void, val _count: c_uint, input _ways: *mut CUlibraryOption,
        input _way_values: *mut *mut c_void, val _way_count: c_uint,
    ) {
        load(&library.cast(), image)
    }

    /// Unloads it.
    fn cuLibraryUnload as cuLibraryUnload_t(val library: CUlibrary) {
        driver()?;
        MODULES.remove(library.addr()).map(drop)
    }

    /// A library as a module of the current context.
    fn cuLibraryGetModule as cuLibraryGetModule_t(out module: *mut CUmodule, val library: CUlibrary) {
        MODULES.get(library.addr())?;
        module.put(library.cast())
    }

    /// A kernel of a library by its name.
    fn cuLibraryGetKernel as cuLibraryGetKernel_t(out kernel: *mut CUkernel, val library: CUlibrary, input name: *const c_char) {
        kernel.wanted()?;
        kernel.put(without_provenance_mut(function(library.addr(), &name)?))
    }

    /// A kernel as a function of the current context.
    fn cuKernelGetFunction as cuKernelGetFunction_t(out found: *mut CUfunction, val kernel: CUkernel) {
        FUNCTIONS.get(kernel.addr())?;
        found.put(kernel.cast())
    }

    /// A number about a kernel.
    fn cuKernelGetAttribute as cuKernelGetAttribute_t(
        out value: *mut c_int, val which: CUfunction_attribute, val _kernel: CUkernel, val number: CUdevice,
    ) {
        device(number)?;
        put_attribute(&value, which)
    }

    /// Sets one, of which nothing can be seen.
    fn cuKernelSetAttribute as cuKernelSetAttribute_t(
        val _which: CUfunction_attribute, val _value: c_int, val _kernel: CUkernel, val number: CUdevice,
    ) {
        device(number).map(drop)
    }

    /// A number about a function.
    fn cuFuncGetAttribute as cuFuncGetAttribute_t(
        out value: *mut c_int, val which: CUfunction_attribute, val _of: CUfunction,
    ) {
        driver()?;
        put_attribute(&value, which)
    }

    /// Sets one, of which nothing can be seen.
    fn cuFuncSetAttribute as cuFuncSetAttribute_t(val _of: CUfunction, val _which: CUfunction_attribute, val _value: c_int) {
        driver().map(drop)
    }

    /// A hint, of which nothing can be seen.
    fn cuFuncSetCacheConfig as cuFuncSetCacheConfig_t(val _of: CUfunction, val _wish: CUfunc_cache) {
        driver().map(drop)
    }

    /// Loads a function now.
    fn cuFuncLoad as cuFuncLoad_t(val _of: CUfunction) {
        driver().map(drop)
    }

    /// How many blocks a multiprocessor holds.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor as cuOccupancyMaxActiveBlocksPerMultiprocessor_t(
        out count: *mut c_int, val _of: CUfunction, val _threads: c_int, val _shared: usize,
    ) {
        driver()?;
        count.put(2)
    }

    /// The same with flags.
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags as cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_t(
        out count: *mut c_int, val _of: CUfunction, val _threads: c_int, val _shared: usize, val _flags: c_uint,
    ) {
        driver()?;
        count.put(2)
    }

    /// How many clusters of blocks a device holds.
    fn cuOccupancyMaxActiveClusters as cuOccupancyMaxActiveClusters_t(
        out count: *mut c_int, val _of: CUfunction, input _config: *const CUlaunchConfig,
    ) {
        driver()?;
        count.put(1)
    }

    /// Describes memory for copies by kernels, which do nothing.
    fn cuTensorMapEncodeTiled as cuTensorMapEncodeTiled_t(
        out _map: *mut CUtensorMap, val _kind: CUtensorMapDataType, val _rank: cuuint32_t, val _at: *mut c_void,
        input _sizes: *const cuuint64_t, input _strides: *const cuuint64_t, input _box: *const cuuint32_t,
        input _steps: *const cuuint32_t, val _interleave: CUtensorMapInterleave, val _swizzle: CUtensorMapSwizzle,
        val _promotion: CUtensorMapL2promotion, val _fill: CUtensorMapFloatOOBfill,
    ) {
        driver().map(drop)
    }

    /// Who wants to read the driver's log: it says nothing.
    fn cuLogsRegisterCallback as cuLogsRegisterCallback_t(
        val _callback: CUlogsCallback, val _data: *mut c_void, out handle: *mut CUlogsCallbackHandle,
    ) {
        handle.put(without_provenance_mut(MODULES.insert(String::new())))
    }

    /// Who does no longer.
    fn cuLogsUnregisterCallback as cuLogsUnregisterCallback_t(val handle: CUlogsCallbackHandle) {
        MODULES.remove(handle.addr()).map(drop)
    }

    /// A compiler of PTX: not simulated, as the two below.
    fn cuLinkCreate_v2 as cuLinkCreate_v2_t(
        val _count: c_uint, input _options: *mut CUjit_option, input _values: *mut *mut c_void,
        out _state: *mut CUlinkState,
    ) {
        Err(Code::NOT_SUPPORTED)
    }

    /// Gives it PTX.
    fn cuLinkAddData_v2 as cuLinkAddData_v2_t(
        val _state: CUlinkState, val _kind: CUjitInputType, val _data: *mut c_void, val _bytes: usize,
        input _name: *const c_char, val _count: c_uint, input _options: *mut CUjit_option,
        input _values: *mut *mut c_void,
    ) {
        Err(Code::NOT_SUPPORTED)
    }

    /// Lets it compile.
    fn cuLinkComplete as cuLinkComplete_t(
        val _state: CUlinkState, out _image: *mut *mut c_void, out _bytes: *mut usize,
    ) {
        Err(Code::NOT_SUPPORTED)
    }

    /// Unloads a module. Its functions end with it for real drivers; here they only become useless.
    fn cuModuleUnload as cuModuleUnload_t(val module: CUmodule) {
        here()?;
        MODULES.remove(module.addr()).map(drop)
    }

    /// A kernel of a module by its name.
    fn cuModuleGetFunction as cuModuleGetFunction_t(
        out found: *mut CUfunction, val module: CUmodule, input name: *const c_char,
    ) {
        found.wanted()?;
        found.put(without_provenance_mut(function(module.addr(), &name)?))
    }

    /// Queues a kernel.
    fn cuLaunchKernel as cuLaunchKernel_t(
        val function: CUfunction, val grid_x: c_uint, val grid_y: c_uint, val grid_z: c_uint,
        val block_x: c_uint, val block_y: c_uint, val block_z: c_uint, val _shared_bytes: c_uint,
        val stream: CUstream, val arguments: *mut *mut c_void, val extra: *mut *mut c_void,
    ) {
        let is_empty = [grid_x, grid_y, grid_z, block_x, block_y, block_z].contains(&0);
        if !is_h100()? && (is_empty || !extra.is_null()) {
            return Err(Code::INVALID_VALUE);
        }
        launch(function, stream, arguments)
    }

    /// Queues a kernel whose blocks work together.
    fn cuLaunchCooperativeKernel as cuLaunchCooperativeKernel_t(
        val function: CUfunction, val _grid_x: c_uint, val _grid_y: c_uint, val _grid_z: c_uint,
        val _block_x: c_uint, val _block_y: c_uint, val _block_z: c_uint, val _shared_bytes: c_uint,
        val stream: CUstream, val arguments: *mut *mut c_void,
    ) {
        launch(function, stream, arguments)
    }

    /// Queues a kernel in the way that a struct says.
    fn cuLaunchKernelEx as cuLaunchKernelEx_t(
        input config: *const CUlaunchConfig, val function: CUfunction, val arguments: *mut *mut c_void,
        val _extra: *mut *mut c_void,
    ) {
        launch(function, config.get()?.hStream, arguments)
    }
}
