//! Private pools: which requests they serve, and when they are gone.

use super::driver_access::DriverAccess;
use crate::arena::pool_table::{Filter, Holder, PrivatePools};
use crate::error::{AllocError, Result};
use crate::process::callbacks::{Callbacks, Kind};
use crate::process::stream_identity::shown;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, Rank, this_thread};
use crate::types::{PoolId, Stream};

/// A request under way: its pool is not forgotten meanwhile.
#[derive(Debug)]
pub(super) struct PoolVisit<'a> {
    pools: &'a PinnedPools,
    pool: PoolId,
}

impl PoolVisit<'_> {
    /// The request's pool.
    pub(super) fn pool(&self) -> PoolId {
        self.pool
    }
}

impl Drop for PoolVisit<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.pool != PoolId::DEFAULT
            && let Ok(pool) = self.pools.pools.lock().get(self.pool)
        {
            pool.visitors -= 1;
        }
    }
}

/// The private pools of pinned memory, and the scopes that send requests to them.
#[derive(Debug)]
pub(super) struct PinnedPools {
    driver: Arc<DriverAccess>,
    callbacks: Arc<Callbacks>,
    pools: Mutex<PrivatePools>,
    /// Some scope is open.
    scoped: AtomicBool,
    /// It was said that a pool serves requests outside of captures.
    said_routed: AtomicBool,
}

impl PinnedPools {
    pub(super) fn new(driver: Arc<DriverAccess>, callbacks: Arc<Callbacks>) -> Self {
        Self {
            driver,
            callbacks,
            pools: Mutex::new(Rank::Registry, PrivatePools::default()),
            scoped: AtomicBool::new(false),
            said_routed: AtomicBool::new(false),
        }
    }

    /// See [`HostAllocator::begin_pool`](super::HostAllocator::begin_pool).
    pub(super) fn begin(&self, pool: PoolId, filter: &Filter) -> Result<()> {
        let filter = match filter {
            Filter::Stream(stream) => Filter::Stream(self.driver.own(*stream)?),
            Filter::CaptureOf(stream) => Filter::CaptureOf(self.driver.own(*stream)?),
            other => other.clone(),
        };
        let mut pools = self.pools.lock();
        pools.begin(pool, &filter, Holder::Program)?;
        self.scoped.store(true, Ordering::Release);
        Ok(())
    }

    /// See [`HostAllocator::end_pool`](super::HostAllocator::end_pool).
    pub(super) fn end(&self, pool: PoolId) -> Result<()> {
        let scope = {
            let mut pools = self.pools.lock();
            let scope = pools.end(pool, Holder::Program)?;
            self.scoped.store(pools.has_scopes(), Ordering::Release);
            scope
        };
        self.callbacks.end([scope]);
        Ok(())
    }

    /// See [`HostAllocator::release_pool`](super::HostAllocator::release_pool).
    pub(super) fn release(&self, pool: PoolId) -> Result<()> {
        self.pools.lock().release(pool, Holder::Program).map(drop)
    }

    /// The pool of a request: that of the oldest scope whose filter accepts it. (For device memory it is the newest.)
    #[inline]
    pub(super) fn route(&self, stream: Option<Stream>, capturing: bool) -> Result<PoolVisit<'_>> {
        let default = PoolVisit { pools: self, pool: PoolId::DEFAULT };
        if !self.scoped.load(Ordering::Acquire) {
            return Ok(default);
        }
        let scopes = self.pools.lock().open_scopes(&self.callbacks);
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

    fn visit(&self, pool: PoolId) -> Result<PoolVisit<'_>> {
        let mut pools = self.pools.lock();
        let record = pools.get(pool)?;
        if record.use_count == 0 {
            return Err(AllocError::DeadPool { pool });
        }
        record.visitors += 1;
        Ok(PoolVisit { pools: self, pool })
    }

    /// A driver that cannot tell fails the request: outside of its pool the memory would be given to others.
    fn accepts(&self, filter: &Filter, stream: Option<Stream>) -> Result<bool> {
        Ok(match (filter, stream) {
            (Filter::Always, _) => true,
            (Filter::Thread(id), _) => *id == this_thread(),
            (_, None) => false,
            (Filter::Stream(only), Some(stream)) => *only == stream,
            (Filter::CaptureOf(origin), Some(stream)) => {
                let capture = self.driver.capture_id(stream)?;
                capture.is_some() && (stream == *origin || capture == self.driver.capture_id(*origin)?)
            }
            (Filter::Custom(accepts), Some(stream)) => {
                self.callbacks.calls().call(Kind::Filter, || accepts(shown(stream))) == Some(true)
            }
        })
    }

    /// Of these pools, those whose cached memory may go: nobody uses them any more.
    pub(super) fn unused(&self, known: Vec<PoolId>) -> Vec<PoolId> {
        let pools = self.pools.lock();
        let is_unused = |id: &PoolId| pools.find(*id).is_none_or(|pool| pool.use_count == 0);
        known.into_iter().filter(is_unused).collect()
    }

    /// Forgets the pools that nobody can come to use any more, where `is_empty` says that they have no block.
    pub(super) fn forget_abandoned(&self, is_empty: impl Fn(PoolId) -> bool) {
        let abandoned = self.pools.lock().abandoned(None);
        for (pool, _) in abandoned {
            if is_empty(pool) {
                let _dropped_without_a_lock = self.pools.lock().forget(pool);
            }
        }
    }

    /// A stream is about to be destroyed: scopes that name it accept nothing more.
    pub(super) fn retire(&self, stream: Stream) {
        self.pools.lock().retire(stream);
    }

    /// No pool has users any more.
    pub(super) fn abandon_all(&self) {
        let scopes = self.pools.lock().abandon_all();
        self.callbacks.end(Arc::unwrap_or_clone(scopes));
    }
}
