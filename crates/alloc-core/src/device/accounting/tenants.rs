//! Tenants in the device's accounts: their bytes, guarantees and soft limits.

use crate::features::budget::{Marks, TenantStats};
use crate::sync::Arc;
use crate::types::PoolId;
use crate::watch::stats::Stat;
use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(in crate::device) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device) enum Owner {
    /// All that is held.
    Device,
    Pool(PoolId),
    /// By number.
    Tenant(u32),
}

/// Watches a soft limit, so that a crossing is told once.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::device) struct Watch {
    above: bool,
    crossings: u64,
}

impl Watch {
    /// Compares the bytes held with the limit; returns it if it was crossed just now.
    pub(in crate::device) fn review(&mut self, held: u64, soft: Option<u64>) -> Option<u64> {
        let crossed = soft.filter(|soft| held > *soft);
        let was_above = std::mem::replace(&mut self.above, crossed.is_some());
        let crossed = crossed.filter(|_| !was_above);
        self.crossings += u64::from(crossed.is_some());
        crossed
    }
}

/// One tenant's account.
#[derive(Debug)]
pub(in crate::device) struct Tenant {
    name: Arc<str>,
    marks: Marks,
    reserved: Stat,
    /// Bytes being taken for its pools at the moment, by threads that hold no lock.
    intents: u128,
    watch: Watch,
    refusals: u64,
    spills: u64,
    spilled_bytes: u64,
}

impl Tenant {
    pub(in crate::device) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(in crate::device) fn marks(&self) -> Marks {
        self.marks
    }

    /// Sets other marks. Returns the soft limit if that is crossed by this.
    pub(super) fn set_marks(&mut self, marks: Marks) -> Option<u64> {
        self.marks = marks;
        self.review()
    }

    /// Counts bytes that were taken for it, and bytes being taken. Returns the soft limit if that is crossed by this.
    pub(super) fn take(&mut self, bytes: u64, intents: u128) -> Option<u64> {
        self.reserved.increase(signed(bytes));
        self.intents += intents;
        self.review()
    }

    /// Counts bytes that are not its own any more, and bytes being taken that will not be.
    pub(super) fn give_back(&mut self, bytes: u64, intents: u128) {
        self.reserved.decrease(signed(bytes));
        self.intents -= intents;
        self.review();
    }

    pub(super) fn change_intents(&mut self, change: impl FnOnce(&mut u128)) {
        change(&mut self.intents);
    }

    /// Counts a refused request of its pools.
    pub(super) fn note_refusal(&mut self) {
        self.refusals += 1;
    }

    /// Counts the bytes that its spill hook freed.
    pub(super) fn note_spill(&mut self, freed: u64) {
        self.spills += u64::from(freed > 0);
        self.spilled_bytes = self.spilled_bytes.saturating_add(freed);
    }

    /// Bytes held for it.
    pub(in crate::device) fn bytes(&self) -> u64 {
        self.reserved.current.unsigned_abs()
    }

    /// Bytes held for it, those being taken at the moment included.
    pub(in crate::device) fn held(&self) -> u128 {
        u128::from(self.bytes()) + self.intents
    }

    /// Unused bytes of its guarantee.
    pub(in crate::device) fn unused_guarantee(&self) -> u128 {
        u128::from(self.marks.guarantee).saturating_sub(self.held())
    }

    /// Bytes above its soft limit, or above its guarantee where it has none.
    fn excess(&self) -> u64 {
        self.bytes().saturating_sub(self.marks.soft.unwrap_or(self.marks.guarantee))
    }

    pub(in crate::device) fn refuses(&self, bytes: u64) -> bool {
        self.marks.hard.is_some_and(|hard| self.held() + u128::from(bytes) > u128::from(hard))
    }

    /// Compares its holdings with its soft limit, after a change; returns the limit if just crossed.
    fn review(&mut self) -> Option<u64> {
        self.watch.review(self.bytes(), self.marks.soft)
    }

    pub(in crate::device) fn stats(&self, pools: Vec<PoolId>) -> TenantStats {
        TenantStats {
            name: Arc::clone(&self.name),
            marks: self.marks,
            held: self.bytes(),
            peak: self.reserved.peak.unsigned_abs(),
            pools,
            refusals: self.refusals,
            soft_crossings: self.watch.crossings,
            spills: self.spills,
            spilled_bytes: self.spilled_bytes,
        }
    }
}

