//! Memory of other streams that a stream may have before the device's, and what it waits for on the device.
//!
//! A wait costs nothing where what is waited for is over, so the oldest memory comes first, and memory that is younger than settings
//! say is not waited for at all. How old it is, is counted in requests and frees. Between two misses nobody is told what a stream
//! does. So misses *mark* the streams concerned: an event is recorded there, and what was freed before it can be waited for without
//! waiting for what came later.
//!
//! The program did not ask for such an order, and can hang of it. So each stream can be told what it may wait for, and what others
//! may wait for of it.

use super::{Lifetimes, Named};
use crate::arena::ArenaState;
use crate::arena::directory::Arena;
use crate::backend::Readiness;
use crate::config::{CrossStream, PolicyName, Settings};
use crate::device::arenas::Arenas;
use crate::device::holdings::Holdings;
use crate::device::site::Site;
use crate::lifetimes::call::Call;
use crate::lifetimes::marks::{Mark, Marks};
use crate::lifetimes::pending::{Await, Waiting};
use crate::lifetimes::uses::User;
use crate::memory::block::{Block, BlockPhase};
use crate::policy::Request;
use crate::policy::engine::Spare;
use crate::process::held_event::HeldEvent;
use crate::sync::{Arc, Mutex, Rank, assert_unlocked};
use crate::types::{DevicePtr, Stream};
use rustc_hash::FxHashMap;

/// What streams of a device take of each other.
pub(crate) struct StreamWaits {
    site: Site,
    holdings: Arc<Holdings>,
    arenas: Arc<Arenas>,
    lifetimes: Arc<Lifetimes>,
    /// What streams were told, where they were.
    told: Mutex<FxHashMap<Stream, CrossStream>>,
    /// By the arena's number.
    marks: Mutex<FxHashMap<u16, Marks>>,
}

/// What became of a search among blocks that wait.
pub(in crate::device) enum Reused {
    Served(DevicePtr),
    Freed,
    Nothing,
}

/// A stream that is named to the driver, and where it is.
struct Place<'a> {
    arena: u16,
    stream: Stream,
    _named: Named<'a>,
}

impl StreamWaits {
    pub(in crate::device) fn new(
        site: &Site,
        holdings: &Arc<Holdings>,
        arenas: &Arc<Arenas>,
        lifetimes: &Arc<Lifetimes>,
    ) -> Self {
        Self {
            site: site.clone(),
            holdings: Arc::clone(holdings),
            arenas: Arc::clone(arenas),
            lifetimes: Arc::clone(lifetimes),
            told: Mutex::new(Rank::Pending, FxHashMap::default()),
            marks: Mutex::new(Rank::Pending, FxHashMap::default()),
        }
    }

    /// See [`CachingAllocator::set_cross_stream`](crate::CachingAllocator::set_cross_stream).
    pub(crate) fn tell(&self, stream: Stream, how: Option<CrossStream>) {
        if how == Some(CrossStream::Wait) {
            self.lifetimes.keep_ages();
        }
        let mut told = self.told.lock();
        match how {
            Some(how) => told.insert(stream, how),
            None => told.remove(&stream),
        };
    }

    /// What `to` may take of `from`'s: what settings say, unless one of them was told otherwise; if both were, what is more careful.
    fn between(&self, from: Option<Stream>, to: Stream, settings: CrossStream) -> CrossStream {
        let told = self.told.lock();
        let found = [from, Some(to)].map(|stream| stream.and_then(|stream| told.get(&stream).copied()));
        match found {
            [Some(from), Some(to)] => from.more_careful(to),
            [from, to] => from.or(to).unwrap_or(settings),
        }
    }

    fn settings<R>(&self, read: impl FnOnce(&Settings) -> R) -> R {
        read(self.holdings.lock().settings())
    }

