//! Why a request could not be served, and what would help: worked out from what is held and how things are set when the
//! ladder has been climbed in vain, so that nothing is advised that is on already or was just done.
//!
//! Early reuse is never among the remedies: the ladder has waited for all pending frees by then.

use crate::arena::ArenaState;
use crate::arena::directory::PoolSlot;
use crate::device::Base;
use crate::device::arenas::Arenas;
use crate::device::holdings::Holdings;
use crate::device::holdings::accounts::{Accounts, Limit};
use crate::device::pools::{Facts, PrivatePools};
use crate::device::provider::{Provider, free_of, largest};
use crate::device::site::Site;
use crate::features::budget::Shortage;
use crate::lifetimes::call::Call;
use crate::memory::block::{Block, BlockId, State, Tier};
use crate::memory::segment::Origin;
use crate::policy::{Request, Supply};
use crate::process::foreign::Calls;
use crate::process::stream_identity::shown;
use crate::sync::{Arc, Guard};
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::counters::Count;
use crate::watch::observers::Observers;
use crate::watch::oom::{Blocker, Bound, OomReport, PoolCache, Remedy, TenantReport};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What knows why nothing helped.
pub(super) struct Explainer {
    site: Site,
    holdings: Arc<Holdings>,
    arenas: Arc<Arenas>,
    pools: Arc<PrivatePools>,
    provider: Arc<Provider>,
    observers: Arc<Observers>,
    supply: Arc<Supply>,
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

/// What would help, as it is found out.
struct Remedies {
    found: Vec<Remedy>,
}

impl Remedies {
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
fn tenant_report(accounts: &Accounts, pool: PoolId, refuses: bool) -> Option<TenantReport> {
    let (_, tenant) = accounts.tenant_of(pool)?;
    Some(TenantReport { name: Arc::clone(&tenant.name), held: tenant.bytes(), marks: tenant.marks, refuses })
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
        let arena = arenas.iter().find(|a| a.pool.id == facts.id && a.belongs_to(stream));
        if let Some(arena) = arena.filter(|_| own == PoolId::DEFAULT && !facts.opted_in) {
            let what =
                format!("letting the default pool take what pool {} has free (set_use_on_oom)", facts.id);
            remedies.add(what, free_bytes(arena, request.tier), largest(arena, request.tier) >= request.size);
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
        let sizes = || arena.blocks.iter().map(|(_, b)| b).filter(waiting).map(|b| b.size);
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
        let pool = arena.pool.id;
        let cache = by_pool.entry(pool).or_insert(PoolCache { pool, free: 0, largest: 0, releasable: 0 });
        for (_, block) in arena.blocks.iter().filter(|(_, block)| block.state == State::Free) {
            cache.free += block.size;
            cache.largest = cache.largest.max(block.size);
            cache.releasable += releasable(arena, block);
        }
    }
    let mut pools: Vec<_> = by_pool.into_values().filter(|cache| cache.free > 0).collect();
    pools.sort_by_key(|cache| (Reverse(cache.free), cache.pool));
    pools
}

/// What of a free block can go back to the device by itself: a whole segment, or whole granules.
fn releasable(arena: &ArenaState, block: &Block) -> u64 {
    let segment = &arena.segments[block.segment];
    match segment.origin {
        Origin::Fixed if block.is_split() => 0,
        Origin::View => 0,
        Origin::Fixed => block.size,
        Origin::Growable { granule, .. } => {
            let low = (block.addr - segment.base).next_multiple_of(granule);
            let high = (block.end() - segment.base) / granule * granule;
            high.saturating_sub(low)
        }
    }
}

fn free_bytes(arena: &ArenaState, tier: Tier) -> u64 {
    free_of(arena, tier).sum()
}

/// Live blocks of a tier with free memory next to them, worst first.
fn blockers(arena: &ArenaState, tier: Tier) -> Vec<Blocker> {
    let free = |id: BlockId| {
        id.some().map(|id| &arena.blocks[id]).filter(|b| b.state == State::Free).map_or(0, |b| b.size)
    };
    let live = arena.blocks.iter().filter(|(_, b)| b.state.is_awake() && b.tier == tier);
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
        Self {
            site: base.site.clone(),
            holdings: Arc::clone(&base.holdings),
            arenas: Arc::clone(&base.arenas),
            pools: Arc::clone(&base.pools),
            provider: Arc::clone(provider),
            observers: Arc::clone(&base.observers),
            supply: Arc::clone(&base.supply),
        }
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
        let memory = self.site.backend().memory_info(self.site.device());
        if memory.is_err() {
            self.site.backend().clear_error();
        }
        let (device_free, device_total) = memory.map_or((0, self.site.total_memory()), |m| (m.free, m.total));
        let processes = self.observers.process_memory(calls);
        let policy = self.arenas.directory().with_template(|template| template.policy.clone());
        let (traits, exact) = (self.arenas.directory().traits(), self.supply.counts_what_is_missing());
        let private = self.pools.facts();
        self.arenas.with_all(|_, arenas| {
            let own = arenas.iter().find(|a| a.serves(slot, stream));
            let bytes =
                |count: Count| -> u64 { arenas.iter().map(|a| a.counters.both(count).unsigned_abs()).sum() };
            let (allocated, active) = (bytes(Count::AllocatedBytes), bytes(Count::ActiveBytes));
            let pool = own.map_or(PoolId::DEFAULT, |a| a.pool.id);
            let pools = caches(arenas);
            let state = self.holdings.lock();
            let limits = state.accounts.limits(pool);
            let in_one_piece = own.map_or(0, |own| self.provider.most_in_one_piece(own, request.tier));
            let in_pieces = own.map_or(0, |own| free_bytes(own, request.tier)).saturating_sub(in_one_piece);
            // Budgets and `memory_limit` count what is really missing.
            let counts = self.holdings.has_budgets() || state.accounts.hard.is_some();
            let missing = own.map(|own| self.provider.missing_for(own, request));
            let grown = own.filter(|own| counts && own.grows());
            let grown = grown.and_then(|own| own.missing_memory(request.tier, request.size, 0));
            let wanted = if exact { missing } else { grown }.unwrap_or(request.segment_bytes);
            let room = Room { device_free, limits: &limits, wanted };
            let refused = |shortage| room.refusing().find(|limit| limit.shortage == shortage);
            let pool_limit = refused(Shortage::Pool);
            let kept_for_others = refused(Shortage::Guarantees).map(|_| state.accounts.kept_for_others(pool));
            let tenant = tenant_report(&state.accounts, pool, refused(Shortage::Tenant).is_some());
            let reserve_class = state.reserve_class(stream).cloned();
            let class_reserve = state.class_reserve(stream, self.site.total_memory());
            let reserve = class_reserve.unwrap_or_else(|| policy.reserve(self.site.total_memory(), u64::MAX));
            let reserve = self.supply.reservation(reserve, request.segment_bytes).0;
            let reserve_too_small = (policy.grows() && request.segment_bytes <= self.site.total_memory())
                .then_some(reserve)
                .filter(|reserve| *reserve < request.segment_bytes);
            let mut remedies = Remedies { found: Vec::new() };
            let refusing: Vec<&str> = room.refusing().map(|limit| limit.name.as_str()).collect();
            let then = room.unlimited();
            remedies.add(
                format!("raising {}", refusing.join(" and ")),
                then.saturating_sub(room.after(&[])),
                then >= wanted,
            );
            self.advise_on_pieces(&mut remedies, arenas, (slot, stream), request, &room);
            advise_on_pools(&mut remedies, arenas, &private, &pools, pool, stream, request, &room);
            if call.capturing {
                advise_after_capture(&mut remedies, own, &private, &pools, request, &room);
            }
            let asked_source = refusing.is_empty() && reserve_too_small.is_none();
            let source_refused = private.iter().any(|facts| facts.id == pool && facts.source_refused);
            let source_refused = source_refused && asked_source;
            let (available, set_by) = match reserve_too_small {
                Some(reserve) => (reserve, "the address space that a growable segment reserves"),
                None if source_refused => (0, "the pool's own source of memory"),
                None => room.bound(),
            };
            // Limits count as PyTorch does, the device in whole granules.
            let missing = missing.filter(|_| set_by == THE_DEVICE).unwrap_or(wanted);
            let set_by = set_by.to_owned();
            OomReport {
                label: self.site.backend().label(),
                backend: self.site.backend().name(),
                device: self.site.device(),
                stream: shown(stream),
                pool,
                requested: request.requested,
                block_size: request.size,
                tried: request.segment_bytes,
                device_total,
                device_free,
                allowed: state.accounts.allowed(),
                allocated,
                reserved: state.accounts.reserved(),
                private_free: pools.iter().filter(|p| p.pool != PoolId::DEFAULT).map(|p| p.free).sum(),
                pending: active - allocated,
                processes,
                asleep: state.regions.asleep_bytes(),
                pool_limit: pool_limit.map(|limit| limit.bytes),
                tenant,
                kept_for_others,
                source_refused,
                bound: Bound { in_one_piece, in_pieces, missing, available, set_by },
                largest_fit: own.map_or(0, |a| largest(a, request.tier)),
                largest_anywhere: arenas.iter().map(|a| largest(a, request.tier)).max().unwrap_or(0),
                blockers: own.map_or_else(Vec::new, |a| blockers(a, request.tier)),
                pools,
                remedies: remedies.in_order(),
                policy: traits.name,
                growable: policy.grows(),
                reserve_too_small,
                reserve_class: reserve_class.filter(|_| class_reserve.is_some()),
            }
        })
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
        let others = || arenas.iter().filter(|a| a.pool.slot == slot && !a.belongs_to(stream));
        remedies.add(
            "using what other streams have cached, on their streams",
            others().map(|a| free_bytes(a, request.tier)).sum(),
            others().any(|a| largest(a, request.tier) >= request.size),
        );
        let Some(own) = arenas.iter().find(|a| a.serves(slot, stream)) else { return };
        let pieces = free_bytes(own, request.tier);
        if !own.policy.grows() && self.site.has_virtual_memory() && !own.pool.fixed && pieces > 0 {
            let joined = pieces + room.after(&[]);
            remedies.add(
                "expandable_segments:True, which joins free pieces with what the device has free,",
                joined,
                joined >= request.size,
            );
        }
    }
}
