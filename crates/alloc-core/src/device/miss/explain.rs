//! Report of a request that failed, with remedies. It reads holdings and settings after all remedies failed, so it
//! advises nothing that is on already or was just done.
//!
//! Early reuse is never among the remedies: all pending frees were waited for by then.

use crate::arena::ArenaState;
use crate::arena::directory::PoolSlot;
use crate::device::Device;
use crate::device::accounting::DeviceState;
use crate::device::accounting::accounts::Limit;
use crate::device::accounting::tenants::Tenant;
use crate::device::pools;
use crate::device::pools::Facts;
use crate::features::budget::Shortage;
use crate::lifetimes::call::Call;
use crate::memory::block::{Block, BlockId, BlockPhase, Tier};
use crate::memory::layout::Layout;
use crate::memory::segment::Origin;
use crate::policy::{Policy, Request};
use crate::process::callbacks::CallbackScope;
use crate::process::stream_identity::shown;
use crate::sync::{Arc, Guard};
use crate::types::{DevicePtr, PoolId, Stream};
use crate::watch::counters::Count;
use crate::watch::oom::{
    Blocker, Bound, HostRoom, OomReport, PoolCache, ProcessMemory, Remedy, TenantReport,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Bound where no limit sets one.
const THE_DEVICE: &str = "the device";

/// The one limit that has to be lowered to get more.
const HOST_RESERVE: &str = "host_reserve";

/// Blockers named in a report.
const BLOCKERS: usize = 5;

/// Room left on the device.
struct Headroom<'a> {
    device_free: u64,
    limits: &'a [Limit],
    /// Bytes that the request would take.
    wanted: u64,
}

impl Headroom<'_> {
    fn refuses(&self, limit: &Limit) -> bool {
        limit.held.saturating_add(self.wanted) > limit.bytes
    }

    fn refusing(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().filter(|limit| self.refuses(limit))
    }

    /// Bytes that could be taken now, and the limit that bounds them.
    fn bound(&self) -> (u64, &str) {
        let limits = self.limits.iter().map(|limit| (limit.bytes.saturating_sub(limit.held), &*limit.name));
        let device = (self.device_free, THE_DEVICE);
        limits.chain([device]).min_by_key(|(bytes, _)| *bytes).unwrap_or(device)
    }

    /// Bytes that could be taken once these bytes of pools had gone back.
    fn after(&self, given_back: &[(PoolId, u64)]) -> u64 {
        self.within(self.limits.iter(), given_back)
    }

    /// Bytes that could be taken without the limits that refuse.
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

/// Address space of growable segments, as far as it explains the failure.
struct AddressReserve {
    /// Reserve class of streams whose own amount counts.
    class: Option<String>,
    /// Bytes, where they are less than the request.
    too_small: Option<u64>,
}

/// Remedies, as they are found.
struct Remedies {
    found: Vec<Remedy>,
}

impl Remedies {
    /// Remedies of raising the limits that refuse.
    fn of_limits(room: &Headroom<'_>) -> Self {
        let mut remedies = Self { found: Vec::new() };
        let names = room.refusing().map(|limit| limit.name.as_str());
        let (lowered, raised): (Vec<_>, Vec<_>) = names.partition(|name| *name == HOST_RESERVE);
        let raised = (!raised.is_empty()).then(|| format!("raising {}", raised.join(" and ")));
        let lowered = lowered.first().map(|name| format!("lowering {name}"));
        let what: Vec<String> = raised.into_iter().chain(lowered).collect();
        let then = room.unlimited();
        let gained = then.saturating_sub(room.after(&[]));
        remedies.add(what.join(" and "), gained, then >= room.wanted);
        remedies
    }

    fn add(&mut self, what: impl Into<String>, bytes: u64, enough: bool) {
        if bytes > 0 {
            self.found.push(Remedy { what: what.into(), bytes, enough });
        }
    }

    /// Sorts remedies: first those that are enough, then by the bytes they give.
    fn in_order(mut self) -> Vec<Remedy> {
        self.found.sort_by_key(|remedy| (!remedy.enough, Reverse(remedy.bytes)));
        self.found
    }
}

/// Report on the tenant of a pool; `refuses` if its hard limit does.
fn tenant_report(tenant: &Tenant, refuses: bool) -> TenantReport {
    TenantReport { name: Arc::clone(tenant.name()), held: tenant.bytes(), marks: tenant.marks(), refuses }
}

