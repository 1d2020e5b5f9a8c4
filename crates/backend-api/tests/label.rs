//! The owner of a label, with this crate once and twice in the process. No two tests claim the same label.

use backend_api::types::DeviceKind;
use backend_api::{LabelOwner, LabelTaken};

mod types {
    pub(crate) use backend_api::types::DeviceKind;
}

/// The same source with statics of its own, as a second version of the crate has them.
#[path = "../src/label.rs"]
#[allow(unreachable_pub)]
mod other_copy;

fn refused(kind: DeviceKind, owner: &str, wanted: &'static str) -> LabelTaken {
    LabelTaken { kind, owner: owner.to_owned(), wanted }
}

#[test]
fn a_label_has_one_owner_until_all_its_claims_are_dropped() {
    let kind = DeviceKind::Hip;
    let first = LabelOwner::claim(kind, "one").unwrap();
    let again = LabelOwner::claim(kind, "one").unwrap();
    let taken = refused(kind, "one", "other");
    assert_eq!(LabelOwner::claim(kind, "other").unwrap_err(), taken);
    assert!(taken.to_string().contains("one does so in this process; choose one of them"));
    drop(first);
    assert_eq!(LabelOwner::claim(kind, "other").unwrap_err(), taken);
    drop(again);
    let other = LabelOwner::claim(kind, "other").unwrap();
    assert_eq!((other.kind(), other.implementation()), (kind, "other"));
}

#[test]
fn an_owner_in_one_copy_of_the_crate_is_refused_by_another() {
    let kind = DeviceKind::Cuda;
    let first = LabelOwner::claim(kind, "one").unwrap();
    let taken = other_copy::LabelOwner::claim(kind, "other").unwrap_err();
    assert_eq!(taken.to_string(), refused(kind, "one", "other").to_string());
    let same = other_copy::LabelOwner::claim(kind, "one").unwrap();
    drop(first);
    assert_eq!(LabelOwner::claim(kind, "other").unwrap_err(), refused(kind, "one", "other"));
    let another = other_copy::LabelOwner::claim(DeviceKind::PrivateUse1, "other").unwrap();
    assert_eq!((another.kind(), another.implementation()), (DeviceKind::PrivateUse1, "other"));
    drop(same);
    let other = LabelOwner::claim(kind, "other").unwrap();
    assert_eq!(other.implementation(), "other");
}
