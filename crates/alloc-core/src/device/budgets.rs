//! Budgets of pools and tenants as the program sets them. Accounts count the bytes held; `device/budget_events.rs` tells
//! observers; `device/miss/reclaim.rs` makes room for a miss.

use crate::base::round::format_bytes;
use crate::config::MemoryLimit;
use crate::device::Device;
use crate::device::accounting::DeviceState;
use crate::device::accounting::guarantees::Unkept;
use crate::device::accounting::tenants::Owner;
use crate::device::pools::Flush;
use crate::device::{budget_events, pools};
use crate::error::{AllocError, Result};
use crate::features::budget::{Budget, TenantId, TenantStats};
use crate::sync::Arc;
use crate::types::PoolId;

pub(crate) fn create_tenant(device: &Device, name: &str, budget: &Budget) -> Result<TenantId> {
    let number = promise(device, budget, |state| {
        let taken = state.accounts().tenants().iter().any(|(_, tenant)| &**tenant.name() == name);
        if taken {
            let problem = "a tenant of this device has that name; choose another".into();
            return Err(AllocError::Budget { owner: format!("tenant {name:?}"), problem });
        }
        Ok((None, name.into()))
    })?;
    Ok(TenantId { device: device.driver.device(), number })
}

pub(crate) fn set_budget(device: &Device, tenant: TenantId, budget: &Budget) -> Result<()> {
    promise(device, budget, |state| {
        let record = state.accounts().tenants().get(tenant.number);
        let record = record.ok_or(AllocError::UnknownTenant { tenant })?;
        Ok((Some(tenant.number), Arc::clone(record.name())))
    })?;
    budget_events::tell(device);
    Ok(())
}

pub(crate) fn join_tenant(device: &Device, pool: PoolId, tenant: TenantId) -> Result<()> {
    {
        let mut state = device.accounting.lock();
        pools::is_there(device, pool)?;
        let accounts = state.accounts_mut();
        let refusal = |problem| Err(AllocError::Budget { owner: format!("pool {pool}"), problem });
        match accounts.tenant_of(pool) {
            Some((number, _)) if number == tenant.number => return Ok(()),
            Some((_, other)) => {
                return refusal(format!(
                    "it is part of tenant {:?}; let it leave first (leave_tenant)",
                    other.name()
                ));
            }
            None => {}
        }
        let held = accounts.held_by(pool);
        let joined = accounts.tenants().get(tenant.number);
        let joined = joined.ok_or(AllocError::UnknownTenant { tenant })?;
        if held > 0 && joined.refuses(held) {
            return refusal(format!(
                "with the {} it holds, tenant {:?} would pass its hard limit; empty the pool first, or raise the \
                 limit (set_budget)",
                format_bytes(held),
                joined.name()
            ));
        }
        accounts.set_tenant(pool, Some(tenant.number));
    }
    budget_events::tell(device);
    Ok(())
}

pub(crate) fn leave_tenant(device: &Device, pool: PoolId) -> Result<()> {
    let mut state = device.accounting.lock();
    pools::is_there(device, pool)?;
    let accounts = state.accounts_mut();
    let held = accounts.held_by(pool);
    let eats = accounts.tenant_of(pool).filter(|own| !accounts.guarantees().may_leave(*own, held));
    if eats.is_some() {
        let held = format_bytes(held);
        let problem = format!(
            "the {held} it holds would eat into its tenant's guarantee; empty the pool first, or lower the guarantee \
             (set_budget)"
        );
        return Err(AllocError::Budget { owner: format!("pool {pool}"), problem });
    }
    accounts.set_tenant(pool, None);
    Ok(())
}

pub(crate) fn remove_tenant(device: &Device, tenant: TenantId) -> Result<()> {
    let mut state = device.accounting.lock();
    let accounts = state.accounts_mut();
    if accounts.tenants().get(tenant.number).is_none() {
        return Err(AllocError::UnknownTenant { tenant });
    }
    accounts.remove_tenant(tenant.number);
    Ok(())
}

pub(crate) fn tenants(device: &Device) -> Vec<TenantId> {
    let state = device.accounting.lock();
    let id = |number| TenantId { device: device.index(), number };
    state.accounts().tenants().numbers().map(id).collect()
}

