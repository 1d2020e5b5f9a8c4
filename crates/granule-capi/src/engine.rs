//! The engine behind a handle. Its policy is a type, and the settings choose it when the allocator is made: a handle holds
//! one of a few, and a call costs one comparison for that.

use crate::error::{Failure, GRANULE_SETTINGS};
use granule::CachingAllocator;
use granule::backend::Backend;
use granule::config::{PolicyName, Settings};
use granule::policy::{GranulePolicy, PytorchPolicy};
use std::sync::Arc;

/// What is of another type under each policy.
pub(crate) enum ByPolicy<P, G> {
    Pytorch(P),
    Granule(G),
}

pub(crate) type Engine = ByPolicy<Arc<CachingAllocator<PytorchPolicy>>, Arc<CachingAllocator<GranulePolicy>>>;

/// Does the same with whichever it is: `each!(&scope, scope => scope.peaks())`.
macro_rules! each {
    ($value:expr, $name:ident => $do:expr) => {
        match $value {
            $crate::engine::ByPolicy::Pytorch($name) => $do,
            $crate::engine::ByPolicy::Granule($name) => $do,
        }
    };
}

/// Makes one of another: `map!(engine, engine => Arc::downgrade(engine))`.
macro_rules! map {
    ($value:expr, $name:ident => $do:expr) => {
        match $value {
            $crate::engine::ByPolicy::Pytorch($name) => $crate::engine::ByPolicy::Pytorch($do),
            $crate::engine::ByPolicy::Granule($name) => $crate::engine::ByPolicy::Granule($do),
        }
    };
}

/// Calls a method of an allocator's engine: `engine!(a, poll(device))`.
macro_rules! engine {
    ($allocator:expr, $method:ident($($argument:expr),* $(,)?)) => {
        $crate::engine::each!(&$allocator.engine, engine => engine.$method($($argument),*))
    };
}

pub(crate) use {each, engine, map};

impl Engine {
    /// The engine of the policy that the settings name.
    pub(crate) fn new(backend: Arc<dyn Backend>, settings: Settings) -> Result<Self, Failure> {
        Ok(match settings.policy_name() {
            PolicyName::Pytorch => Self::Pytorch(Arc::new(CachingAllocator::new(backend, settings)?)),
            PolicyName::Granule => Self::Granule(Arc::new(CachingAllocator::new(backend, settings)?)),
            other => {
                let text = format!("policy:{other} is not served by the C ABI");
                return Err(Failure::own(GRANULE_SETTINGS, text));
            }
        })
    }

    /// Replaces the settings; the policy is what it is.
    pub(crate) fn configure(&self, next: Settings) -> Result<(), Failure> {
        each!(self, engine => {
            let built_in = engine.policy_name();
            if let Some(policy) = next.policy.filter(|policy| policy.name() != built_in) {
                // There are no types in C: the engine's own advice does not help.
                let text = format!(
                    "policy:{policy} is refused: this allocator has policy:{built_in}, which is chosen when an allocator is made \
                     and stays; make another one, or name the policy in GRANULE_CONF before the program starts"
                );
                return Err(Failure::own(GRANULE_SETTINGS, text));
            }
            Ok(engine.configure(next)?)
        })
    }
}
