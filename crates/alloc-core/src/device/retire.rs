//! Streams that end: their memory is kept for a successor, and their handle is never named again.
//!
//! A handle is named to the driver only between [`Transit::begin`](crate::sync::Transit::begin) of `naming`, taken
//! under the lock under which the handle was read, and the end of the call. To retire a stream is to replace
//! its handle by its last work wherever it is kept, and then to wait for the calls that read it before.

use super::{DeviceAllocator, Flush};
use crate::arena::directory::{Arena, PoolSlot};
use crate::arena::{ArenaPool, ArenaState};
use crate::backend::CaptureStatus;
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::lifetimes::last_work::LastWork;
use crate::process::attention::Reason;
use crate::process::stream_identity::named;
use crate::sync::{Arc, Guard};
use crate::types::Stream;

impl DeviceAllocator {
    /// The arena that serves `stream`, locked for the short way, if it is quickly found.
    #[inline(always)]
    pub(super) fn enter(&self, slot: PoolSlot, stream: Stream) -> Option<(&Arena, Guard<'_, ArenaState>)> {
        let arena = self.arenas.hint(slot, stream)?;
        let state = arena.lock_shortly();
        // It may have been retired since, or be another stream's that looks alike to the table.
        state.serves(slot, stream).then_some((arena, state))
    }

    /// The arena that serves `stream`, locked; on first use it gets one.
    #[cold]
    pub(super) fn enter_slowly(
        &self,
        pool: &ArenaPool,
        stream: Stream,
    ) -> Result<(&Arena, Guard<'_, ArenaState>)> {
        let mut made_room = false;
        loop {
            // The table of likely arenas may have had no place for it. That is no reason to wait for others.
            let arena = match self.arenas.of_stream(pool.slot, stream) {
                Some(arena) => arena,
                None => match self.arena_for(pool, stream) {
                    Err(AllocError::Limit(_)) if !made_room => {
                        made_room = true;
                        self.forget_unused_pools();
                        continue;
                    }
                    found => found?,
                },
            };
            let state = arena.lock();
            if state.serves(pool.slot, stream) {
                return Ok((arena, state));
            }
        }
    }

    /// Pools that nobody uses any more give their memory and their arenas up.
    fn forget_unused_pools(&self) {
        let call = Call { capturing: self.thread_captures(), ..Call::PLAIN };
        if let Err(error) = self.release(Flush::Unused, &call) {
            tracing::warn!(%error, "not all memory of unused pools could be given back");
        }
    }

    /// The arena of a stream in a pool: on first use that of the stream that retired first, of those that it can be
    /// ordered after, or else a new one.
    fn arena_for(&self, pool: &ArenaPool, stream: Stream) -> Result<&Arena> {
        let _alone = self.tenures.lock();
        if let Some(arena) = self.arenas.of_stream(pool.slot, stream) {
            return Ok(arena);
        }
        // Only this thread takes from the line now.
        let mut line = (0..).map_while(|place| self.arenas.retired_in_line(pool.slot, place)).peekable();
        if line.peek().is_some()
            && !self.may_be_captured(stream)
            && let Some(arena) = line.find(|arena| self.adopt(arena, stream))
        {
            return Ok(arena);
        }
        Ok(self.arenas.make(pool, stream)?)
    }

    /// Whether `stream` may be recording its work into a graph, whoever began that. It cannot wait for work outside
    /// then, and trying would break the capture.
    fn may_be_captured(&self, stream: Stream) -> bool {
        let Ok(capture) = self.backend.capture() else { return false };
        let status = named(stream).and_then(|stream| capture.status(stream));
        if status.is_err() {
            self.backend.clear_error();
        }
        status != Ok(CaptureStatus::None)
    }

    /// Gives a retired arena to `stream`, whose later work is ordered after all that the retired stream was
    /// given. `false` where the driver refuses to order it.
    fn adopt(&self, arena: &Arena, stream: Stream) -> bool {
        let Some(last) = arena.lock().retired.clone() else { return false };
        if let Err(error) = last.precede(stream) {
            self.backend.clear_error();
            tracing::warn!(%error, "a stream could not be ordered after a retired one; it begins with no memory");
            return false;
        }
        let mut state = arena.lock();
        // `last` outlives the lock, so the event is not destroyed under it.
        state.adopt(stream);
        self.arenas.adopted(state.pool.slot, stream, state.id.number);
        drop(state);
        true
    }

    /// See [`CachingAllocator::retire_stream`](crate::allocator::CachingAllocator::retire_stream). `last` is
    /// the stream's last work, once a device needed it.
    pub(crate) fn retire_stream(&self, stream: Stream, last: &mut Option<Arc<LastWork>>) -> Result<()> {
        let own = stream.device == self.device;
        let mine = if own { self.arenas.all_of_stream(stream) } else { Vec::new() };
        // In this order: a free takes a stream from a use list to a queue, and this waits for those on the way.
        let waits = || self.deferred_names(stream) || self.pending.names(stream);
        if mine.is_empty() && !self.pending.is_user(stream) && !self.finish_naming_then(stream, waits) {
            self.retire_scopes(stream);
            return Ok(());
        }
        let last = match last {
            Some(last) => &*last,
            None => &*last.insert(Arc::new(LastWork::of(&self.backend, stream)?)),
        };
        for (slot, arena) in mine {
            let mut state = arena.lock();
            // Another thread may be retiring it, too, and its pool may be gone.
            if state.serves(slot, stream) {
                state.retired = Some(Arc::clone(last));
                self.arenas.retired(slot, stream, state.id.number);
            }
        }
        if self.pending.is_user(stream) {
            for arena in self.arenas.all() {
                arena.lock().uses.retire(stream, last);
            }
        }
        self.retire_scopes(stream);
        self.finish_naming_then(stream, || {
            self.retire_deferred(stream, last);
            self.pending.retire(stream, last);
        });
        self.finish_naming_then(stream, || ());
        Ok(())
    }

    /// Pools that served the stream, or its captures, serve no successor.
    fn retire_scopes(&self, stream: Stream) {
        if self.attention.has(Reason::SCOPES) {
            self.pools.lock().retire(stream);
        }
    }

    /// Waits for all driver calls under way that name `stream`.
    fn finish_naming_then<R>(&self, stream: Stream, then: impl FnOnce() -> R) -> R {
        self.naming.wait_for(|named| named == stream, || None::<()>);
        then()
    }
}
