//! Limits of a whole device.

use crate::config::{MemoryLimit, Settings};

/// Limits of a whole device. Bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::device) struct DeviceLimits {
    /// The device's memory.
    pub(in crate::device) total: u64,
    /// Limit by the memory fraction; `None` is none.
    pub(in crate::device) fraction: Option<u64>,
    /// `memory_limit`.
    pub(in crate::device) hard: Option<u64>,
    /// `memory_soft_limit`.
    pub(in crate::device) soft: Option<u64>,
}

impl DeviceLimits {
    pub(super) fn new(total: u64, settings: &Settings) -> Self {
        let none = Self { total, fraction: None, hard: None, soft: None };
        none.with_fraction(settings.per_process_memory_fraction).with_limits(settings)
    }

    /// The limits that settings name. The memory fraction stays as it was set, as in PyTorch.
    fn with_limits(self, settings: &Settings) -> Self {
        let bytes = |limit: &MemoryLimit| limit.bytes(self.total);
        let (hard, soft) = (&settings.memory_limit, &settings.memory_soft_limit);
        Self { hard: hard.as_ref().map(bytes), soft: soft.as_ref().map(bytes), ..self }
    }

    /// Limits after `settings` replace those `before`. A limit that both give alike keeps its value of now.
    pub(in crate::device) fn following(self, before: &Settings, settings: &Settings) -> Self {
        let named = self.with_limits(settings);
        let hard = if settings.memory_limit == before.memory_limit { self.hard } else { named.hard };
        let soft =
            if settings.memory_soft_limit == before.memory_soft_limit { self.soft } else { named.soft };
        Self { hard, soft, ..self }
    }

    /// The lower of both, for each limit.
    pub(in crate::device) fn and(self, other: &Self) -> Self {
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self { hard: least(self.hard, other.hard), soft: least(self.soft, other.soft), ..self }
    }

    /// Sets the memory fraction to this share of the device's memory.
    pub(in crate::device) fn with_fraction(self, fraction: f64) -> Self {
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
        let allowed = (self.total as f64 * fraction).round() as u64;
        Self { fraction: (fraction < 1.0).then_some(allowed), ..self }
    }

    /// The most that may be held, if limited.
    pub(in crate::device) fn allowed(&self) -> Option<u64> {
        self.fraction.into_iter().chain(self.hard).min()
    }

    /// The most that is ever held: guarantees are promised out of it.
    pub(super) fn capacity(&self) -> u64 {
        self.allowed().unwrap_or(self.total).min(self.total)
    }
}