/// Pools that hold free memory, the one with most first.
fn caches(arenas: &[Guard<'_, ArenaState>]) -> Vec<PoolCache> {
    let mut by_pool: BTreeMap<PoolId, PoolCache> = BTreeMap::new();
    for arena in arenas {
        let pool = arena.binding().pool().id;
        let cache = by_pool.entry(pool).or_insert(PoolCache { pool, free: 0, largest: 0, releasable: 0 });
        for (_, block) in arena.layout().blocks().iter().filter(|(_, block)| block.state == BlockPhase::Free)
        {
            cache.free += block.size;
            cache.largest = cache.largest.max(block.size);
            cache.releasable += releasable(arena.layout(), block);
        }
    }
    let mut pools: Vec<_> = by_pool.into_values().filter(|cache| cache.free > 0).collect();
    pools.sort_by_key(|cache| (Reverse(cache.free), cache.pool));
    pools
}

/// Bytes of a free block that can go back to the device by themselves: a whole segment, or whole granules.
fn releasable(layout: &Layout, block: &Block) -> u64 {
    let segment = &layout.segments()[block.segment];
    match segment.origin {
        Origin::Fixed if block.is_split() => 0,
        Origin::View => 0,
        Origin::Fixed => block.size,
        Origin::Growable { .. } => {
            let whole = segment.granules.within(block.addr..block.end());
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
        id.some().map(|id| &layout.blocks()[id]).filter(|b| b.state == BlockPhase::Free).map_or(0, |b| b.size)
    };
    let live = layout.blocks().iter().filter(|(_, b)| b.is_awake() && b.tier == tier);
    let mut found: Vec<_> = live
        .map(|(_, b)| Blocker { ptr: DevicePtr(b.addr), size: b.size, beside: free(b.prev) + free(b.next) })
        .filter(|b| b.beside > 0)
        .collect();
    found.sort_by_key(|b| (Reverse(b.beside), b.ptr));
    found.truncate(BLOCKERS);
    found
}

impl Device {
    /// Bytes that the request would take of what is limited.
    fn wanted(&self, missing: Option<u64>, request: &Request, capturing: bool, state: &DeviceState) -> u64 {
        // PyTorch's own limits count the request, all others what is taken.
        let counts = self.granule.is_some()
            || self.accounting.has_budgets()
            || state.accounts().device_limits().hard.is_some();
        let missing = missing.filter(|_| counts);
        // PyTorch counts the whole request until it has given memory back, which no capture allows.
        let whole = if capturing && self.granule.is_none() { request.segment_bytes } else { 0 };
        missing.unwrap_or(request.segment_bytes).max(whole)
    }

    /// OOM report for `request` on `stream` from the pool in `slot`. Calls the driver, and the program's source of
    /// figures about processes.
    pub(super) fn explain(
        &self,
        slot: PoolSlot,
        stream: Stream,
        request: &Request,
        call: &Call<'_>,
        calls: &CallbackScope<'_>,
    ) -> OomReport {
        let driver = &self.driver;
        let memory = driver.memory_info().inspect_err(|_| driver.backend().clear_error());
        let (device_free, device_total) = memory.map_or((0, driver.total_memory()), |m| (m.free, m.total));
        let host = driver.host_room();
        let processes = self.observers.process_memory(calls);
        let policy = self.arenas.directory().with_template(|template| template.policy.clone());
        let private = pools::facts(self);
        self.arenas.with_all(|_, arenas| {
            let own = arenas.iter_mut().find(|a| a.binding().serves(slot, stream)).map(|own| &mut **own);
            let missing_of = |own: &mut ArenaState| self.missing_for(own, request);
            let whole_of = |own: &mut ArenaState| self.most_in_one_piece(own, request.tier);
            let (missing, in_one_piece) = own.map(|own| (missing_of(own), whole_of(own))).unzip();
            let own = arenas.iter().find(|a| a.binding().serves(slot, stream)).map(|own| &**own);
            let pool = own.map_or(PoolId::DEFAULT, |own| own.binding().pool().id);
            let pools = caches(arenas);
            let state = self.accounting.lock();
            let mut limits = state.accounts().limits(Some(pool));
            if let Some(host) = host.filter(|host| host.reserve > 0) {
                let (name, held) = (HOST_RESERVE.to_owned(), state.accounts().whole().counted());
                let (bytes, shortage) = (held.saturating_add(host.spare()), Shortage::Device);
                limits.push(Limit { name, bytes, held, shortage, counts: None });
            }
            let wanted = self.wanted(missing, request, call.capturing, &state);
            let room = Headroom { device_free, limits: &limits, wanted };
            let (device, policy, private, pools, state) = (self, &policy, &private[..], &pools[..], &*state);
            let case = Case {
                device,
                policy,
                request,
                slot,
                stream,
                arenas,
                own,
                pool,
                pools,
                private,
                state,
                room,
                host,
            };
            case.report(call.capturing, device_total, in_one_piece.unwrap_or(0), missing, processes)
        })
    }
}

/// A refusal, and what is known at its moment, with all arenas and the device's accounts locked.
struct Case<'a> {
    device: &'a Device,
    policy: &'a Policy,
    request: &'a Request,
    /// Pool and stream of the request.
    slot: PoolSlot,
    stream: Stream,
    arenas: &'a [Guard<'a, ArenaState>],
    /// Arena of the request, where it exists, and its pool.
    own: Option<&'a ArenaState>,
    pool: PoolId,
    /// Free memory by pool, and the private pools.
    pools: &'a [PoolCache],
    private: &'a [Facts],
    state: &'a DeviceState,
    room: Headroom<'a>,
    host: Option<HostRoom>,
}

