//! Miss: the remedies, in order, for a request that found no free block.

mod explain;
pub(super) mod reclaim;

use super::Device;
use super::pools::Flush;
use crate::arena::Binding;
use crate::arena::directory::{Arena, PoolSlot};
use crate::backend::ErrorKind;
use crate::config::{PolicyName, PytorchRelease};
use crate::device::{arenas, budget_events, frees, idle_segments, pools, recorder};
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::policy::Request;
use crate::process::attention::Reason;
use crate::sync::Attempt;
use crate::types::DevicePtr;
use crate::watch::snapshot::Action;

/// Retries of a miss, where pinned memory may have been cached since it was asked for.
const ROUNDS: usize = 8;

/// A request that found no free block.
#[derive(Clone, Copy)]
struct Miss<'a> {
    device: &'a Device,
    arena: &'a Arena,
    request: &'a Request,
    call: &'a Call<'a>,
    asks: Asks,
}

/// Parties asked for memory besides the device. The program's own code may ask for memory itself, so it is asked once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    ProgramAndPinned,
    Pinned,
    Nobody,
}

/// Serves the request, or leaves it to the next remedy.
type RemedyFn = fn(Miss<'_>) -> Result<Option<DevicePtr>>;

/// Remedies of PyTorch, in its order, and hooks, which it does not have.
const PYTORCH: [(&str, RemedyFn); 7] = [
    ("run free-memory callbacks", callbacks),
    ("give old segments back", old_segments),
    ("take memory from the device", grow),
    ("take what opted-in pools have cached", opted_in_pools),
    ("give oversize segments back", oversize_segments),
    ("empty the cache", everything_cached),
    ("ask spill hooks", spill_hooks),
];

/// Remedies of `granule`: those without a driver call come first.
const GRANULE: [(&str, RemedyFn); 9] = [
    ("drain finished frees", finished_frees),
    ("use free memory in another order", views),
    ("run free-memory callbacks", callbacks),
    ("give old segments back", old_segments),
    ("take memory from the device", grow),
    ("wait for pending frees", pending_frees),
    ("take what opted-in pools have cached", opted_in_pools),
    ("empty the cache", everything_cached),
    ("ask spill hooks", spill_hooks),
];

/// Serves a request that found no free block, or refuses it once no remedy is left.
#[cold]
pub(super) fn serve(device: &Device, arena: &Arena, request: &Request, call: &Call<'_>) -> Result<DevicePtr> {
    let miss = Miss { device, arena, request, call, asks: Asks::ProgramAndPinned };
    let served = device.driver.noticing(miss.serve());
    // Observers may wait for other threads: now there is nothing that these wait for.
    if let Err(AllocError::Rejected { requested, wanted, held, limit, .. }) = &served {
        device.observers.tell_rejected(*requested, *wanted, *held, *limit);
    }
    let calls = device.driver.calls();
    budget_events::tell_in(device, &calls);
    frees::arrived(device, served, &calls)
}

/// [`serve`] for a call that is not recorded.
#[cold]
pub(super) fn serve_plainly(device: &Device, arena: &Arena, request: &Request) -> Result<DevicePtr> {
    let call = device.driver.noticing(device.driver.plain_call())?;
    serve(device, arena, request, &call)
}

impl Miss<'_> {
    fn serve(mut self) -> Result<DevicePtr> {
        let Self { device, .. } = self;
        if let Some(granule) = &device.granule {
            granule.prepare(device, self.arena, self.request.tier, self.call);
        }
        for _ in 0..ROUNDS {
            let mark = device.slow_path.now();
            if let Some(ptr) = self.until_final()? {
                return Ok(ptr);
            }
            // Pinned memory is asked for in a first attempt only.
            let knows = device.driver.unified().is_none() || device.slow_path.only_mine_since(mark);
            if knows || device.slow_path.is_nested() {
                break;
            }
            self.asks = Asks::Pinned;
        }
        Err(out_of_memory(device, self.arena, self.request, self.call))
    }

    /// Tries all remedies until a refusal is final. After the first attempt other threads may wait for this one, and
    /// the program's code for them: then no code is asked, and destructors wait.
    fn until_final(self) -> Result<Option<DevicePtr>> {
        let mut ends = None;
        self.device.slow_path.until_final(|attempt| match attempt {
            Attempt::First => self.try_remedies(),
            Attempt::Search => {
                ends.get_or_insert_with(|| self.device.driver.callbacks().hold_back());
                self.search_or_take()
            }
            Attempt::Again => (Self { asks: Asks::Nobody, ..self }).try_remedies(),
        })
    }

    fn try_remedies(self) -> Result<Option<DevicePtr>> {
        let remedies: &[(&str, RemedyFn)] = match self.device.arenas.directory().policy() {
            PolicyName::Pytorch => &PYTORCH,
            PolicyName::Granule => &GRANULE,
        };
        for (name, remedy) in remedies {
            let served = remedy(self)?;
            tracing::trace!(name, served = served.is_some(), "remedy");
            if served.is_some() {
                return Ok(served);
            }
        }
        Ok(None)
    }

    /// Searches the free blocks again, without ageing them.
    fn search(self) -> Option<DevicePtr> {
        self.device.search(self.arena, self.request, false, self.call)
    }

    fn take_memory(self) -> Result<Option<DevicePtr>> {
        self.device.take_memory(self.arena, self.request, false, self.call)
    }

    fn search_or_take(self) -> Result<Option<DevicePtr>> {
        self.search().map_or_else(|| self.take_memory(), |ptr| Ok(Some(ptr)))
    }

    /// Ignores a refusal to wait for a captured stream: then this is no remedy, and no reason to refuse.
    fn unless_captured(self, outcome: Result<Option<DevicePtr>>) -> Result<Option<DevicePtr>> {
        match outcome {
            Err(AllocError::Backend(error)) if error.kind == ErrorKind::CaptureViolation => {
                tracing::debug!(%error, "a capture forbids some of it");
                Ok(self.search())
            }
            outcome => outcome,
        }
    }
}

