//! Budgets of tenants, and who is told and asked about them.

use crate::allocator::granule_allocator;
use crate::allocator::tenants::Tenants;
use crate::boundary::callback::{User, call};
use crate::boundary::guard::guard;
use crate::boundary::pass::{self, given, growing, limit};
use crate::bytes::granule_bytes;
use crate::error::{Failure, granule_status};
use crate::pool_id::granule_pool_id;
use granule::budget::{Budget, BudgetEvent, BudgetOwner, Shortage, SpillRequest};
use granule::types::PoolId;
use std::ffi::{c_char, c_void};

/// What a tenant may hold of its device, in bytes; UINT64_MAX is no mark. No mark is above the next one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_budget {
    /// sizeof(granule_budget).
    pub size: u32,
    /// What it can always have, whatever others do.
    pub guarantee: u64,
    /// Beyond it, its cached memory goes back before more is taken.
    pub soft: u64,
    /// Beyond it nothing is taken.
    pub hard: u64,
}

growing!(granule_budget);

/// What a tenant holds, and what became of its requests. Bytes, but for counts.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_tenant_stats_t {
    /// sizeof(granule_tenant_stats_t).
    pub size: u32,
    /// Guaranteed to it.
    pub guarantee: u64,
    /// Its soft limit; UINT64_MAX where it has none.
    pub soft: u64,
    /// Its hard limit; UINT64_MAX where it has none.
    pub hard: u64,
    /// Held from the device.
    pub held: u64,
    /// The most it held.
    pub peak: u64,
    /// Requests that ended for want of memory.
    pub refusals: u64,
    /// How often it crossed its soft limit upwards.
    pub soft_crossings: u64,
    /// How often a spill hook made room for one of its requests.
    pub spills: u64,
    /// Bytes that hooks said they had freed for it.
    pub spilled_bytes: u64,
}

growing!(granule_tenant_stats_t);

/// The limit of all that is held on the device.
pub const GRANULE_OWNER_DEVICE: i32 = 0;
/// A pool's own limit.
pub const GRANULE_OWNER_POOL: i32 = 1;
/// A tenant's.
pub const GRANULE_OWNER_TENANT: i32 = 2;

/// A soft limit was crossed, upwards.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_budget_event {
    /// What the library has written: a later one may write more.
    pub size: u32,
    /// The device.
    pub device: i32,
    /// Whose limit it is: one of GRANULE_OWNER_...
    pub owner: i32,
    /// The pool for which memory was taken, or whose limit it is; {0, 0} also where there is none.
    pub pool: granule_pool_id,
    /// The tenant whose limit it is; 0 where it is nobody's.
    pub tenant: u64,
    /// Bytes that the owner held before.
    pub held: u64,
    /// Bytes that were taken.
    pub wanted: u64,
    /// The soft limit in bytes.
    pub soft: u64,
    /// The hard limit in bytes; UINT64_MAX where there is none.
    pub hard: u64,
}

/// The pool is at its own limit.
pub const GRANULE_SHORTAGE_POOL: i32 = 0;
/// The tenant is at its hard limit.
pub const GRANULE_SHORTAGE_TENANT: i32 = 1;
/// What is left is guaranteed to other tenants.
pub const GRANULE_SHORTAGE_GUARANTEES: i32 = 2;
/// The device is full, or a limit on all that is held is reached.
pub const GRANULE_SHORTAGE_DEVICE: i32 = 3;

/// A request that would be refused unless the program makes room.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct granule_spill_request {
    /// What the library has written: a later one may write more.
    pub size: u32,
    /// The device.
    pub device: i32,
    /// The stream of the request.
    pub stream: u64,
    /// The pool that the memory is for.
    pub pool: granule_pool_id,
    /// The pool's tenant; 0 where it has none.
    pub tenant: u64,
    /// Bytes that the request takes from the device.
    pub wanted: u64,
    /// Bytes that are missing for that.
    pub missing: u64,
    /// Why: one of GRANULE_SHORTAGE_...
    pub shortage: i32,
}

