//! In which order the threads of a history run: one that follows from the seed, where the engine is built for that
//! (`cargo xtask night --threads`). Elsewhere there is one thread.

use crate::verdict::Finding;

/// What `work` comes to.
///
/// # Errors
/// Threads that wait for each other, or the panic of one that nobody caught.
#[cfg(not(shuttle))]
#[allow(clippy::unnecessary_wraps)] // it is not, where there are threads
pub(crate) fn in_order<T>(_: u64, work: impl Fn() -> T) -> Result<T, Finding> {
    Ok(work())
}

#[cfg(shuttle)]
pub(crate) use chosen::in_order;

#[cfg(shuttle)]
mod chosen {
    use super::Finding;
    use crate::verdict::caught;
    use shuttle::scheduler::RandomScheduler;
    use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
    use std::sync::{Arc, Mutex, PoisonError};

    /// Bytes of each thread's stack.
    const STACK: usize = 2 << 20;

    pub(crate) fn in_order<T: Send + 'static>(
        seed: u64,
        work: impl Fn() -> T + Send + Sync + 'static,
    ) -> Result<T, Finding> {
        let mut config = Config::new();
        config.stack_size = STACK;
        config.max_steps = MaxSteps::None;
        // The seed gives the order again. A program's own code panics in most histories, and each order has 20 KB or more.
        config.failure_persistence = FailurePersistence::None;
        // Which orders the processor may see is for loom.
        config.silence_warnings = true;
        let done = Arc::new(Mutex::new(None));
        let scheduler = RandomScheduler::new_from_seed(seed, 1);
        let ended = caught(|| {
            let done = Arc::clone(&done);
            Runner::new(scheduler, config).run(move || {
                *done.lock().unwrap_or_else(PoisonError::into_inner) = Some(work());
            });
        });
        let done = done.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (done, ended) {
            (Some(done), _) => Ok(done),
            (None, Err(Finding { what, .. })) => Err(Finding { oracle: "threads", what }),
            (None, Ok(())) => Err(Finding { oracle: "threads", what: "no schedule was run".to_owned() }),
        }
    }
}
