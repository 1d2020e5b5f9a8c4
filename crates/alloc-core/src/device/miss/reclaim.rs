//! Memory for a miss: cached memory goes back in a fair order, and the program's hooks make room.

use crate::arena::directory::Arena;
use crate::device::Device;
use crate::device::accounting::tenants::Owner;
use crate::device::pools;
use crate::device::pools::Flush;
use crate::error::Result;
use crate::features::budget::{Shortage, SpillRequest, TenantId};
use crate::lifetimes::call::Call;
use crate::policy::Request;
use crate::process::callbacks::Kind;
use crate::process::stream_identity::shown;
use crate::types::{DevicePtr, PoolId, Stream};

/// Next step to give memory back for a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Cached memory of the owner's pools.
    Of(Owner),
    /// Memory of no tenant.
    Rest(Flush),
    /// Pinned memory of the host's, where that is the device's memory.
    Pinned,
}

/// Memory needed from the device, and by whom.
#[derive(Clone, Copy, Debug)]
pub(in crate::device) struct Need {
    pub(in crate::device) pool: PoolId,
    pub(in crate::device) stream: Stream,
    pub(in crate::device) bytes: u64,
}

impl Device {
    /// Gives the owner's cached memory back above a soft limit, before more is taken. `true` where something may have
    /// gone.
    pub(in crate::device) fn trim_to_soft(&self, arena: &Arena, request: &Request, call: &Call<'_>) -> bool {
        if call.capturing || !self.accounting.has_budgets() {
            return false;
        }
        let pool = arena.lock().binding().pool().id;
        let need = self.exact_need(arena, request);
        let above = self.accounting.lock().accounts().above_soft(pool, need);
        for owner in &above {
            if let Err(error) = release_owner(self, *owner, call) {
                tracing::warn!(%error, "not all cached memory above a soft limit could be given back");
            }
        }
        !above.is_empty()
    }

    /// Gives cached memory back until the request is served. Blocks unless a capture forbids it. The `last_resort` asks
    /// nobody else: pinned memory's history is the program's own, and its destructors may wait for another thread.
    pub(in crate::device) fn reclaim(
        &self,
        arena: &Arena,
        request: &Request,
        last_resort: bool,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        let mut steps = steps(self, &need_of(self, arena, request));
        steps.retain(|step| !last_resort || *step != Step::Pinned);
        take(self, steps, call, &mut || search_or_grow(self, arena, request, true, call))
    }

    /// Asks the program to make room, one hook after the other, until the request is served.
    pub(in crate::device) fn spill(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
    ) -> Result<Option<DevicePtr>> {
        self.spill_until(&|| need_of(self, arena, request), call, &mut |is_retry| {
            search_or_grow(self, arena, request, is_retry, call)
        })
    }

    /// Gives cached memory back, step by step, until an attempt succeeds. Blocks unless a capture forbids it.
    pub(in crate::device) fn reclaim_until<T>(
        &self,
        need: &Need,
        call: &Call<'_>,
        attempt: &mut dyn FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        take(self, steps(self, need), call, attempt)
    }

    /// Asks the program to make room, one hook after the other, until an attempt succeeds. The attempt is told if
    /// cached memory was given back for it.
    pub(in crate::device) fn spill_until<T>(
        &self,
        need: &dyn Fn() -> Need,
        call: &Call<'_>,
        attempt: &mut dyn FnMut(bool) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let hooks = self.budget_events.hooks();
        if self.driver.callbacks().is_inside(Kind::SpillHook) {
            return Ok(None);
        }
        for (priority, hook) in hooks.iter() {
            let wanted = spill_request(self, &need());
            let freed = self.driver.calls().call(Kind::SpillHook, || hook(&wanted)).unwrap_or(0);
            tracing::debug!(priority, freed, "a spill hook was called");
            self.accounting.note_spill(need().pool, freed);
            // Whatever the hook says, search again.
            if let Some(served) = attempt(false)? {
                return Ok(Some(served));
            }
            if let Some(served) = self.reclaim_until(&need(), call, &mut || attempt(true))? {
                return Ok(Some(served));
            }
        }
        Ok(None)
    }
}

/// Gives back cached memory of the owner's pools, those in use included, unless graphs know their addresses.
fn release_owner(device: &Device, owner: Owner, call: &Call<'_>) -> Result<()> {
    let pools = device.accounting.lock().accounts().pools_of(owner);
    let mut outcome = Ok(());
    for pool in pools {
        if let Ok(slot) = pools::slot_of(device, pool) {
            outcome = outcome.and(device.release(Flush::InUse(slot), call));
        }
    }
    outcome
}

