//! Settings and limits as the program changes them.

use crate::config::{MemoryLimit, Settings};
use crate::device::Base;
use crate::device::arenas::Arenas;
use crate::device::crossings::Crossings;
use crate::device::hardened::Hardened;
use crate::device::history::History;
use crate::device::holdings::Holdings;
use crate::device::holdings::accounts::fraction_of;
use crate::device::site::Site;
use crate::error::{AllocError, Result};
use crate::lifetimes::call::Call;
use crate::policy::Chosen;
use crate::sync::Arc;

/// What a device may hold, and how it is set.
pub(crate) struct Limits {
    site: Site,
    holdings: Arc<Holdings>,
    arenas: Arc<Arenas>,
    history: Arc<History>,
    hardened: Arc<Hardened>,
    crossings: Arc<Crossings>,
}

impl Limits {
    pub(in crate::device) fn new(base: &Base) -> Self {
        Self {
            site: base.site.clone(),
            holdings: Arc::clone(&base.holdings),
            arenas: Arc::clone(&base.arenas),
            history: Arc::clone(&base.history),
            hardened: Arc::clone(&base.hardened),
            crossings: Arc::clone(&base.crossings),
        }
    }

    /// Replaces the settings. What is handed out or cached stays as it is.
    pub(crate) fn configure(&self, settings: &Settings, policy: &Chosen) {
        let _alone = self.arenas.configuring();
        let allowed = {
            let mut state = self.holdings.lock();
            state.settings = settings.clone();
            state.accounts.configure(self.site.total_memory(), settings);
            state.accounts.allowed()
        };
        self.arenas.directory().with_template(|template| template.policy = policy.clone());
        for arena in self.arenas.directory().all() {
            arena.lock().set_policy(policy.clone());
        }
        self.arenas.refresh_ages(allowed);
        self.hardened.configure(settings);
    }

    /// Gives up what new settings do not keep. Runs observers, which may change settings themselves.
    pub(crate) fn follow_settings(&self) {
        self.hardened.reduce_quarantine(&Call::PLAIN);
        self.history.tell_trackers();
        self.crossings.tell();
    }

    /// See [`CachingAllocator::set_memory_fraction`](crate::allocator::CachingAllocator::set_memory_fraction).
    pub(crate) fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocError::InvalidFraction { fraction });
        }
        let _alone = self.arenas.configuring();
        let allowed = {
            let accounts = &mut self.holdings.lock().accounts;
            let fraction = fraction_of(self.site.total_memory(), fraction);
            accounts.keeps_guarantees(fraction, accounts.hard)?;
            accounts.fraction = fraction;
            accounts.allowed()
        };
        self.arenas.refresh_ages(allowed);
        Ok(())
    }

    /// See [`CachingAllocator::set_memory_limits`](crate::allocator::CachingAllocator::set_memory_limits).
    pub(crate) fn set_memory_limits(
        &self,
        hard: Option<MemoryLimit>,
        soft: Option<MemoryLimit>,
    ) -> Result<()> {
        let alone = self.arenas.configuring();
        let allowed = {
            let mut state = self.holdings.lock();
            let limit = hard.map(|hard| hard.bytes(self.site.total_memory()));
            state.accounts.keeps_guarantees(state.accounts.fraction, limit)?;
            (state.settings.memory_limit, state.settings.memory_soft_limit) = (hard, soft);
            let settings = state.settings.clone();
            state.accounts.configure(self.site.total_memory(), &settings);
            state.accounts.allowed()
        };
        self.arenas.refresh_ages(allowed);
        drop(alone);
        self.crossings.tell();
        Ok(())
    }
}
