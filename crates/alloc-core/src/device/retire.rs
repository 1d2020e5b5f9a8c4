//! Streams that end: their memory is kept for a successor, and their handle is never named again.
//!
//! A handle is named to the driver only between [`Transit::begin`](crate::sync::Transit::begin) of `naming`, taken
//! under the lock under which the handle was read, and the end of the call. To retire a stream is to replace
//! its handle by its last work wherever it is kept, and then to wait for the calls that read it before.

use super::DeviceAllocator;
use crate::arena::ArenaState;
use crate::directory::Arena;
use crate::error::Result;
use crate::last_work::LastWork;
use crate::policy::Policy;
use crate::sync::{Arc, Guard};
use crate::types::Stream;

impl<P: Policy> DeviceAllocator<P> {
    /// The arena that serves `stream`, locked, if it is quickly found.
    #[inline(always)]
    pub(super) fn enter(&self, stream: Stream) -> Option<(&Arena<P>, Guard<'_, ArenaState<P>>)> {
        let arena = self.arenas.hint(stream)?;
        let state = arena.lock();
        // It may have been retired since, or be another stream's that looks alike to the table.
        state.serves(stream).then_some((arena, state))
    }

    /// The arena that serves `stream`, locked; on first use it gets one.
    #[cold]
    pub(super) fn enter_slowly(&self, stream: Stream) -> Result<(&Arena<P>, Guard<'_, ArenaState<P>>)> {
        loop {
            let arena = self.arena_for(stream)?;
            let state = arena.lock();
            if state.serves(stream) {
                return Ok((arena, state));
            }
        }
    }

    /// The arena of a stream: on first use that of the stream that retired first, or else a new one.
    fn arena_for(&self, stream: Stream) -> Result<&Arena<P>> {
        let _alone = self.tenures.lock();
        if let Some(arena) = self.arenas.of_stream(stream) {
            return Ok(arena);
        }
        match self.arenas.longest_retired() {
            Some(arena) if self.adopt(arena, stream) => Ok(arena),
            _ => Ok(self.arenas.make(stream)?),
        }
    }

    /// Gives a retired arena to `stream`, whose later work is ordered after all that the retired stream was
    /// given. `false` where the driver refuses to order it.
    fn adopt(&self, arena: &Arena<P>, stream: Stream) -> bool {
        let Some(last) = arena.lock().retired.clone() else { return false };
        if let Err(error) = last.precede(stream) {
            self.backend.clear_error();
            tracing::warn!(%error, "a stream could not be ordered after a retired one; it begins with no memory");
            return false;
        }
        let mut state = arena.lock();
        let former = state.id.stream.raw;
        state.history.rename(former);
        state.id.stream = stream;
        // `last` outlives the lock, so the event is not destroyed under it.
        state.retired = None;
        self.arenas.adopted(stream, state.id.number);
        true
    }

    /// See [`CachingAllocator::retire_stream`](crate::allocator::CachingAllocator::retire_stream).
    pub(crate) fn retire_stream(&self, stream: Stream) -> Result<()> {
        let _alone = self.tenures.lock();
        let own = stream.device == self.device;
        let arena = own.then(|| self.arenas.of_stream(stream)).flatten();
        let is_user = || self.arenas.all().iter().any(|a| a.lock().uses.name(stream));
        // In this order: a free takes a stream from a use list to a queue, and this waits for those on the way.
        if arena.is_some() || is_user() || self.finish_naming_then(|| self.pending.names(stream)) {
            let last = Arc::new(LastWork::of(&self.backend, stream)?);
            if let Some(arena) = arena {
                let mut state = arena.lock();
                state.retired = Some(Arc::clone(&last));
                self.arenas.retired(stream, state.id.number);
            }
            for arena in self.arenas.all() {
                arena.lock().uses.retire(stream, &last);
            }
            self.finish_naming_then(|| self.pending.retire(stream, &last));
            self.finish_naming_then(|| ());
        }
        if own {
            self.state.lock().reserve_classes.remove(&stream.raw);
        }
        Ok(())
    }

    /// Waits for all driver calls under way that name streams.
    fn finish_naming_then<R>(&self, then: impl FnOnce() -> R) -> R {
        let bound = self.naming.next();
        while self.naming.wait_for_one_before(bound) {}
        then()
    }
}