    /// The stream of an arena that is locked; `None` where it is retired.
    fn place<'a>(&'a self, state: &ArenaState) -> Option<Place<'a>> {
        let tenure = state.tenure();
        tenure.retired().is_none().then(|| Place {
            arena: tenure.number(),
            stream: tenure.stream(),
            _named: self.lifetimes.name_stream(tenure.stream()),
        })
    }

    fn place_of(&self, arena: &Arena) -> Option<Place<'_>> {
        self.place(&arena.lock())
    }

    /// What of an arena's free memory another one may have: all up to now, where the device is done with it, or what is old enough
    /// for that one's stream to [wait](Self::let_follow) for. Does not block.
    pub(in crate::device) fn spare(&self, from: &Arena, to: &Arena) -> Option<Spare> {
        let (general, min_age) =
            self.settings(|settings| (settings.cross_stream, settings.cross_stream_min_age));
        let receiver = to.lock().tenure().stream();
        let (place, newest) = {
            let mut state = from.lock();
            (self.place(&state)?, state.ledger_mut().epochs_mut().seal())
        };
        let how = self.between(Some(place.stream), receiver, general);
        assert_unlocked();
        // The question itself would break a capture, also one that nobody told of.
        if how == CrossStream::Never || self.site.may_be_capturing(place.stream) {
            return None;
        }
        match self.site.backend().query_stream(place.stream) {
            Ok(Readiness::Ready) => {
                self.close(from, place.arena, newest);
                return Some(Spare { newest, in_order: false });
            }
            Ok(_) if how == CrossStream::Wait => {}
            Ok(_) => return None,
            Err(_) => {
                self.site.backend().clear_error();
                return None;
            }
        }
        let clock = self.arenas.clock(place.arena);
        self.mark(&place, newest, clock);
        let marks = self.marks.lock();
        let mark = marks.get(&place.arena)?.newest(clock.saturating_sub(min_age))?;
        Some(Spare { newest: mark.epoch, in_order: true })
    }

    /// The device is done with what an arena freed up to an epoch.
    fn close(&self, arena: &Arena, number: u16, epoch: u64) {
        arena.lock().ledger_mut().epochs_mut().close(epoch);
        let gone = self.marks.lock().get_mut(&number).map(|marks| marks.pass(epoch));
        drop(gone);
    }

    /// Marks what a stream was given, which nobody captures. The epoch `newest` has just ended.
    fn mark(&self, place: &Place<'_>, newest: u64, clock: u64) {
        if !self.marks.lock().entry(place.arena).or_default().is_due(clock) {
            return;
        }
        assert_unlocked();
        let recorded = HeldEvent::new(self.site.backend(), self.site.device())
            .and_then(|event| event.record(place.stream).map(|()| event));
        match recorded {
            Ok(event) => {
                let mark = Mark { epoch: newest, clock, event: Arc::new(event) };
                let gone = self.marks.lock().entry(place.arena).or_default().push(mark);
                drop(gone);
            }
            Err(error) => {
                self.site.backend().clear_error();
                tracing::warn!(%error, "no event could be recorded on a stream that others wait for");
            }
        }
    }

    /// Makes an arena's stream wait, on the device, for what another one's had freed up to an epoch. Does not block.
    pub(in crate::device) fn let_follow(&self, from: &Arena, to: &Arena, epoch: u64) -> bool {
        let (Some(before), Some(behind)) = (self.place_of(from), self.place_of(to)) else { return false };
        if from.lock().ledger().epochs().is_closed(epoch) {
            return true;
        }
        if [before.stream, behind.stream].iter().any(|stream| self.site.may_be_capturing(*stream)) {
            return false;
        }
        let mark = self.marks.lock().get(&before.arena).and_then(|marks| marks.covering(epoch).cloned());
        let Some(mark) = mark else { return false };
        match mark.event.is_past() {
            Ok(true) => {
                self.close(from, before.arena, mark.epoch);
                return true;
            }
            Ok(false) => {}
            Err(_) => self.site.backend().clear_error(),
        }
        let ordered = mark.event.precede(behind.stream);
        if let Err(error) = &ordered {
            self.site.backend().clear_error();
            tracing::warn!(%error, "a stream could not be told to wait for another one");
        }
        ordered.is_ok()
    }

    /// Makes blocks of the request's own stream free that wait for other streams only: its stream waits for these, on the device. With
    /// `early_reuse` that is the smallest block that is large enough. With `cross_stream:wait` it is the oldest ones, until
    /// `search` serves the request.
    pub(in crate::device) fn reuse_early(
        &self,
        arena: &Arena,
        request: &Request,
        call: &Call<'_>,
        search: impl FnMut() -> Option<DevicePtr>,
    ) -> Reused {
        let (early, shares, general, min_age) = self.settings(|settings| {
            let shares = settings.policy_name() != PolicyName::Pytorch;
            (settings.early_reuse, shares, settings.cross_stream, settings.cross_stream_min_age)
        });
        if !early && general == CrossStream::Wait {
            self.lifetimes.keep_ages();
        }
        // Under other settings nobody waits but who was told to, and then there are ages.
        let may = early || shares && self.lifetimes.keeps_ages();
        let place = self.place_of(arena);
        let Some(place) = place.filter(|_| !call.capturing && may) else { return Reused::Nothing };
        // What was chosen for the whole program, a stream can be told otherwise.
        let general = if early { CrossStream::Wait } else { general };
        let may_wait = |user: &User| self.between(user.live(), place.stream, general) == CrossStream::Wait;
        let mut waiting = self.lifetimes.waiting_in(place.arena);
        waiting.retain(|(_, awaits)| awaits.iter().all(|it| may_wait(it.user())));
        if waiting.is_empty() || self.site.may_be_capturing(place.stream) {
            // Whoever began that, and did not say so: the wait would become part of the graph, or break it.
            return Reused::Nothing;
        }
        if early {
            return self.reuse_smallest(arena, &place, request, waiting);
        }
        let oldest = self.arenas.clock(place.arena).saturating_sub(min_age);
        waiting.retain(|(_, awaits)| awaits.iter().all(|it| it.freed().is_some_and(|freed| freed <= oldest)));
        self.reuse_oldest(arena, &place, request, waiting, search)
    }

    fn reuse_smallest(
        &self,
        arena: &Arena,
        place: &Place<'_>,
        request: &Request,
        waiting: Vec<(Waiting, Vec<Await>)>,
    ) -> Reused {
        let mut fitting: Vec<_> = {
            let state = arena.lock();
            let fits = |(waiting, awaits): (Waiting, Vec<Await>)| {
                let block = pending(waiting, &state, request)?;
                (block.size >= request.size).then_some((block.size, block.addr, waiting, awaits))
            };
            waiting.into_iter().filter_map(fits).collect()
        };
        fitting.sort_unstable_by_key(|(size, addr, ..)| (*size, *addr));
        let mut fitting = fitting.into_iter();
        let one = fitting
            .find(|(.., waiting, awaits)| self.take_over(arena, place, request, *waiting, awaits).is_some());
        one.map_or(Reused::Nothing, |_| Reused::Freed)
    }

    fn reuse_oldest(
        &self,
        arena: &Arena,
        place: &Place<'_>,
        request: &Request,
        waiting: Vec<(Waiting, Vec<Await>)>,
        mut search: impl FnMut() -> Option<DevicePtr>,
    ) -> Reused {
        let (mut all, mut since) = (0, 0);
        for (block, awaits) in waiting {
            let freed = self.take_over(arena, place, request, block, &awaits).unwrap_or(0);
            (all, since) = (all + freed, since + freed);
            if since >= request.size {
                if let Some(ptr) = search() {
                    return Reused::Served(ptr);
                }
                since = 0;
            }
        }
        if all > 0 { Reused::Freed } else { Reused::Nothing }
    }

    /// Lets a stream wait for all that one of its blocks waits for, if it does still, so that this is free. Returns its bytes.
    fn take_over(
        &self,
        arena: &Arena,
        place: &Place<'_>,
        request: &Request,
        block: Waiting,
        awaits: &[Await],
    ) -> Option<u64> {
        let bytes = {
            let state = arena.lock();
            let found = pending(block, &state, request)?;
            (usize::from(found.pending) == awaits.len()).then_some(found.size)?
        };
        let _block = self.arenas.in_transit();
        let done = |waiting: Waiting| {
            let mut state = arena.lock();
            // The device is done with it when it has passed the stream's wait, not what came before the free.
            state.event_passed_on(waiting.block);
            self.arenas.leave(state);
        };
        self.lifetimes.take_over(place.stream, awaits, done).then_some(bytes)
    }
}

/// The block that waits, where it still does and may serve a request.
fn pending<'a>(waiting: Waiting, state: &'a ArenaState, request: &Request) -> Option<&'a Block> {
    let block = state.layout().blocks().get(waiting.block)?;
    (block.state == BlockPhase::Pending && block.tier == request.tier).then_some(block)
}