impl granule_budget {
    fn marks(&self) -> Budget {
        Budget { guarantee: limit(self.guarantee), soft: limit(self.soft), hard: limit(self.hard) }
    }
}

/// Makes a tenant of a device, without pools; tenant is its number, never 0. May block while memory is given back for its guarantee.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_create(
    a: *mut granule_allocator,
    device: i32,
    name: *const c_char,
    budget: *const granule_budget,
    tenant: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, name, budget) = (given!(handle a), given!(text name), given!(sized budget));
        let tenant = given!(out tenant);
        let made = a.engine.budgets().create_tenant(pass::device(device)?, name, &budget.marks())?;
        tenant.set(a.tenants.number(made));
        Ok(())
    })
}

/// Changes a tenant's budget. What it holds already it keeps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_set_budget(
    a: *mut granule_allocator,
    tenant: u64,
    budget: *const granule_budget,
) -> granule_status {
    guard(|| {
        let (a, budget) = (given!(handle a), given!(sized budget));
        Ok(a.engine.budgets().set(a.tenants.tenant(tenant)?, &budget.marks())?)
    })
}

/// Makes a pool, the default one included, part of a tenant, with what it holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_join(
    a: *mut granule_allocator,
    tenant: u64,
    pool: granule_pool_id,
) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        Ok(a.engine.budgets().join(pool.into(), a.tenants.tenant(tenant)?)?)
    })
}

/// Takes a pool out of its tenant, if it has one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_leave(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
) -> granule_status {
    guard(|| Ok(given!(handle a).engine.budgets().leave(pass::device(device)?, pool.into())?))
}

/// The tenant that a pool is part of; 0 where it is part of none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_of(
    a: *mut granule_allocator,
    device: i32,
    pool: granule_pool_id,
    tenant: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, tenant) = (given!(handle a), given!(out tenant));
        let found = a.engine.budgets().tenant_of(pass::device(device)?, pool.into())?;
        tenant.set(found.map_or(0, |found| a.tenants.number(found)));
        Ok(())
    })
}

/// Removes a tenant. Its pools stay, with what they hold, and are part of none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_remove(a: *mut granule_allocator, tenant: u64) -> granule_status {
    guard(|| {
        let a = given!(handle a);
        Ok(a.engine.budgets().remove_tenant(a.tenants.tenant(tenant)?)?)
    })
}

/// The tenants of a device, in the order in which they were made: at most capacity entries are written, and count says how many
/// there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_list(
    a: *mut granule_allocator,
    device: i32,
    out: *mut u64,
    capacity: u64,
    count: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, room, count) = (given!(handle a), given!(room out, capacity), given!(out count));
        let tenants = a.engine.budgets().tenants(pass::device(device)?)?;
        count.set(room.fill(tenants.into_iter().map(|tenant| a.tenants.number(tenant))));
        Ok(())
    })
}

/// What a tenant holds, and what became of its requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_stats(
    a: *mut granule_allocator,
    tenant: u64,
    out: *mut granule_tenant_stats_t,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(sized_out out));
        let stats = a.engine.budgets().stats(a.tenants.tenant(tenant)?)?;
        out.set(granule_tenant_stats_t {
            size: 0,
            guarantee: stats.marks.guarantee,
            soft: stats.marks.soft.unwrap_or(u64::MAX),
            hard: stats.marks.hard.unwrap_or(u64::MAX),
            held: stats.held,
            peak: stats.peak,
            refusals: stats.refusals,
            soft_crossings: stats.soft_crossings,
            spills: stats.spills,
            spilled_bytes: stats.spilled_bytes,
        });
        Ok(())
    })
}

/// A tenant's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_name(
    a: *mut granule_allocator,
    tenant: u64,
    out: *mut granule_bytes,
) -> granule_status {
    guard(|| {
        let (a, out) = (given!(handle a), given!(out out));
        let stats = a.engine.budgets().stats(a.tenants.tenant(tenant)?)?;
        out.set(granule_bytes::new(stats.name.as_bytes()));
        Ok(())
    })
}

