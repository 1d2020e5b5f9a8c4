//! Signals that are meant for a program which this command runs.

use crate::child::is_ignored;
use granule_estimate::Received;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Keeps signals from ending this command, until it is dropped.
#[derive(Debug)]
pub(crate) struct Signals {
    received: SignalsInfo<WithOrigin>,
    /// From then on they do what they do by default.
    over: Arc<AtomicBool>,
}

impl Signals {
    /// Begins with Ctrl-C and what a job manager sends. A signal that is ignored, as `nohup` has it, stays ignored.
    pub(crate) fn keep() -> io::Result<Self> {
        let mut wanted = vec![SIGINT, SIGTERM, SIGHUP];
        wanted.retain(|number| !is_ignored(*number));
        let over = Arc::new(AtomicBool::new(false));
        let received = SignalsInfo::<WithOrigin>::new(&wanted)?;
        for number in wanted {
            register_conditional_default(number, over.clone())?;
        }
        Ok(Self { received, over })
    }

    /// Those that have come since it was last asked.
    pub(crate) fn received(&mut self) -> Vec<Received> {
        let all = self.received.pending();
        // What the kernel sends of itself are a terminal's keys, which all of the terminal's programs get.
        all.map(|origin| Received { number: origin.signal, shared: matches!(origin.cause, Cause::Kernel) })
            .collect()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}