/// A device's tenants, by number.
#[derive(Debug, Default)]
pub(in crate::device) struct Tenants {
    records: BTreeMap<u32, Tenant>,
    next: u32,
}

impl Tenants {
    pub(in crate::device) fn get(&self, number: u32) -> Option<&Tenant> {
        self.records.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Tenant> {
        self.records.get_mut(&number)
    }

    /// All tenants.
    pub(in crate::device) fn iter(&self) -> impl Iterator<Item = (u32, &Tenant)> {
        self.records.iter().map(|(number, tenant)| (*number, tenant))
    }

    /// Numbers of all tenants.
    pub(in crate::device) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.records.keys().copied()
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.records.remove(&number);
    }

    /// Changes every figure.
    pub(super) fn each(&mut self, mut change: impl FnMut(&mut Stat)) {
        self.records.values_mut().for_each(|tenant| change(&mut tenant.reserved));
    }

    pub(super) fn add(&mut self, name: &str, marks: Marks) -> u32 {
        let number = self.next;
        self.next += 1;
        let tenant = Tenant {
            name: name.into(),
            marks,
            reserved: Stat::default(),
            intents: 0,
            watch: Watch::default(),
            refusals: 0,
            spills: 0,
            spilled_bytes: 0,
        };
        self.records.insert(number, tenant);
        number
    }

    /// Sum of all guarantees, with `marks` for one tenant instead of its own.
    pub(in crate::device) fn guaranteed(&self, instead: Option<(u32, Marks)>) -> u128 {
        let own = |(number, tenant): (&u32, &Tenant)| match instead {
            Some((other, marks)) if other == *number => marks.guarantee,
            _ => tenant.marks.guarantee,
        };
        self.records.iter().map(|record| u128::from(own(record))).sum()
    }

    /// True if any tenant but `own` has a guarantee.
    pub(in crate::device) fn are_others_guaranteed(&self, own: Option<u32>) -> bool {
        self.records.iter().any(|(number, tenant)| Some(*number) != own && tenant.marks.guarantee > 0)
    }

    /// Bytes guaranteed and unused, of all tenants but `own`.
    pub(in crate::device) fn kept_for_others(&self, own: Option<u32>) -> u128 {
        let others = self.records.iter().filter(|(number, _)| Some(**number) != own);
        others.map(|(_, tenant)| tenant.unused_guarantee()).sum()
    }

    /// Tenants above their mark, the one with the largest excess first.
    pub(in crate::device) fn by_excess(&self) -> Vec<u32> {
        let mut over: Vec<_> =
            self.records.iter().map(|(n, t)| (Reverse(t.excess()), *n)).filter(|(e, _)| e.0 > 0).collect();
        over.sort_unstable();
        over.into_iter().map(|(_, number)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossing_is_told_once_and_again_after_a_return() {
        let mut watch = Watch::default();
        let told: Vec<_> =
            [10, 11, 12, 10, 11].into_iter().map(|held| watch.review(held, Some(10)).is_some()).collect();
        assert_eq!(told, [false, true, false, false, true]);
        assert_eq!(watch.review(50, None), None, "no limit, no crossing");
        assert_eq!(
            (watch.review(50, Some(49)), watch.crossings),
            (Some(49), 3),
            "a lowered limit is crossed"
        );
    }

    #[test]
    fn guarantees_are_kept_as_far_as_they_are_not_used() {
        let mut tenants = Tenants::default();
        let marks = |guarantee, soft| Marks { guarantee, soft, hard: None };
        let [a, b, c] = [(100, None), (50, Some(60)), (0, None)].map(|(g, s)| tenants.add("t", marks(g, s)));
        for (number, held) in [(a, 30), (b, 70), (c, 5)] {
            tenants.get_mut(number).expect("added above").take(held, 0);
        }
        assert_eq!(tenants.kept_for_others(None), 70);
        assert_eq!((tenants.kept_for_others(Some(a)), tenants.kept_for_others(Some(b))), (0, 70));
        assert_eq!(tenants.by_excess(), [b, c], "10 over the soft limit, 5 over nothing");
        assert_eq!(tenants.guaranteed(Some((b, marks(1, None)))), 101);
    }
}
