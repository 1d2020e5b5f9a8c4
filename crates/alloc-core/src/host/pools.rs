//! Private pools: which requests they serve, and when they are gone.

use super::engine::Engine;
use crate::arena::pool::{Filter, Holder};
use crate::error::{AllocError, Result};
use crate::process::foreign::Kind;
use crate::process::stream_identity::shown;
use crate::sync::{Arc, Ordering, this_thread};
use crate::types::{PoolId, Stream};

/// A request under way: its pool is not forgotten meanwhile.
#[derive(Debug)]
pub(super) struct Visit<'a> {
    engine: &'a Engine,
    pub(super) pool: PoolId,
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if self.pool != PoolId::DEFAULT
            && let Ok(pool) = self.engine.pools.lock().get(self.pool)
        {
            pool.visitors -= 1;
        }
    }
}

impl Engine {
    /// See [`HostAllocator::begin_pool`](super::HostAllocator::begin_pool).
    pub(super) fn begin_pool(&self, pool: PoolId, filter: &Filter) -> Result<()> {
        self.reachable()?;
        let filter = match filter {
            Filter::Stream(stream) => Filter::Stream(self.own(*stream)?),
            Filter::CaptureOf(stream) => Filter::CaptureOf(self.own(*stream)?),
            other => other.clone(),
        };
        let mut pools = self.pools.lock();
        pools.begin(pool, &filter, Holder::Program)?;
        self.scoped.store(true, Ordering::Release);
        Ok(())
    }

    /// See [`HostAllocator::end_pool`](super::HostAllocator::end_pool).
    pub(super) fn end_pool(&self, pool: PoolId) -> Result<()> {
        if let Some(edge) = self.edge() {
            return edge.of_release();
        }
        let scope = {
            let mut pools = self.pools.lock();
            let scope = pools.end(pool, Holder::Program)?;
            self.scoped.store(!pools.scopes.is_empty(), Ordering::Release);
            scope
        };
        self.foreign.end([scope]);
        Ok(())
    }

    /// See [`HostAllocator::release_pool`](super::HostAllocator::release_pool).
    pub(super) fn release_pool(&self, pool: PoolId) -> Result<()> {
        if let Some(edge) = self.edge() {
            return edge.of_release();
        }
        self.pools.lock().release(pool, Holder::Program).map(drop)
    }

    /// The pool of a request: that of the oldest scope whose filter accepts it. (For device memory it is the newest.)
    pub(super) fn route(&self, stream: Option<Stream>, capturing: bool) -> Result<Visit<'_>> {
        let default = Visit { engine: self, pool: PoolId::DEFAULT };
        if !self.scoped.load(Ordering::Acquire) {
            return Ok(default);
        }
        let scopes = Arc::clone(&self.pools.lock().scopes);
        for scope in scopes.iter() {
            if self.accepts(&scope.filter, stream)? {
                if !capturing && !self.said_routed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        pool = %scope.pool,
                        "pinned memory is taken from a private pool outside of a capture; it is cached in that pool alone"
                    );
                }
                return self.visit(scope.pool);
            }
        }
        Ok(default)
    }

    fn visit(&self, pool: PoolId) -> Result<Visit<'_>> {
        let mut pools = self.pools.lock();
        let record = pools.get(pool)?;
        if record.use_count == 0 {
            return Err(AllocError::DeadPool { pool });
        }
        record.visitors += 1;
        Ok(Visit { engine: self, pool })
    }

    /// A driver that cannot tell fails the request: outside of its pool the memory would be given to others.
    fn accepts(&self, filter: &Filter, stream: Option<Stream>) -> Result<bool> {
        Ok(match (filter, stream) {
            (Filter::Always, _) => true,
            (Filter::Thread(id), _) => *id == this_thread(),
            (_, None) => false,
            (Filter::Stream(only), Some(stream)) => *only == stream,
            (Filter::CaptureOf(origin), Some(stream)) => {
                let capture = self.capture_id(stream)?;
                capture.is_some() && (stream == *origin || capture == self.capture_id(*origin)?)
            }
            (Filter::Custom(accepts), Some(stream)) => {
                self.foreign.calls().call(Kind::Filter, || accepts(shown(stream))) == Some(true)
            }
        })
    }

    /// Pools whose cached memory may go: nobody uses them any more.
    pub(super) fn unused_pools(&self) -> Vec<PoolId> {
        let known = self.lock().private_pools();
        let pools = self.pools.lock();
        let unused = |id: &PoolId| pools.records.get(id).is_none_or(|pool| pool.use_count == 0);
        known.into_iter().filter(unused).collect()
    }

    /// Unused pools without a block leave their figures to the default pool.
    pub(super) fn forget_empty_pools(&self) {
        let abandoned = self.pools.lock().abandoned(None);
        for (pool, _) in abandoned {
            // Nobody can come to use it any more, so it stays abandoned.
            if self.lock().forget_pool(pool) {
                let _dropped_without_a_lock = self.pools.lock().forget(pool);
            }
        }
    }
}
