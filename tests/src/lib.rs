//! Helpers for tests that span crates.

pub mod alone;
pub mod bytes;
pub mod clients;
pub mod decisions;
pub mod fault_loop;
pub mod fits;
pub mod graphs;
pub mod log;
pub mod lookalike;
pub mod peer;
pub mod pinned;
pub mod policy;
pub mod pools;
pub mod quiet;
pub mod rig;
pub mod scale;
pub mod setup;
pub mod sites;
pub mod sleepers;
pub mod views;

use alloc_core::backend::Backend;
use alloc_core::config::{PolicyName, Settings};
use alloc_core::types::{DeviceIndex, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_snapshot::trace::Trace;
use policy::Policy;
use std::path::PathBuf;
use std::sync::Arc;

/// The allocator most tests use.
pub type Allocator = Arc<CachingAllocator>;

/// Makes a test of each of these functions for each policy. They are generic over it, and say what every allocator has to
/// do, whatever it decides.
#[macro_export]
macro_rules! for_each_policy {
    ($($behaviour:ident),* $(,)?) => {
        mod with_the_pytorch_policy {
            $(#[test] fn $behaviour() { super::$behaviour::<$crate::policy::PytorchPolicy>(); })*
        }
        mod with_the_granule_policy {
            $(#[test] fn $behaviour() { super::$behaviour::<$crate::policy::GranulePolicy>(); })*
        }
    };
}

/// A simulated machine, an allocator on it, and the default stream of its first device.
///
/// # Panics
/// Where the set-up or the settings are refused.
#[must_use]
pub fn on(config: OpenRegConfig, settings: Settings) -> (Arc<OpenReg>, Allocator, Stream) {
    let device = OpenReg::new(config).expect("the machine can be set up");
    let stream = device.default_stream(DeviceIndex(0));
    let allocator = CachingAllocator::new(device.clone(), settings).expect("the settings are valid");
    (device, Arc::new(allocator), stream)
}

/// The same with another policy.
///
/// # Panics
/// Where the set-up or the settings are refused.
#[must_use]
pub fn with_policy<P: Policy>(
    config: OpenRegConfig,
    settings: Settings,
) -> (Arc<OpenReg>, Allocator, Stream) {
    on(config, under::<P>(settings))
}

/// An allocator with the policy `P`, one of the tree's, whatever the settings name.
///
/// # Errors
/// Those of [`CachingAllocator::new`].
pub fn made<P: Policy>(
    backend: Arc<dyn Backend>,
    settings: Settings,
) -> Result<CachingAllocator, AllocError> {
    CachingAllocator::new(backend, under::<P>(settings))
}

/// Settings that name the policy `P`, one of the tree's.
///
/// # Panics
/// For another one.
#[must_use]
pub fn under<P: Policy>(settings: Settings) -> Settings {
    let policy = PolicyName::ALL.iter().find(|policy| policy.name() == P::NAME).expect("one of the tree's");
    Settings { policy: Some(*policy), ..settings }
}

/// The folder with recorded traces, if it is there: `GRANULE_SHARED`, or `shared` beside the checkout.
#[must_use]
pub fn shared() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let folder = std::env::var_os("GRANULE_SHARED").map_or_else(beside, PathBuf::from);
    folder.join("traces").is_dir().then_some(folder)
}

/// A recorded trace by name: from the folder of recordings, else the one bundled with the command; `None`, with
/// a printed reason, where it is in neither.
///
/// # Panics
/// Where the file is there and cannot be read.
#[must_use]
pub fn recorded(name: &str) -> Option<Trace> {
    let bundled = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../crates/tools/granule-cli/data");
    let folder = shared().map(|folder| folder.join("traces")).unwrap_or(bundled);
    let path = folder.join(format!("{name}.trace.gz"));
    if !path.exists() {
        println!("skipped: the recorded traces are not at hand (set GRANULE_SHARED to their folder)");
        return None;
    }
    Some(Trace::load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}
