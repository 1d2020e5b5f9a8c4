//! Requests: from the cache, or from the driver, with remedies where that has no memory left.

use super::HostBlock;
use super::block::{Fresh, Order};
use super::engine::Engine;
use super::state::Knobs;
use crate::backend::ErrorKind;
use crate::error::{AllocError, Result};
use crate::types::{PoolId, Stream};
use crate::watch::history::RecordContext;
use std::time::Duration;

impl Engine {
    /// See [`HostAllocator::allocate_for`](super::HostAllocator::allocate_for).
    pub(super) fn allocate(&self, bytes: u64, stream: Option<Stream>) -> Result<HostBlock> {
        self.reachable()?;
        let stream = stream.map(|stream| self.own(stream)).transpose()?;
        if bytes == 0 {
            return Ok(HostBlock::NONE);
        }
        self.noticing(self.serve(bytes, stream))
    }

    fn serve(&self, bytes: u64, stream: Option<Stream>) -> Result<HostBlock> {
        let context = self.gather(RecordContext::State, &self.foreign.calls());
        let capturing = match stream {
            Some(stream) => self.capture_id(stream)?.is_some(),
            None => false,
        };
        let visit = self.route(stream, capturing)?;
        let order = Order { requested: bytes, pool: visit.pool, capturing, context };
        let knobs = self.lock().knobs;
        let background = knobs.background && order.pool == PoolId::DEFAULT && self.waker.has_thread();
        if !background && let Err(error) = self.poll(order.context.as_deref()) {
            // One device that cannot be asked is no reason to refuse memory for others.
            tracing::debug!(%error, "finished uses of pinned memory could not be noticed");
        }
        let Some(size) = self.options.sizing.round(bytes, knobs.max_round, knobs.max_cached) else {
            return Err(AllocError::Limit("more pinned memory was asked for than can be addressed"));
        };
        if let Some(block) = self.lock().take_cached(size, &order) {
            return Ok(block);
        }
        let _relaxed = self.relaxed()?;
        match self.take(size, &order, &knobs)? {
            Taken::New(fresh, time) => {
                let mut state = self.lock();
                if let Some(time) = time {
                    state.totals_mut().host_alloc_time.add(time);
                }
                Ok(state.add(fresh, &order))
            }
            Taken::Cached(block) => Ok(block),
        }
    }

    /// Memory from the source; where the driver has none left, after each remedy once more.
    fn take(&self, size: u64, order: &Order<'_>, knobs: &Knobs) -> Result<Taken> {
        let remedies: [&dyn Fn() -> Result<()>; 2] = [
            &|| self.poll(order.context.as_deref()).and(self.release_cached(order.context.as_deref())),
            &|| self.synchronise(order.context.as_deref()).and(self.release_cached(order.context.as_deref())),
        ];
        // A capture has its own work to queue: it is not held up by the work of others.
        let allowed = if order.capturing { 1 } else { 2 };
        let mut remedies = remedies.into_iter().take(allowed);
        loop {
            let refused = match self.source.take(size, knobs) {
                Ok((fresh, time)) => return Ok(Taken::New(fresh, time)),
                Err(error) => error,
            };
            self.backend.clear_error();
            let short = matches!(refused.kind, ErrorKind::OutOfMemory | ErrorKind::ResourceLimit);
            let Some(remedy) = remedies.next().filter(|_| short) else { return Err(refused.into()) };
            if let Err(error) = remedy() {
                tracing::warn!(%error, "not all cached pinned memory could be given back");
            }
            if let Some(block) = self.lock().take_cached(size, order) {
                return Ok(Taken::Cached(block));
            }
        }
    }
}

enum Taken {
    New(Fresh, Option<Duration>),
    Cached(HostBlock),
}
