//! A simulated machine of kind HIP.

use backend_api::Backend;
use backend_api::types::DeviceKind;
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_masquerade::{Masquerade, Policy};
use std::sync::{Arc, LazyLock};

/// The machine says that it is HIP.
#[derive(Debug)]
pub(crate) struct AsHip;

impl Hook for AsHip {
    fn kind(&self, _: &dyn Backend) -> DeviceKind {
        DeviceKind::Hip
    }
}

pub(crate) fn hip() -> Arc<Interposed<AsHip>> {
    Arc::new(Interposed::new(OpenReg::new(OpenRegConfig::default()).unwrap(), AsHip))
}

pub(crate) fn presented(policy: Policy) -> Arc<Masquerade> {
    Masquerade::new(hip(), policy).unwrap()
}

/// One for all cases of a property: backend ids are not endless.
pub(crate) fn shared(policy: Policy) -> &'static Masquerade {
    static FLIP: LazyLock<Arc<Masquerade>> = LazyLock::new(|| presented(Policy::Flip));
    static IDENTITY: LazyLock<Arc<Masquerade>> = LazyLock::new(|| presented(Policy::Identity));
    match policy {
        Policy::Flip => &FLIP,
        Policy::Identity => &IDENTITY,
    }
}
