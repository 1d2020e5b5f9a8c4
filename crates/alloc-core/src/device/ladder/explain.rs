//! Why a request could not be served, and what would help: worked out from what is held and how things are set when the
//! ladder has been climbed in vain, so that nothing is advised that is on already or was just done.
//!
//! Early reuse is never among the remedies: the ladder has waited for all pending frees by then.

use crate::arena::ArenaState;
use crate::arena::directory::PoolSlot;
use crate::device::Base;
use crate::device::holdings::DeviceState;
use crate::device::holdings::accounts::Limit;
use crate::device::holdings::tenants::Tenant;
use crate::device::pools::Facts;
use crate::device::provider::Provider;
use crate::features::budget::Shortage;
use crate::lifetimes::call::Call;
use crate::memory::block::{Block, BlockId, State, Tier};
use crate::memory::layout::Layout;
use crate::memory::segment::Origin;
use crate::policy::{Chosen, Ground, Request};
use crate::process::foreign::Calls;
use crate::process::stream_identity::shown;
use crate::sync::{Arc, Guard};
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::counters::Count;
use crate::watch::oom::{Blocker, Bound, OomReport, PoolCache, Remedy, TenantReport};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What knows why nothing helped.
pub(super) struct Explainer {
    base: Base,
    provider: Arc<Provider>,
}

/// What sets a bound where no limit does.
const THE_DEVICE: &str = "the device";

/// Blockers named in a report.
const BLOCKERS: usize = 5;

/// What may still be taken from the device.
struct Room<'a> {
    device_free: u64,
    limits: &'a [Limit],
    /// What the request would take.
    wanted: u64,
}

impl Room<'_> {
    fn refuses(&self, limit: &Limit) -> bool {
        limit.held.saturating_add(self.wanted) > limit.bytes
    }

    fn refusing(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| self.refuses(limit))
    }

    /// Bytes that could be taken now, and what bounds them.
    fn bound(&self) -> (u64, &str) {
        let limits = self.limits.iter().map(|limit| (limit.bytes.saturating_sub(limit.held), &*limit.name));
        let device = (self.device_free, THE_DEVICE);
        limits.chain([device]).min_by_key(|(bytes, _)| *bytes).unwrap_or(device)
    }

    /// Bytes that could be taken once these bytes of pools had gone back.
    fn after(&self, given_back: &[(PoolId, u64)]) -> u64 {
        self.within(self.limits.iter(), given_back)
    }

    /// Bytes that could be taken if the limits that refuse were none.
    fn unlimited(&self) -> u64 {
        self.within(self.limits.iter().filter(|limit| !self.refuses(limit)), &[])
    }

    fn within<'a>(&self, limits: impl Iterator<Item = &'a Limit>, given_back: &[(PoolId, u64)]) -> u64 {
        let below = |limit: &Limit| {
            let counts = |pool: &PoolId| limit.counts.as_ref().is_none_or(|pools| pools.contains(pool));
            let returned: u64 =
                given_back.iter().filter(|(pool, _)| counts(pool)).map(|(_, bytes)| bytes).sum();
            limit.bytes.saturating_sub(limit.held.saturating_sub(returned))
        };
        let all: u64 = given_back.iter().map(|(_, bytes)| bytes).sum();
        limits.map(below).chain([self.device_free.saturating_add(all)]).min().unwrap_or(0)
    }
}

/// Addresses for growable segments, as far as they explain something.
struct Reserve {
    /// The class of streams whose own amount counts.
    class: Option<String>,
    /// The amount, in bytes, where it is less than the request.
    too_small: Option<u64>,
}

/// What would help, as it is found out.
struct Remedies {
    found: Vec<Remedy>,
}

impl Remedies {
    /// Raising the limits that refuse.
    fn of_limits(room: &Room<'_>) -> Self {
        let mut remedies = Self { found: Vec::new() };
        let refusing: Vec<&str> = room.refusing().map(|limit| limit.name.as_str()).collect();
        let then = room.unlimited();
        let gained = then.saturating_sub(room.after(&[]));
        remedies.add(format!("raising {}", refusing.join(" and ")), gained, then >= room.wanted);
        remedies
    }

    fn add(&mut self, what: impl Into<String>, bytes: u64, enough: bool) {
        if bytes > 0 {
            self.found.push(Remedy { what: what.into(), bytes, enough });
        }
    }