/// Drains finished frees.
fn finished_frees(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    if miss.call.capturing {
        return Ok(None);
    }
    frees::drain(miss.device, miss.call)?;
    Ok(miss.search())
}

/// Shows free memory in one piece, by a view.
fn views(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    Ok(miss.device.search_in_pieces(miss.arena, miss.request, miss.call))
}

/// Runs the program's callbacks. PyTorch ages free blocks by the search after these only.
fn callbacks(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    let asked = miss.asks == Asks::ProgramAndPinned && miss.device.observers.ask_for_memory();
    Ok(if asked { miss.device.search(miss.arena, miss.request, true, miss.call) } else { None })
}

/// Gives old cached segments back, by age.
fn old_segments(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    let given_back = miss.device.collect_garbage(miss.call);
    miss.unless_captured(given_back.map(|some| if some { miss.search() } else { None }))
}

/// Takes memory from the device; above a soft limit, gives cached memory back first.
fn grow(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    let Miss { device, arena, request, call, .. } = miss;
    if !call.capturing && device.accounting.is_over_soft_limit(request) {
        // Releasing makes room under the soft limit; memory is taken beyond it all the same.
        if let Err(error) = device.release(Flush::Everything, call) {
            tracing::warn!(%error, "not all cached memory could be given back");
        }
        if let Some(ptr) = miss.search() {
            return Ok(Some(ptr));
        }
    }
    if device.trim_to_soft(arena, request, call)
        && let Some(ptr) = miss.search()
    {
        return Ok(Some(ptr));
    }
    grow_in_turn(miss)
}