/// A tenant's pools: at most capacity entries are written, and count says how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_tenant_pools(
    a: *mut granule_allocator,
    tenant: u64,
    out: *mut granule_pool_id,
    capacity: u64,
    count: *mut u64,
) -> granule_status {
    guard(|| {
        let (a, room, count) = (given!(handle a), given!(room out, capacity), given!(out count));
        let stats = a.engine.budgets().stats(a.tenants.tenant(tenant)?)?;
        count.set(room.fill(stats.pools.into_iter().map(granule_pool_id::from)));
        Ok(())
    })
}

fn event(event: &BudgetEvent, tenants: &Tenants) -> granule_budget_event {
    let about = event.pool.unwrap_or(PoolId::DEFAULT);
    let (owner, pool, tenant) = match &event.owner {
        BudgetOwner::Device => (GRANULE_OWNER_DEVICE, about, 0),
        BudgetOwner::Pool(pool) => (GRANULE_OWNER_POOL, *pool, 0),
        BudgetOwner::Tenant { id, .. } => (GRANULE_OWNER_TENANT, about, tenants.number(*id)),
    };
    granule_budget_event {
        size: u32::try_from(size_of::<granule_budget_event>()).unwrap_or(u32::MAX),
        device: i32::from(event.device.0),
        owner,
        pool: pool.into(),
        tenant,
        held: event.held,
        wanted: event.wanted,
        soft: event.soft,
        hard: event.hard.unwrap_or(u64::MAX),
    }
}

fn spill(request: &SpillRequest, tenants: &Tenants) -> granule_spill_request {
    granule_spill_request {
        size: u32::try_from(size_of::<granule_spill_request>()).unwrap_or(u32::MAX),
        device: i32::from(request.device.0),
        stream: request.stream.raw,
        pool: request.pool.into(),
        tenant: request.tenant.map_or(0, |tenant| tenants.number(tenant)),
        wanted: request.wanted,
        missing: request.missing,
        shortage: match request.shortage {
            Shortage::Pool => GRANULE_SHORTAGE_POOL,
            Shortage::Tenant => GRANULE_SHORTAGE_TENANT,
            Shortage::Guarantees => GRANULE_SHORTAGE_GUARANTEES,
            Shortage::Device => GRANULE_SHORTAGE_DEVICE,
        },
    }
}

/// Tells observer of soft limits of pools and tenants that are crossed, once for each crossing, with no lock held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_add_budget_observer(
    a: *mut granule_allocator,
    observer: Option<unsafe extern "C-unwind" fn(user: *mut c_void, event: *const granule_budget_event)>,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let observer = observer.ok_or_else(|| Failure::argument("observer is null"))?;
        let tenants = std::sync::Arc::clone(&a.tenants);
        let told = move |happened: &BudgetEvent| {
            let event = event(happened, &tenants);
            // SAFETY: what callers promise: the function is good for this `user`; the event lives during the call.
            call(|| unsafe { observer(user.get(), &raw const event) });
        };
        a.engine.hooks().on_budget(told);
        Ok(())
    })
}

/// Asks hook to make room, by freeing things or putting them to sleep, when a request would be refused otherwise. Hooks of a
/// lower priority are asked first. It returns how many bytes it made free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn granule_add_spill_hook(
    a: *mut granule_allocator,
    priority: i32,
    hook: Option<
        unsafe extern "C-unwind" fn(user: *mut c_void, request: *const granule_spill_request) -> u64,
    >,
    user: *mut c_void,
) -> granule_status {
    guard(|| {
        let (a, user) = (given!(handle a), User::forever(user));
        let hook = hook.ok_or_else(|| Failure::argument("hook is null"))?;
        let tenants = std::sync::Arc::clone(&a.tenants);
        let asked = move |request: &SpillRequest| {
            let request = spill(request, &tenants);
            // SAFETY: what callers promise: the function is good for this `user`; the request lives during the call.
            call(|| unsafe { hook(user.get(), &raw const request) })
        };
        a.engine.hooks().on_spill(priority, asked);
        Ok(())
    })
}