    /// What is enough first, then by how much it gives.
    fn in_order(mut self) -> Vec<Remedy> {
        self.found.sort_by_key(|remedy| (!remedy.enough, Reverse(remedy.bytes)));
        self.found
    }
}

/// The tenant of a pool, and whether its hard limit refuses the request.
fn tenant_report(tenant: &Tenant, refuses: bool) -> TenantReport {
    TenantReport { name: Arc::clone(tenant.name()), held: tenant.bytes(), marks: tenant.marks(), refuses }
}

/// What private pools have free.
#[allow(clippy::too_many_arguments)] // each is one fact about the moment
fn advise_on_pools(
    remedies: &mut Remedies,
    arenas: &[Guard<'_, ArenaState>],
    private: &[Facts],
    pools: &[PoolCache],
    own: PoolId,
    stream: Stream,
    request: &Request,
    room: &Room<'_>,
) {
    for facts in private.iter().filter(|facts| facts.in_use && facts.id != own) {
        let arena = arenas.iter().find(|a| a.tenure().pool().id == facts.id && a.tenure().belongs_to(stream));
        if let Some(arena) = arena.filter(|_| own == PoolId::DEFAULT && !facts.opted_in) {
            let what =
                format!("letting the default pool take what pool {} has free (set_use_on_oom)", facts.id);
            remedies.add(
                what,
                arena.layout().free_sizes(request.tier).sum(),
                arena.layout().largest_free(request.tier) >= request.size,
            );
        }
        // What goes back to a pool's own source is not the device's again.
        let releasable = pools.iter().find(|cache| cache.pool == facts.id && !facts.has_source);
        let bytes = releasable.map_or(0, |cache| cache.releasable);
        let what = format!(
            "dropping pool {} (its MemoryPool, or release_pool), whose cached memory can go then,",
            facts.id
        );
        remedies.add(what, bytes, room.after(&[(facts.id, bytes)]) >= room.wanted);
    }
}

/// What the ladder may not do while the stream is captured.
fn advise_after_capture(
    remedies: &mut Remedies,
    own: Option<&Guard<'_, ArenaState>>,
    private: &[Facts],
    pools: &[PoolCache],
    request: &Request,
    room: &Room<'_>,
) {
    if let Some(arena) = own {
        let waiting = |b: &&Block| b.state == State::Pending && b.tier == request.tier;
        let sizes = || arena.layout().blocks().iter().map(|(_, b)| b).filter(waiting).map(|b| b.size);
        let largest = sizes().max().unwrap_or(0);
        remedies.add("waiting for pending frees, after the capture,", sizes().sum(), largest >= request.size);
    }
    let goes = |cache: &&PoolCache| {
        let facts = private.iter().find(|facts| facts.id == cache.pool);
        facts.is_none_or(|facts| !facts.in_use && !facts.has_source)
    };
    let given: Vec<_> = pools.iter().filter(goes).map(|cache| (cache.pool, cache.releasable)).collect();
    let bytes = given.iter().map(|(_, bytes)| bytes).sum();
    let enough = room.after(&given) >= room.wanted;
    remedies.add("emptying the cache (empty_cache) before the capture", bytes, enough);
}

/// Pools that hold free memory, the one with most first.
fn caches(arenas: &[Guard<'_, ArenaState>]) -> Vec<PoolCache> {
    let mut by_pool: BTreeMap<PoolId, PoolCache> = BTreeMap::new();
    for arena in arenas {
        let pool = arena.tenure().pool().id;
        let cache = by_pool.entry(pool).or_insert(PoolCache { pool, free: 0, largest: 0, releasable: 0 });
        for (_, block) in arena.layout().blocks().iter().filter(|(_, block)| block.state == State::Free) {
            cache.free += block.size;
            cache.largest = cache.largest.max(block.size);
            cache.releasable += releasable(arena.layout(), block);
        }
    }
    let mut pools: Vec<_> = by_pool.into_values().filter(|cache| cache.free > 0).collect();
    pools.sort_by_key(|cache| (Reverse(cache.free), cache.pool));
    pools
}

/// What of a free block can go back to the device by itself: a whole segment, or whole granules.
fn releasable(layout: &Layout, block: &Block) -> u64 {
    let segment = &layout.segments()[block.segment];
    match segment.origin {
        Origin::Fixed if block.is_split() => 0,
        Origin::View => 0,
        Origin::Fixed => block.size,
        Origin::Growable { granule, .. } => {
            let whole = segment.within(granule, block.addr..block.end());
            whole.end - whole.start
        }
    }
}

fn in_all(arenas: &[Guard<'_, ArenaState>], count: Count) -> u64 {
    arenas.iter().map(|arena| arena.ledger().counters().both(count).unsigned_abs()).sum()
}

fn largest_in_all(arenas: &[Guard<'_, ArenaState>], tier: Tier) -> u64 {
    arenas.iter().map(|arena| arena.layout().largest_free(tier)).max().unwrap_or(0)
}

/// Live blocks of a tier with free memory next to them, worst first.
fn blockers(layout: &Layout, tier: Tier) -> Vec<Blocker> {
    let free = |id: BlockId| {
        id.some().map(|id| &layout.blocks()[id]).filter(|b| b.state == State::Free).map_or(0, |b| b.size)
    };
    let live = layout.blocks().iter().filter(|(_, b)| b.state.is_awake() && b.tier == tier);
    let mut found: Vec<_> = live
        .map(|(_, b)| Blocker { ptr: DevicePtr(b.addr), size: b.size, beside: free(b.prev) + free(b.next) })
        .filter(|b| b.beside > 0)
        .collect();
    found.sort_by_key(|b| (Reverse(b.beside), b.ptr));
    found.truncate(BLOCKERS);
    found
}

impl Explainer {
    pub(super) fn new(base: &Base, provider: &Arc<Provider>) -> Self {
        Self { base: base.clone(), provider: Arc::clone(provider) }
    }

    /// Why `request` cannot be served on `stream` from the pool in `slot`. Calls the driver, and the program's source of
    /// figures about processes.
    pub(super) fn explain(
        &self,
        slot: PoolSlot,
        stream: Stream,
        request: &Request,
        call: &Call<'_>,
        calls: &Calls<'_>,
    ) -> OomReport {
        let (site, provider) = (&self.base.site, &self.provider);
        let memory = site.backend().memory_info(site.device()).inspect_err(|_| site.backend().clear_error());
        let (device_free, device_total) = memory.map_or((0, site.total_memory()), |m| (m.free, m.total));
        let processes = self.base.observers.process_memory(calls);
        let directory = self.base.arenas.directory();
        let policy = directory.with_template(|template| template.policy.clone());
        let private = self.base.pools.facts();
        self.base.arenas.with_all(|_, arenas| {
            let own = arenas.iter().find(|a| a.tenure().serves(slot, stream));
            let [allocated, active] =
                [Count::AllocatedBytes, Count::ActiveBytes].map(|of| in_all(arenas, of));
            let pool = own.map_or(PoolId::DEFAULT, |a| a.tenure().pool().id);
            let pools = caches(arenas);
            let state = self.base.holdings.lock();
            let accounts = state.accounts();
            let limits = accounts.limits(pool);
            let missing = own.map(|own| provider.missing_for(own, request));
            let wanted = self.wanted(own, missing, request, &state);
            let room = Room { device_free, limits: &limits, wanted };
            let refused = |shortage| room.refusing().find(|limit| limit.shortage == shortage);
            let reserve = self.reserve(&policy, stream, request, &state);
            let mut remedies = Remedies::of_limits(&room);
            self.advise_on_pieces(&mut remedies, arenas, (slot, stream), request, &room);
            advise_on_pools(&mut remedies, arenas, &private, &pools, pool, stream, request, &room);
            if call.capturing {
                advise_after_capture(&mut remedies, own, &private, &pools, request, &room);
            }
            let asked_source = room.refusing().next().is_none() && reserve.too_small.is_none();
            let refuses = |facts: &Facts| facts.id == pool && facts.source_refused;
            let source_refused = asked_source && private.iter().any(refuses);
            let (available, set_by) = match reserve.too_small {
                Some(reserve) => (reserve, "the address space that a growable segment reserves"),
                None if source_refused => (0, "the pool's own source of memory"),
                None => room.bound(),
            };
            let in_one_piece = own.map_or(0, |own| provider.most_in_one_piece(own, request.tier));
            let free = own.map_or(0, |own| own.layout().free_sizes(request.tier).sum());
            let (in_pieces, tenant) = (u64::saturating_sub(free, in_one_piece), accounts.tenant_of(pool));
            // Limits count as PyTorch does, the device in whole granules.
            let missing = missing.filter(|_| set_by == THE_DEVICE).unwrap_or(wanted);
            OomReport {
                label: site.backend().label(),
                backend: site.backend().name(),
                device: site.device(),
                stream: shown(stream),
                pool,
                requested: request.requested,
                block_size: request.size,
                tried: request.segment_bytes,
                device_total,
                device_free,
                allowed: accounts.ceilings().allowed(),
                allocated,
                reserved: accounts.reserved(),
                private_free: pools.iter().filter(|p| p.pool != PoolId::DEFAULT).map(|p| p.free).sum(),
                pending: active - allocated,
                processes,
                asleep: state.regions().asleep_bytes(),
                pool_limit: refused(Shortage::Pool).map(|limit| limit.bytes),
                tenant: tenant.map(|(_, tenant)| tenant_report(tenant, refused(Shortage::Tenant).is_some())),
                kept_for_others: refused(Shortage::Guarantees)
                    .map(|_| accounts.guarantees().kept_from(tenant)),
                source_refused,
                bound: Bound { in_one_piece, in_pieces, missing, available, set_by: set_by.to_owned() },
                largest_fit: own.map_or(0, |a| a.layout().largest_free(request.tier)),
                largest_anywhere: largest_in_all(arenas, request.tier),
                blockers: own.map_or_else(Vec::new, |a| blockers(a.layout(), request.tier)),
                pools,
                remedies: remedies.in_order(),
                policy: directory.traits().name,
                growable: policy.grows(),
                reserve_too_small: reserve.too_small,
                reserve_class: reserve.class,
            }
        })
    }

    /// Bytes that the request would take of what is limited.
    fn wanted(
        &self,
        own: Option<&Guard<'_, ArenaState>>,
        missing: Option<u64>,
        request: &Request,
        state: &DeviceState,
    ) -> u64 {
        // Budgets and `memory_limit` count what is really missing.
        let counts = self.base.holdings.has_budgets() || state.accounts().ceilings().hard.is_some();
        let grown = own.filter(|own| counts && own.tenure().grows());
        let grown = grown.and_then(|own| own.heap().missing_memory(request.tier, request.size, 0));
        let wanted = if self.base.supply.counts_what_is_missing() { missing } else { grown };
        wanted.unwrap_or(request.segment_bytes)
    }

    /// What a growable segment of the stream reserves.
    fn reserve(&self, policy: &Chosen, stream: Stream, request: &Request, state: &DeviceState) -> Reserve {
        let total = self.base.site.total_memory();
        let of_class = state.class_reserve(stream, total);
        let reserve = of_class.unwrap_or_else(|| policy.reserve(total, u64::MAX));
        let reserve = self.base.supply.reservation(reserve, request.segment_bytes).0;
        let matters = policy.grows() && request.segment_bytes <= total;
        Reserve {
            class: of_class.and_then(|_| state.reserve_class(stream).cloned()),
            too_small: Some(reserve).filter(|reserve| matters && *reserve < request.segment_bytes),
        }
    }

    /// Free memory that is there, in the wrong place.
    fn advise_on_pieces(
        &self,
        remedies: &mut Remedies,
        arenas: &[Guard<'_, ArenaState>],
        (slot, stream): (PoolSlot, Stream),
        request: &Request,
        room: &Room<'_>,
    ) {
        let others = || arenas.iter().filter(|a| a.tenure().slot() == slot && !a.tenure().belongs_to(stream));
        remedies.add(
            "using what other streams have cached, on their streams",
            others().flat_map(|a| a.layout().free_sizes(request.tier)).sum(),
            others().any(|a| a.layout().largest_free(request.tier) >= request.size),
        );
        let Some(own) = arenas.iter().find(|a| a.tenure().serves(slot, stream)) else { return };
        let pieces: u64 = own.layout().free_sizes(request.tier).sum();
        if !own.tenure().policy().grows()
            && self.base.site.has_virtual_memory()
            && !own.tenure().pool().fixed
            && pieces > 0
        {
            let joined = pieces + room.after(&[]);
            remedies.add(
                "expandable_segments:True, which joins free pieces with what the device has free,",
                joined,
                joined >= request.size,
            );
        }
    }
}
