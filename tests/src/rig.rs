//! Machines on which the behaviours of the checklist are shown: the simulated accelerator as it is, and the same one as
//! HIP, seen as CUDA through the masquerade.

use crate::policy::Policy as Decisions;
use crate::{Allocator, made, under};
use alloc_core::CachingAllocator;
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::types::{DeviceIndex, DeviceKind, DevicePtr, Stream};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_masquerade::{Masquerade, Policy};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// The first device.
pub const DEVICE: DeviceIndex = DeviceIndex(0);

/// A simulated machine says that it is HIP.
#[derive(Debug)]
struct AsHip;

impl Hook for AsHip {
    fn kind(&self, _: &dyn Backend) -> DeviceKind {
        DeviceKind::Hip
    }
}

/// A machine, and the backend through which it is used.
#[derive(Debug)]
pub struct Rig {
    /// `openreg` or `hip-as-cuda`, for messages.
    pub name: &'static str,
    /// The simulated machine below.
    pub device: Arc<OpenReg>,
    /// What allocators are made over.
    pub backend: Arc<dyn Backend>,
}

impl Rig {
    /// The simulated accelerator as it is.
    ///
    /// # Panics
    /// Where the machine cannot be set up.
    #[must_use]
    pub fn openreg(config: OpenRegConfig) -> Self {
        let device = OpenReg::new(config).expect("the machine can be set up");
        Self { name: "openreg", backend: device.clone(), device }
    }

    /// The simulated accelerator as HIP, seen as CUDA.
    ///
    /// # Panics
    /// Where the machine cannot be set up.
    #[must_use]
    pub fn hip_as_cuda(config: OpenRegConfig) -> Self {
        let device = OpenReg::new(config).expect("the machine can be set up");
        let hip: Arc<dyn Backend> = Arc::new(Interposed::new(device.clone(), AsHip));
        let backend = Masquerade::new(hip, Policy::Flip).expect("one owner of the label at a time");
        Self { name: "hip-as-cuda", device, backend }
    }

    /// An allocator on it.
    ///
    /// # Panics
    /// Where the settings are refused.
    #[must_use]
    pub fn allocator(&self, settings: Settings) -> Allocator {
        Arc::new(CachingAllocator::new(self.backend.clone(), settings).expect("the settings are valid"))
    }

    /// An allocator of any policy on it.
    ///
    /// # Panics
    /// Where the settings are refused.
    #[must_use]
    pub fn with_policy<P: Decisions>(&self, settings: Settings) -> Allocator {
        self.allocator(under::<P>(settings))
    }

    /// The default stream of the first device.
    #[must_use]
    pub fn stream(&self) -> Stream {
        self.backend.default_stream(DEVICE)
    }

    /// A new stream of the first device.
    ///
    /// # Panics
    /// Where the machine refuses.
    #[must_use]
    pub fn new_stream(&self) -> Stream {
        self.backend.create_stream(DEVICE, 0).expect("a stream can be made")
    }

    /// Holds later work of `stream` up until the gate is opened (or dropped). Needs worker streams
    /// (`Clock::Workers`).
    ///
    /// # Panics
    /// Where the machine refuses.
    #[must_use]
    pub fn hold(&self, stream: Stream) -> Gate {
        let (open, gate) = mpsc::channel::<()>();
        let wait = move || {
            let _ = gate.recv();
        };
        self.backend.launch_host_function(stream, Box::new(wait)).expect("a host function can be queued");
        Gate { _open: open }
    }

    /// Queues work of `stream` that uses `bytes` at `ptr`.
    ///
    /// # Panics
    /// Where the machine refuses.
    pub fn use_memory(&self, stream: Stream, ptr: DevicePtr, bytes: u64) {
        let of_the_machine = Stream { backend: self.device.id(), ..stream };
        self.device.use_memory(of_the_machine, ptr, bytes).expect("work can be queued");
    }

    /// Bytes in use on the first device.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.device.used(DEVICE)
    }

    /// What is over without a live block is given back to the last byte, and no work was disturbed.
    ///
    /// # Panics
    /// Where something is left.
    pub fn nothing_is_left(&self, allocator: &Allocator) {
        allocator.check_invariants();
        allocator.empty_cache().expect("the cache can be emptied");
        allocator.check_invariants();
        assert_eq!(self.used(), 0, "{}: all memory is given back", self.name);
        assert_eq!(self.device.traps(), Vec::new(), "{}: no memory left while work used it", self.name);
    }
}

/// A simulated machine behind a hook, an allocator on it, and the default stream of its first device.
///
/// # Panics
/// Where the set-up or the settings are refused.
#[must_use]
pub fn behind<H: Hook, P: Decisions>(
    config: OpenRegConfig,
    settings: Settings,
    hook: H,
) -> (Arc<OpenReg>, Arc<Interposed<H>>, Allocator, Stream) {
    let device = OpenReg::new(config).expect("the machine can be set up");
    let backend = Arc::new(Interposed::new(device.clone(), hook));
    let stream = device.default_stream(DEVICE);
    let allocator = made::<P>(backend.clone(), settings).expect("the settings are valid");
    (device, backend, Arc::new(allocator), stream)
}

/// Holds a stream up while it lives.
#[derive(Debug)]
pub struct Gate {
    _open: mpsc::Sender<()>,
}

impl Gate {
    /// Lets the stream go on.
    pub fn open(self) {}
}

/// Runs a behaviour on each rig, one after the other: a label has one owner at a time in a process.
pub fn on_each(config: &OpenRegConfig, behaviour: impl Fn(&Rig)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    behaviour(&Rig::openreg(config.clone()));
    behaviour(&Rig::hip_as_cuda(config.clone()));
}
