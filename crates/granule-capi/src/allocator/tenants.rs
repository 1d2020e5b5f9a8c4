//! The tenants of an allocator.

use crate::error::{Failure, GRANULE_BUDGET};
use granule::budget::TenantId;
use std::sync::{Mutex, PoisonError};

/// The tenants that C knows, by number: 1 for the first.
#[derive(Default)]
pub(crate) struct Tenants(Mutex<Vec<TenantId>>);

impl Tenants {
    pub(crate) fn number(&self, tenant: TenantId) -> u64 {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().position(|known| *known == tenant).unwrap_or_else(|| {
            known.push(tenant);
            known.len() - 1
        });
        at as u64 + 1
    }

    pub(crate) fn tenant(&self, number: u64) -> Result<TenantId, Failure> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = number.checked_sub(1).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| known.get(at)).copied().ok_or_else(|| {
            Failure::own(
                GRANULE_BUDGET,
                format!("there is no tenant {number}: granule_tenant_create makes one"),
            )
        })
    }
}