impl Case<'_> {
    /// The report. `missing` is what would have had to be taken from the device, if known.
    fn report(
        &self,
        capturing: bool,
        device_total: u64,
        in_one_piece: u64,
        missing: Option<u64>,
        processes: Vec<ProcessMemory>,
    ) -> OomReport {
        let (driver, accounts, request) = (&self.device.driver, self.state.accounts(), self.request);
        let [allocated, active] =
            [Count::AllocatedBytes, Count::ActiveBytes].map(|of| in_all(self.arenas, of));
        let refused = |shortage| self.room.refusing().find(|limit| limit.shortage == shortage);
        let tenant = accounts.tenant_of(self.pool);
        let reserve = self.reserve();
        let source_refused = reserve.too_small.is_none() && self.source_refused();
        OomReport {
            label: driver.backend().label(),
            backend: driver.backend().name(),
            device: driver.device(),
            stream: shown(self.stream),
            pool: self.pool,
            requested: request.requested,
            block_size: request.size,
            tried: request.segment_bytes,
            device_total,
            device_free: self.room.device_free,
            allowed: accounts.device_limits().allowed(),
            allocated,
            reserved: accounts.whole().reserved(),
            pinned: accounts.whole().pinned(),
            host: self.host,
            private_free: self.pools.iter().filter(|p| p.pool != PoolId::DEFAULT).map(|p| p.free).sum(),
            pending: active - allocated,
            processes,
            asleep: self.state.regions().asleep_bytes(),
            pool_limit: refused(Shortage::Pool).map(|limit| limit.bytes),
            tenant: tenant.map(|(_, tenant)| tenant_report(tenant, refused(Shortage::Tenant).is_some())),
            kept_for_others: refused(Shortage::Guarantees).map(|_| accounts.guarantees().kept_from(tenant)),
            source_refused,
            bound: self.bound(&reserve, source_refused, in_one_piece, missing),
            largest_fit: self.own.map_or(0, |own| own.layout().largest_free(request.tier)),
            largest_anywhere: largest_in_all(self.arenas, request.tier),
            blockers: self.own.map_or_else(Vec::new, |own| blockers(own.layout(), request.tier)),
            pools: self.pools.to_vec(),
            remedies: self.remedies(capturing),
            policy: self.device.arenas.directory().policy().name(),
            pytorch_release: driver.pytorch_release(),
            growable: self.policy.grows(),
            reserve_too_small: reserve.too_small,
            reserve_class: reserve.class,
        }
    }

    /// True if no limit refused, but the pool's own source.
    fn source_refused(&self) -> bool {
        let refuses = |facts: &Facts| facts.id == self.pool && facts.source_refused;
        self.room.refusing().next().is_none() && self.private.iter().any(refuses)
    }

    /// Reservation of the stream's growable segments.
    fn reserve(&self) -> AddressReserve {
        let (total, bytes) = (self.device.driver.total_memory(), self.request.segment_bytes);
        let of_class = self.state.class_reserve(self.stream, total);
        let reserve = of_class.unwrap_or_else(|| self.policy.reserve(total, u64::MAX));
        let (reserve, _) = self.policy.reservation(reserve, bytes);
        let matters = self.policy.grows() && bytes <= total;
        AddressReserve {
            class: of_class.and_then(|_| self.state.reserve_class(self.stream).cloned()),
            too_small: Some(reserve).filter(|reserve| matters && *reserve < bytes),
        }
    }

    /// Bound that the request failed on.
    fn bound(
        &self,
        reserve: &AddressReserve,
        source_refused: bool,
        in_one_piece: u64,
        missing: Option<u64>,
    ) -> Bound {
        let (available, set_by) = match reserve.too_small {
            Some(reserve) => (reserve, "the address space that a growable segment reserves"),
            None if source_refused => (0, "the pool's own source of memory"),
            None => self.room.bound(),
        };
        // Limits count as PyTorch does, the device in whole granules.
        let missing = missing.filter(|_| set_by == THE_DEVICE).unwrap_or(self.room.wanted);
        let free = self.own.map_or(0, |own| own.layout().free_sizes(self.request.tier).sum());
        let in_pieces = u64::saturating_sub(free, in_one_piece);
        Bound { in_one_piece, in_pieces, missing, available, set_by: set_by.to_owned() }
    }

    /// Remedies, those that are enough first.
    fn remedies(&self, capturing: bool) -> Vec<Remedy> {
        let mut remedies = Remedies::of_limits(&self.room);
        self.advise_on_pieces(&mut remedies);
        self.advise_on_pools(&mut remedies);
        if capturing {
            self.advise_after_capture(&mut remedies);
        }
        remedies.in_order()
    }

    /// Adds free memory that is in the wrong place.
    fn advise_on_pieces(&self, remedies: &mut Remedies) {
        let Request { tier, size, .. } = *self.request;
        let is_other = |a: &&Guard<'_, ArenaState>| {
            a.binding().slot() == self.slot && !a.binding().belongs_to(self.stream)
        };
        let others = || self.arenas.iter().filter(is_other);
        remedies.add(
            "using what other streams have cached, on their streams",
            others().flat_map(|a| a.layout().free_sizes(tier)).sum(),
            others().any(|a| a.layout().largest_free(tier) >= size),
        );
        let Some(own) = self.own else { return };
        let pieces: u64 = own.layout().free_sizes(tier).sum();
        let could_grow = self.device.driver.has_virtual_memory() && !own.binding().pool().fixed;
        if !own.binding().policy().grows() && could_grow && pieces > 0 {
            let joined = pieces + self.room.after(&[]);
            let what = "expandable_segments:True, which joins free pieces with what the device has free,";
            remedies.add(what, joined, joined >= size);
        }
    }

    /// Adds free memory of private pools.
    fn advise_on_pools(&self, remedies: &mut Remedies) {
        let Request { tier, size, .. } = *self.request;
        for facts in self.private.iter().filter(|facts| facts.in_use && facts.id != self.pool) {
            let serves = |a: &&Guard<'_, ArenaState>| {
                a.binding().pool().id == facts.id && a.binding().belongs_to(self.stream)
            };
            let arena = self.arenas.iter().find(serves);
            if let Some(arena) = arena.filter(|_| self.pool == PoolId::DEFAULT && !facts.opted_in) {
                let what =
                    format!("letting the default pool take what pool {} has free (set_use_on_oom)", facts.id);
                let layout = arena.layout();
                remedies.add(what, layout.free_sizes(tier).sum(), layout.largest_free(tier) >= size);
            }
            // Memory that goes back to a pool's own source is not the device's again.
            let releasable = self.pools.iter().find(|cache| cache.pool == facts.id && !facts.has_source);
            let bytes = releasable.map_or(0, |cache| cache.releasable);
            let what = format!(
                "dropping pool {} (its MemoryPool, or release_pool), whose cached memory can go then,",
                facts.id
            );
            remedies.add(what, bytes, self.room.after(&[(facts.id, bytes)]) >= self.room.wanted);
        }
    }

    /// Adds remedies that a miss may not use while the stream is captured.
    fn advise_after_capture(&self, remedies: &mut Remedies) {
        let Request { tier, size, .. } = *self.request;
        if let Some(own) = self.own {
            let waiting = |b: &&Block| b.state == BlockPhase::Pending && b.tier == tier;
            let sizes = || own.layout().blocks().iter().map(|(_, b)| b).filter(waiting).map(|b| b.size);
            let largest = sizes().max().unwrap_or(0);
            remedies.add("waiting for pending frees, after the capture,", sizes().sum(), largest >= size);
        }
        let goes = |cache: &&PoolCache| {
            let facts = self.private.iter().find(|facts| facts.id == cache.pool);
            facts.is_none_or(|facts| !facts.in_use && !facts.has_source)
        };
        let given: Vec<_> =
            self.pools.iter().filter(goes).map(|cache| (cache.pool, cache.releasable)).collect();
        let bytes = given.iter().map(|(_, bytes)| bytes).sum();
        let enough = self.room.after(&given) >= self.room.wanted;
        remedies.add("emptying the cache (empty_cache) before the capture", bytes, enough);
    }
}