/// Makes allocators of pinned memory give back their cached part of the device's memory. `true` where something may
/// have gone.
fn release_pinned(device: &Device, call: &Call<'_>) -> bool {
    device.driver.unified().is_some_and(|unified| unified.ask_caches(!call.capturing))
}

/// Steps to give memory back for somebody in need, in order. A pool or tenant at its own limit gets room from its own
/// cache only. Else tenants above their marks come first, then the requester's own cache, then memory of no tenant,
/// then tenants within their marks. Pinned memory that is of the device's memory comes last.
fn steps(device: &Device, need: &Need) -> Vec<Step> {
    let pinned = device.driver.unified().map(|_| Step::Pinned);
    if !device.accounting.has_budgets() {
        return [Step::Rest(Flush::Everything)].into_iter().chain(pinned).collect();
    }
    let Need { pool, bytes, .. } = *need;
    let state = device.accounting.lock();
    let accounts = state.accounts();
    let own = accounts.tenant_of(pool).map(|(number, _)| number);
    match accounts.budget_refusal(pool, bytes) {
        Some(Shortage::Pool) => return vec![Step::Of(Owner::Pool(pool))],
        Some(Shortage::Tenant) => {
            return own.map(|own| Step::Of(Owner::Tenant(own))).into_iter().collect();
        }
        _ => {}
    }
    let of_tenant = accounts.tenant_of(PoolId::DEFAULT).is_some();
    let rest = Step::Rest(if of_tenant { Flush::Unused } else { Flush::Everything });
    let tenant = |number| Step::Of(Owner::Tenant(number));
    let all = accounts.tenants().numbers();
    let over = accounts.tenants().by_excess().into_iter();
    let mut steps: Vec<Step> = Vec::new();
    let order = over.chain(own).map(tenant).chain([rest]).chain(all.map(tenant)).chain(pinned);
    for step in order {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    steps
}

/// Bytes that a request takes from the device, and for whom.
fn need_of(device: &Device, arena: &Arena, request: &Request) -> Need {
    let bytes = device.exact_need(arena, request);
    let state = arena.lock();
    Need { pool: state.binding().pool().id, stream: state.binding().stream(), bytes }
}

fn search_or_grow(
    device: &Device,
    arena: &Arena,
    request: &Request,
    is_retry: bool,
    call: &Call<'_>,
) -> Result<Option<DevicePtr>> {
    // Pending blocks that came back may fit as they are.
    match device.search(arena, request, false, call) {
        Some(ptr) => Ok(Some(ptr)),
        None => device.take_memory(arena, request, is_retry, call),
    }
}

fn take<T>(
    device: &Device,
    steps: Vec<Step>,
    call: &Call<'_>,
    attempt: &mut dyn FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let mut outcome = Ok(());
    for step in steps {
        // A refusal by one stream or region is no reason to refuse what others gave.
        let given = match step {
            Step::Rest(what) => device.release(what, call),
            Step::Of(owner) => release_owner(device, owner, call),
            Step::Pinned if release_pinned(device, call) => Ok(()),
            Step::Pinned => continue,
        };
        outcome = outcome.and(given);
        if let Some(served) = attempt()? {
            return Ok(Some(served));
        }
    }
    outcome.map(|()| None)
}

/// Calls the driver.
fn spill_request(device: &Device, need: &Need) -> SpillRequest {
    let free = device.driver.memory_info().map_or_else(
        |_| {
            device.driver.backend().clear_error();
            0
        },
        |memory| memory.free,
    );
    let Need { pool, stream, bytes: wanted } = *need;
    let state = device.accounting.lock();
    let limits = state.accounts().limits(Some(pool));
    let room = limits.iter().map(|limit| limit.bytes.saturating_sub(limit.held)).chain([free]).min();
    let room = room.unwrap_or(0);
    let number = state.accounts().tenant_of(pool).map(|(number, _)| number);
    SpillRequest {
        device: device.driver.device(),
        stream: shown(stream),
        pool,
        tenant: number.map(|number| TenantId { device: device.driver.device(), number }),
        wanted,
        missing: if room < wanted { wanted - room } else { wanted },
        shortage: state.accounts().budget_refusal(pool, wanted).unwrap_or(Shortage::Device),
    }
}
