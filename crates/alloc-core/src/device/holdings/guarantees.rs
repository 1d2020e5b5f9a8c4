//! What is guaranteed to tenants: whether it can be promised, and what it leaves for others.

use super::accounts::{Accounts, clamped};
use super::tenants::Tenant;
use crate::base::round::format_bytes;
use crate::error::{AllocError, Result};
use crate::features::budget::Marks;
use crate::types::PoolId;

/// Why a guarantee cannot be given. Bytes.
#[derive(Clone, Copy, Debug)]
pub(in crate::device) enum Unkept {
    /// Others have promises already.
    Promised { others: u64, capacity: u64 },
    /// Memory is held already, or kept for others.
    Held { taken: u64, capacity: u64 },
}

impl Accounts {
    /// The most that is ever held: what guarantees are promised out of.
    pub(in crate::device) fn capacity(&self) -> u64 {
        self.allowed().unwrap_or(self.total).min(self.total)
    }

    /// What a request to `pool` may take without touching what is guaranteed to tenants that it is not part of; `None`
    /// where nothing is. Where they have all of it in use it is what is left of the whole: what they give back while
    /// the driver is asked would go to this request otherwise.
    pub(in crate::device) fn left_by_guarantees(&self, pool: PoolId) -> Option<u64> {
        let own = self.tenant_of(pool);
        let number = own.map(|(number, _)| number);
        if !self.tenants.are_others_guaranteed(number) {
            return None;
        }
        let kept = self.tenants.kept_for_others(number);
        let rest = u128::from(self.capacity()).saturating_sub(u128::from(self.held()) + kept);
        let promised = own.map_or(0, |(_, tenant)| tenant.unused_guarantee());
        Some(clamped(rest.max(promised)))
    }

    /// What is guaranteed to tenants that the pool is not part of, and not used by them.
    pub(in crate::device) fn kept_for_others(&self, pool: PoolId) -> u64 {
        clamped(self.tenants.kept_for_others(self.tenant_of(pool).map(|(number, _)| number)))
    }

    /// Whether limits of these bytes on all that is held leave room for what is guaranteed, next to what others hold.
    pub(in crate::device) fn keeps_guarantees(&self, fraction: Option<u64>, hard: Option<u64>) -> Result<()> {
        let allowed = fraction.into_iter().chain(hard).min().unwrap_or(self.total);
        let guaranteed = self.tenants.guaranteed(None);
        let unused = self.tenants.kept_for_others(None);
        let promised = u128::from(self.held()) + unused;
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

    /// Whether `marks` can be promised to tenant `number`, or to a new one: within what may be held, next to what is
    /// guaranteed to others, and to what others hold beyond that.
    pub(in crate::device) fn can_promise(
        &self,
        number: Option<u32>,
        marks: Marks,
    ) -> std::result::Result<(), Unkept> {
        let own = number.and_then(|number| self.tenants.records.get(&number));
        let before = own.map_or(0, |tenant| tenant.marks.guarantee);
        if marks.guarantee <= before {
            return Ok(());
        }
        let others = self.tenants.guaranteed(None) - u128::from(before);
        let capacity = self.capacity();
        if others + u128::from(marks.guarantee) > u128::from(capacity) {
            return Err(Unkept::Promised { others: clamped(others), capacity });
        }
        let unused = u128::from(marks.guarantee).saturating_sub(own.map_or(0, Tenant::held));
        let taken = u128::from(self.held()) + self.tenants.kept_for_others(number);
        if taken + unused > u128::from(capacity) {
            return Err(Unkept::Held { taken: clamped(taken), capacity });
        }
        Ok(())
    }

    /// Whether a pool's memory can become nobody's without eating into what its tenant is guaranteed.
    pub(in crate::device) fn may_leave(&self, pool: PoolId) -> bool {
        let Some((number, tenant)) = self.tenant_of(pool) else { return true };
        let left = tenant.held() - u128::from(self.held_by(pool));
        let unused = u128::from(tenant.marks.guarantee).saturating_sub(left);
        let taken = u128::from(self.held()) + self.tenants.kept_for_others(Some(number));
        unused == tenant.unused_guarantee() || taken + unused <= u128::from(self.capacity())
    }
}