pub(crate) fn tenant_stats(device: &Device, tenant: TenantId) -> Result<TenantStats> {
    let state = device.accounting.lock();
    let accounts = state.accounts();
    let record = accounts.tenants().get(tenant.number);
    let record = record.ok_or(AllocError::UnknownTenant { tenant })?;
    Ok(record.stats(accounts.pools_of(Owner::Tenant(tenant.number))))
}

pub(crate) fn tenant_of(device: &Device, pool: PoolId) -> Result<Option<TenantId>> {
    let state = device.accounting.lock();
    pools::is_there(device, pool)?;
    let number = state.accounts().tenant_of(pool).map(|(number, _)| number);
    Ok(number.map(|number| TenantId { device: device.driver.device(), number }))
}

/// Sets a pool's limits; a soft limit of `None` stays as it is.
pub(crate) fn set_pool_limits(
    device: &Device,
    pool: PoolId,
    hard: Option<MemoryLimit>,
    soft: Option<Option<MemoryLimit>>,
) -> Result<()> {
    {
        let mut state = device.accounting.lock();
        pools::is_there(device, pool)?;
        let accounts = state.accounts_mut();
        let before = accounts.soft_of(pool).map(MemoryLimit::Bytes);
        let budget = Budget { guarantee: None, soft: soft.unwrap_or(before), hard };
        let refusal = |problem| AllocError::Budget { owner: format!("pool {pool}"), problem };
        let marks = budget.marks(device.driver.total_memory()).map_err(refusal)?;
        accounts.set_limits(pool, marks.hard, marks.soft);
        device.accounting.use_budgets();
    }
    budget_events::tell(device);
    Ok(())
}

/// Gives a tenant, new or not, its budget. Where others hold too much for its guarantee, gives cached memory back
/// first.
fn promise(
    device: &Device,
    budget: &Budget,
    find: impl Fn(&DeviceState) -> Result<(Option<u32>, Arc<str>)>,
) -> Result<u32> {
    let mut emptied = false;
    loop {
        let mut state = device.accounting.lock();
        let (number, name) = find(&state)?;
        let refusal = |problem| AllocError::Budget { owner: format!("tenant {name:?}"), problem };
        let marks = budget.marks(device.driver.total_memory()).map_err(refusal)?;
        let Err(unkept) = state.accounts().guarantees().can_promise(number, marks) else {
            device.accounting.use_budgets();
            return Ok(match number {
                None => state.accounts_mut().add_tenant(&name, marks),
                Some(number) => {
                    state.accounts_mut().set_marks(number, marks);
                    number
                }
            });
        };
        drop(state);
        let wanted = format_bytes(marks.guarantee);
        match unkept {
            Unkept::Promised { others, capacity } => {
                return Err(refusal(format!(
                    "{wanted} cannot be guaranteed: {} are guaranteed to others, and {} may be held in all; lower a \
                     guarantee, or raise the device's limits",
                    format_bytes(others),
                    format_bytes(capacity)
                )));
            }
            Unkept::Held { taken, capacity } if emptied => {
                return Err(refusal(format!(
                    "{wanted} cannot be guaranteed: of {} that may be held in all, {} are in use or guaranteed to \
                     others; free memory first, or lower the guarantee",
                    format_bytes(capacity),
                    format_bytes(taken)
                )));
            }
            Unkept::Held { .. } => {
                device.empty_cache(Flush::Everything)?;
                if let Some(unified) = device.driver.unified() {
                    unified.ask_caches(true);
                }
                for pool in pools_of_tenants(device) {
                    empty_if_known(device, pool)?;
                }
                emptied = true;
            }
        }
    }
}

fn pools_of_tenants(device: &Device) -> Vec<PoolId> {
    let state = device.accounting.lock();
    let accounts = state.accounts();
    let numbers = accounts.tenants().numbers();
    numbers.flat_map(|number| accounts.pools_of(Owner::Tenant(number))).collect()
}

fn empty_if_known(device: &Device, pool: PoolId) -> Result<()> {
    // A pool that is gone has nothing to give.
    pools::slot_of(device, pool).map_or(Ok(()), |slot| device.empty_cache(Flush::InUse(slot)))
}
