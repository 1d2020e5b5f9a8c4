//! The policy of an allocator, whose type is known only where it is made.

use super::placement::{Placed, Placement};
use super::remembered::Remembered;
use super::remembered::sealed::Sealed;
use super::supply::Supply;
use super::{
    Drain, GranulePolicy, Growth, Holding, Policy, PolicyFactory, PytorchPolicy, Request, Rung, Situation,
    TieBreak,
};
use crate::config::{PolicyName, PytorchRelease, Settings};
use crate::error::{AllocError, Result};
use crate::memory::block::Tier;
use crate::policy::Grain;
use crate::sync::Arc;
use std::any::Any;
use std::fmt::Debug;

/// What is the same for every policy of one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub(crate) name: &'static str,
    pub(crate) drain: Drain,
    pub(crate) always_grows: bool,
}

impl Traits {
    pub(crate) const fn of<P: Policy>() -> Self {
        Self { name: P::NAME, drain: P::DRAIN, always_grows: P::ALWAYS_GROWS }
    }
}

/// The decisions of a [`Policy`] off the hot path.
pub(crate) trait Decisions: Any + Debug + Send + Sync {
    fn traits(&self) -> Traits;
    fn ladder(&self) -> &'static [Rung];
    fn grows(&self) -> bool;
    fn tie_break(&self) -> TieBreak;
    fn gives_empty_addresses_back(&self) -> bool;
    fn growing(&self) -> Chosen;
    fn request(&self, bytes: u64) -> Request;
    fn granule(&self, tier: Tier, minimum: u64, holding: &Holding) -> Grain;
    fn growth(&self, request: &Request, situation: &dyn Fn() -> Situation) -> Option<Growth>;
    fn reserve(&self, total: u64, granule: u64) -> u64;
    fn oversize(&self) -> u64;
    fn release_target(&self, request: &Request) -> Option<u64>;
    fn garbage_threshold(&self, allowed: Option<u64>) -> Option<u64>;
    /// An arena's free blocks, none yet.
    fn placement(&self) -> Placement;
    /// What is remembered of an arena, nothing yet.
    fn remembered(&self) -> Remembered;
    /// How memory is got for a miss, on a device.
    fn supply(&self) -> Supply;
}

/// A policy under certain settings.
pub(crate) type Chosen = Arc<dyn Decisions>;

impl<P: Policy> Decisions for P {
    fn traits(&self) -> Traits {
        const { Traits::of::<P>() }
    }
    fn ladder(&self) -> &'static [Rung] {
        P::LADDER
    }
    fn grows(&self) -> bool {
        Policy::grows(self)
    }
    fn tie_break(&self) -> TieBreak {
        Policy::tie_break(self)
    }
    fn gives_empty_addresses_back(&self) -> bool {
        Policy::gives_empty_addresses_back(self)
    }
    fn growing(&self) -> Chosen {
        Arc::new(Policy::growing(self))
    }
    fn request(&self, bytes: u64) -> Request {
        Policy::request(self, bytes)
    }
    fn granule(&self, tier: Tier, minimum: u64, holding: &Holding) -> Grain {
        let usual = Policy::granule(self, tier, minimum, holding);
        Grain { usual, least: Policy::least_granule(self, tier, minimum, holding).min(usual) }
    }
    fn growth(&self, request: &Request, situation: &dyn Fn() -> Situation) -> Option<Growth> {
        Policy::growth(self, request, situation)
    }
    fn reserve(&self, total: u64, granule: u64) -> u64 {
        Policy::reserve(self, total, granule)
    }
    fn oversize(&self) -> u64 {
        Policy::oversize(self)
    }
    fn release_target(&self, request: &Request) -> Option<u64> {
        Policy::release_target(self, request)
    }
    fn garbage_threshold(&self, allowed: Option<u64>) -> Option<u64> {
        Policy::garbage_threshold(self, allowed)
    }
    fn placement(&self) -> Placement {
        let any: &dyn Any = self;
        if let Some(policy) = any.downcast_ref::<PytorchPolicy>() {
            return Placement::Pytorch(Placed::new(policy.clone()));
        }
        match any.downcast_ref::<GranulePolicy>() {
            Some(policy) => Placement::Granule(Placed::new(policy.clone())),
            None => Placement::Custom(Box::new(Placed::new(self.clone()))),
        }
    }
    fn remembered(&self) -> Remembered {
        P::Memory::remembered()
    }
    fn supply(&self) -> Supply {
        P::Memory::supply()
    }
}

/// Makes an allocator's policy, for each device and whenever settings change.
pub(crate) struct Maker {
    pub(crate) name: PolicyName,
    pub(crate) traits: Traits,
    make: Box<Make>,
}

/// What a device's policy is under settings, where there is virtual memory or not.
type Make = dyn Fn(&Settings, bool) -> Chosen + Send + Sync;

impl Maker {
    /// That of a policy of this name.
    pub(crate) fn of<F: PolicyFactory>(name: PolicyName, factory: F) -> Self {
        let make = move |settings: &Settings, virtual_memory| -> Chosen {
            Arc::new(factory.make(settings, virtual_memory))
        };
        Self { name, traits: Traits::of::<F::Policy>(), make: Box::new(make) }
    }

    /// What settings say of it, which said `given`: nothing only where it is the default.
    pub(crate) fn shown(&self, given: Option<PolicyName>) -> Option<PolicyName> {
        given.or(Some(self.name).filter(|name| *name != PolicyName::default()))
    }

    /// New settings of an allocator keep its policy, and the release of PyTorch that those before named.
    pub(crate) fn keep(&self, settings: &mut Settings, named: Option<PytorchRelease>) -> Result<()> {
        let (policy, release) = (self.name, named.unwrap_or_default());
        if let Some(asked) = settings.policy.filter(|asked| *asked != policy) {
            return Err(AllocError::PolicyFixed { policy, asked });
        }
        if let Some(asked) = settings.pytorch_release.filter(|asked| *asked != release) {
            return Err(AllocError::ReleaseFixed { release, asked });
        }
        settings.policy = self.shown(settings.policy);
        settings.pytorch_release = settings.pytorch_release.or(named);
        Ok(())
    }

    /// The policy under `settings`, on a device that has virtual memory or not.
    pub(crate) fn make(&self, settings: &Settings, virtual_memory: bool) -> Chosen {
        (self.make)(settings, virtual_memory)
    }
}

impl Debug for Maker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Maker").field("name", &self.name).finish_non_exhaustive()
    }
}
