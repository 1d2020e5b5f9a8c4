//! Who may call its devices `cuda` in this process.
//!
//! Frameworks know a device by its label and an index. Two implementations behind one label would take each
//! other's streams and pointers for their own, so the second is refused.

use crate::sync::{Mutex, Rank};
use crate::types::DeviceKind;
use std::sync::LazyLock;
use thiserror::Error;

/// One label in use.
#[derive(Debug)]
struct Taken {
    kind: DeviceKind,
    implementation: &'static str,
    claims: usize,
}

static TAKEN: LazyLock<Mutex<Vec<Taken>>> = LazyLock::new(|| Mutex::new(Rank::Registry, Vec::new()));

/// The right to present devices under a label. It ends when the value is dropped.
#[derive(Debug)]
#[must_use = "the label is free again when the claim is dropped"]
pub struct LabelOwner {
    kind: DeviceKind,
    implementation: &'static str,
}

/// Another implementation presents its devices under the label.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{wanted} cannot present its devices as {kind}: {owner} does so in this process; choose one of them, or drop \
     every backend of {owner} first"
)]
pub struct LabelTaken {
    /// The label.
    pub kind: DeviceKind,
    /// Who has it.
    pub owner: &'static str,
    /// Who asked for it.
    pub wanted: &'static str,
}

impl LabelOwner {
    /// Takes a label for an implementation (its [`Backend::name`](super::Backend::name)). The same implementation
    /// may take it several times; it is free again when all these claims are dropped. Never blocks.
    ///
    /// # Errors
    /// [`LabelTaken`] where another implementation has it.
    pub fn claim(kind: DeviceKind, implementation: &'static str) -> Result<Self, LabelTaken> {
        let mut taken = TAKEN.lock();
        match taken.iter_mut().find(|label| label.kind == kind) {
            Some(label) if label.implementation == implementation => label.claims += 1,
            Some(label) => {
                return Err(LabelTaken { kind, owner: label.implementation, wanted: implementation });
            }
            None => taken.push(Taken { kind, implementation, claims: 1 }),
        }
        Ok(Self { kind, implementation })
    }

    /// The label.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Who presents devices under it.
    #[must_use]
    pub fn implementation(&self) -> &'static str {
        self.implementation
    }
}

impl Drop for LabelOwner {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock();
        if let Some(at) = taken.iter().position(|label| label.kind == self.kind) {
            taken[at].claims -= 1;
            if taken[at].claims == 0 {
                taken.swap_remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LabelOwner, LabelTaken};
    use crate::types::DeviceKind;

    #[test]
    fn a_label_has_one_owner_until_all_its_claims_are_dropped() {
        // No other test of this crate claims this label; `Cuda` could be claimed elsewhere one day.
        let kind = DeviceKind::Hip;
        let first = LabelOwner::claim(kind, "one").unwrap();
        let again = LabelOwner::claim(kind, "one").unwrap();
        let refused = LabelTaken { kind, owner: "one", wanted: "other" };
        assert_eq!(LabelOwner::claim(kind, "other").unwrap_err(), refused);
        assert!(refused.to_string().contains("one does so in this process; choose one of them"));
        drop(first);
        assert_eq!(LabelOwner::claim(kind, "other").unwrap_err(), refused);
        drop(again);
        let other = LabelOwner::claim(kind, "other").unwrap();
        assert_eq!((other.kind(), other.implementation()), (kind, "other"));
    }
}
