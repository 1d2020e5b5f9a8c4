//! One implementation presents devices as CUDA in a process. A file of its own, for the register of labels is
//! the process's: tests beside it would meet it in the middle.

use backend_api::types::DeviceKind;
use backend_api::{Backend, LabelOwner, LabelTaken};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_masquerade::{Masquerade, MasqueradeError, NAME, Policy};
use std::sync::Arc;

#[derive(Debug)]
struct AsHip;

impl Hook for AsHip {
    fn kind(&self, _: &dyn Backend) -> DeviceKind {
        DeviceKind::Hip
    }
}

#[test]
fn the_second_owner_of_the_label_is_refused_until_the_first_is_gone() {
    let machine = OpenReg::new(OpenRegConfig::default()).unwrap();
    let hip = Arc::new(Interposed::new(machine, AsHip));
    let cuda = LabelOwner::claim(DeviceKind::Cuda, "cuda").unwrap();
    let refused = Masquerade::new(hip.clone(), Policy::Flip).unwrap_err();
    let taken = LabelTaken { kind: DeviceKind::Cuda, owner: "cuda".into(), wanted: NAME };
    assert_eq!(refused, MasqueradeError::LabelTaken(taken));

    drop(cuda);
    let one = Masquerade::new(hip.clone(), Policy::Flip).unwrap();
    let two = Masquerade::new(hip, Policy::Identity).unwrap();
    drop(one);
    let refused = LabelOwner::claim(DeviceKind::Cuda, "cuda").unwrap_err();
    assert_eq!((refused.owner.as_str(), refused.wanted), (NAME, "cuda"));
    drop(two);
    assert!(LabelOwner::claim(DeviceKind::Cuda, "cuda").is_ok());
}
