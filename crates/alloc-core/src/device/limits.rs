//! Settings and limits as the program changes them.

use crate::config::{MemoryLimit, Settings};
use crate::device::Device;
use crate::device::accounting::DeviceState;
use crate::device::accounting::device_limits::DeviceLimits;
use crate::device::{budget_events, recorder};
use crate::error::{AllocError, Result};
use crate::policy::Policy;
use crate::sync::Arc;
use std::mem::ManuallyDrop;

impl Device {
    /// Begins to replace the settings, which were `before`. From here on nothing is promised for which `settings` leave
    /// no room.
    pub(crate) fn begin_settings(&self, before: &Settings, settings: &Settings) -> Result<Change<'_>> {
        let reserve = self.driver.host_reserve().map(|reserve| reserve.under(settings)).transpose();
        let reserve = reserve.map_err(AllocError::Settings)?;
        let mut state = self.accounting.lock();
        let accounts = state.accounts_mut();
        let was = *accounts.device_limits();
        let will_be = was.following(before, settings);
        accounts.guarantees().are_kept_under(&will_be)?;
        accounts.set_ceilings(was.and(&will_be));
        Ok(Change { device: self, was, will_be, reserve })
    }

    /// Tells observers of new settings. They may change settings themselves.
    pub(crate) fn follow_settings(&self) {
        recorder::tell_trackers(self);
        budget_events::tell(self);
    }

    /// See [`CachingAllocator::set_memory_fraction`](crate::allocator::CachingAllocator::set_memory_fraction).
    pub(crate) fn set_memory_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocError::InvalidFraction { fraction });
        }
        let _alone = self.arenas.configuring();
        let allowed = {
            let mut state = self.accounting.lock();
            let accounts = state.accounts_mut();
            let device_limits = accounts.device_limits().with_fraction(fraction);
            accounts.guarantees().are_kept_under(&device_limits)?;
            accounts.set_ceilings(device_limits);
            device_limits.allowed()
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
            let mut state = self.accounting.lock();
            let total = self.driver.total_memory();
            let [hard_bytes, soft_bytes] = [hard, soft].map(|limit| limit.map(|limit| limit.bytes(total)));
            let device_limits =
                DeviceLimits { hard: hard_bytes, soft: soft_bytes, ..*state.accounts().device_limits() };
            state.accounts().guarantees().are_kept_under(&device_limits)?;
            state.accounts_mut().set_ceilings(device_limits);
            device_limits.allowed()
        };
        self.arenas.refresh_ages(allowed);
        drop(alone);
        budget_events::tell(self);
        Ok(())
    }
}

/// Sets the limits to those of `limits`, which the caller has checked; the memory fraction stays. Returns the bytes
/// allowed.
fn set_limits(state: &mut DeviceState, limits: &DeviceLimits) -> Option<u64> {
    let accounts = state.accounts_mut();
    let device_limits = DeviceLimits { hard: limits.hard, soft: limits.soft, ..*accounts.device_limits() };
    accounts.set_ceilings(device_limits);
    device_limits.allowed()
}

/// Settings that are being replaced. Until this is [complete](Self::complete), the device keeps within the limits of
/// both, so guarantees given meanwhile can be kept under either. Dropped before, it restores the limits.
///
/// Nobody else changes the limits meanwhile.
pub(crate) struct Change<'a> {
    device: &'a Device,
    was: DeviceLimits,
    will_be: DeviceLimits,
    /// Bytes that are to be left to the host.
    reserve: Option<u64>,
}

impl Change<'_> {
    /// Applies the new settings. Blocks handed out or cached stay as they are.
    pub(crate) fn complete(self, settings: &Settings) {
        let change = ManuallyDrop::new(self);
        let device = change.device;
        let policy = Arc::new(Policy::new(settings, device.driver.has_virtual_memory()));
        let _alone = device.arenas.configuring();
        let allowed = {
            let mut state = device.accounting.lock();
            state.set_settings(settings.clone());
            set_limits(&mut state, &change.will_be)
        };
        device
            .driver
            .host_reserve()
            .zip(change.reserve)
            .into_iter()
            .for_each(|(reserve, bytes)| reserve.set(bytes));
        device.arenas.directory().with_template(|template| template.policy = policy.clone());
        for arena in device.arenas.directory().all() {
            arena.lock().set_policy(policy.clone());
        }
        device.arenas.refresh_ages(allowed);
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let device = self.device;
        let _alone = device.arenas.configuring();
        let allowed = set_limits(&mut device.accounting.lock(), &self.was);
        // Somebody may have changed the memory fraction under the limits of both.
        device.arenas.refresh_ages(allowed);
    }
}
