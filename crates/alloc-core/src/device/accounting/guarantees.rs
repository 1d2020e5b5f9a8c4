//! Guarantees of tenants: those that can be promised, and the memory they leave for others.

use super::device_limits::DeviceLimits;
use super::tenants::{Tenant, Tenants};
use crate::base::round::format_bytes;
use crate::error::{AllocError, Result};
use crate::features::budget::Marks;

/// Reason to refuse a guarantee. Bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::device) enum Unkept {
    /// Others have promises already.
    Promised { others: u64, capacity: u64 },
    /// Memory is held already, or kept for others.
    Held { taken: u64, capacity: u64 },
}

/// Guarantees, next to the bytes held and the capacity.
pub(in crate::device) struct Guarantees<'a> {
    tenants: &'a Tenants,
    held: u64,
    capacity: u64,
}

impl<'a> Guarantees<'a> {
    pub(super) fn new(tenants: &'a Tenants, held: u64, device_limits: &DeviceLimits) -> Self {
        Self { tenants, held, capacity: device_limits.capacity() }
    }

    /// Bytes that a request of this tenant, or of none, may take without touching others' guarantees; `None` without
    /// any. Where others use all of theirs, the rest is the limit: else this request would get what they give back
    /// during the driver call.
    pub(in crate::device) fn left_for(&self, own: Option<(u32, &Tenant)>) -> Option<u64> {
        let number = own.map(|(number, _)| number);
        if !self.tenants.are_others_guaranteed(number) {
            return None;
        }
        let kept = self.tenants.kept_for_others(number);
        let rest = u128::from(self.capacity).saturating_sub(u128::from(self.held) + kept);
        let promised = own.map_or(0, |(_, tenant)| tenant.unused_guarantee());
        Some(clamped(rest.max(promised)))
    }

    /// Bytes guaranteed and unused, of all tenants but this one, or of all.
    pub(in crate::device) fn kept_from(&self, own: Option<(u32, &Tenant)>) -> u64 {
        clamped(self.tenants.kept_for_others(own.map(|(number, _)| number)))
    }

    /// Tests if limits on the whole device leave room for all guarantees, next to what others hold.
    pub(in crate::device) fn are_kept_under(&self, device_limits: &DeviceLimits) -> Result<()> {
        let allowed = device_limits.allowed().unwrap_or(device_limits.total);
        let guaranteed = self.tenants.guaranteed(None);
        let unused = self.tenants.kept_for_others(None);
        let promised = u128::from(self.held) + unused;
        let problem = if guaranteed > u128::from(allowed) {
            format!(
                "{} are guaranteed to tenants, and only {} could be held; lower guarantees first (set_budget)",
                format_bytes(clamped(guaranteed)),
                format_bytes(allowed)
            )
        } else if unused > 0 && promised > u128::from(allowed) {
            format!(
                "{} are held, or guaranteed to tenants and not used yet, and only {} could be held; free memory first \
                 (empty_cache), or lower guarantees (set_budget)",
                format_bytes(clamped(promised)),
                format_bytes(allowed)
            )
        } else {
            return Ok(());
        };
        Err(AllocError::Budget { owner: "the device".into(), problem })
    }

    /// Tests if `marks` can be promised to tenant `number`, or to a new one: within the capacity, next to others'
    /// guarantees and to what others hold beyond those.
    pub(in crate::device) fn can_promise(
        &self,
        number: Option<u32>,
        marks: Marks,
    ) -> std::result::Result<(), Unkept> {
        let own = number.and_then(|number| self.tenants.get(number));
        let before = own.map_or(0, |tenant| tenant.marks().guarantee);
        if marks.guarantee <= before {
            return Ok(());
        }
        let capacity = self.capacity;
        let others = self.tenants.guaranteed(None) - u128::from(before);
        if others + u128::from(marks.guarantee) > u128::from(capacity) {
            return Err(Unkept::Promised { others: clamped(others), capacity });
        }
        let unused = u128::from(marks.guarantee).saturating_sub(own.map_or(0, Tenant::held));
        let taken = u128::from(self.held) + self.tenants.kept_for_others(number);
        if taken + unused > u128::from(capacity) {
            return Err(Unkept::Held { taken: clamped(taken), capacity });
        }
        Ok(())
    }

    /// True if `bytes` of a tenant's pool can pass to no tenant without eating into this tenant's guarantee.
    pub(in crate::device) fn may_leave(&self, (number, tenant): (u32, &Tenant), bytes: u64) -> bool {
        let left = tenant.held() - u128::from(bytes);
        let unused = u128::from(tenant.marks().guarantee).saturating_sub(left);
        let taken = u128::from(self.held) + self.tenants.kept_for_others(Some(number));
        unused == tenant.unused_guarantee() || taken + unused <= u128::from(self.capacity)
    }
}

pub(super) fn clamped(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