/// Takes memory from the device, one thread at a time for each stream and pool. Memory that another has just taken may
/// serve this request, too, as if they had come one after the other.
fn grow_in_turn(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    let Miss { device, arena, request, call, .. } = miss;
    let (number, has_source) = {
        let state = arena.lock();
        (state.binding().number(), state.binding().pool().source.is_some())
    };
    // A pool's own source may itself wait for other threads.
    let _alone = if has_source { None } else { device.growing.begin_alone(&[number].into()).ok() };
    // Nobody else grew it: nothing new can be found, and PyTorch does not search again.
    if arena.lock().change_binding(Binding::is_grown_by_another)
        && let Some(ptr) = miss.search()
    {
        return Ok(Some(ptr));
    }
    if let Some(ptr) = idle_segments::replace(device, arena, request, call)? {
        return Ok(Some(ptr));
    }
    miss.take_memory()
}

/// Waits for all pending frees.
fn pending_frees(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    if miss.call.capturing {
        return Ok(None);
    }
    let waited = frees::synchronise(miss.device, None, miss.call);
    miss.unless_captured(waited.map(|()| miss.search()))
}

/// Searches the pools that serve the default pool in need (`use_on_oom`): their cached memory, never new memory.
fn opted_in_pools(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    let Miss { device, request, call, .. } = miss;
    let stream = {
        let state = miss.arena.lock();
        if state.binding().slot() != PoolSlot::DEFAULT {
            return Ok(None);
        }
        state.binding().stream()
    };
    for pool in pools::opted_in_pools(device) {
        // Released meanwhile: then it is emptied like any other.
        let Ok(visit) = pools::visit(device, pool, call.capturing) else { continue };
        let Some(arena) = device.arenas.directory().of_stream(visit.pool.slot, stream) else {
            continue;
        };
        arena.lock().change_binding(|binding| binding.note_pool(&visit.pool));
        if let Some(ptr) = device.search(arena, request, false, call) {
            return Ok(Some(ptr));
        }
    }
    Ok(None)
}

/// Gives back just enough cached oversize segments, then takes memory from the device.
fn oversize_segments(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    let given_back = miss.device.release_enough(miss.arena, miss.request, miss.call);
    miss.unless_captured(given_back.and_then(|enough| if enough { miss.take_memory() } else { Ok(None) }))
}

/// Gives all cached memory back, that of tenants above their marks first, then takes memory from the device: counted as
/// a retry.
fn everything_cached(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    let Miss { device, arena, request, call, asks } = miss;
    // PyTorch 2.11 gives nothing back for any request while a pool's scope is open, be it another thread's.
    if device.driver.pytorch_release() == PytorchRelease::V2_11
        && device.driver.attention().has(Reason::SCOPES)
    {
        return Ok(None);
    }
    miss.unless_captured(device.reclaim(arena, request, asks == Asks::Nobody, call))
}

/// Asks the program's spill hooks to make room.
fn spill_hooks(miss: Miss<'_>) -> Result<Option<DevicePtr>> {
    let Miss { device, arena, request, call, asks } = miss;
    if call.capturing || asks != Asks::ProgramAndPinned {
        return Ok(None);
    }
    miss.unless_captured(device.spill(arena, request, call))
}

fn out_of_memory(device: &Device, arena: &Arena, request: &Request, call: &Call<'_>) -> AllocError {
    let (slot, pool, stream) = {
        let state = arena.lock();
        (state.binding().slot(), state.binding().pool().id, state.binding().stream())
    };
    let calls = device.driver.calls();
    let report = device.explain(slot, stream, request, call, &calls);
    {
        let mut state = arenas::attend(device, arena, call);
        state.ledger().history().refused(request.requested);
        state.ledger_mut().history_mut().record(Action::Oom, report.device_free, request.size);
    }
    device.accounting.lock().counters_mut().ooms += 1;
    device.accounting.note_refusal(pool);
    recorder::deliver(device, &calls);
    device.observers.tell_out_of_memory(&report, &calls);
    AllocError::OutOfMemory(Box::new(report))
}
