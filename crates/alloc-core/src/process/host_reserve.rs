//! Host memory left to the rest of the machine, where a device takes its memory from there.
//!
//! The system's figures are read on a miss, and serve other misses for a moment, while they leave twice what these
//! take. A request that would be refused reads anew. Bytes that this process was admitted, and that a reading may not
//! show, count next to it:
//!
//! ```text
//! admitted so far - ended when the reading began + asked  <=  available - host_reserve
//! ```

use super::system::{HostMemory, System};
use crate::base::round::format_bytes;
use crate::config::{Settings, usual_host_reserve};
use crate::sync::plain::{AtomicBool, AtomicU64};
use crate::sync::{Mutex, Ordering, Rank};
use std::fmt;
use std::time::{Duration, Instant};

/// Duration for which a reading serves. Others cannot take the reserve in that time: pages are made at some 10 GiB a
/// second.
const FRESH: Duration = Duration::from_millis(10);

/// Host memory at a moment, and `host_reserve`. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoom {
    /// Bytes that programs can have without swapping, within the limits of control groups.
    pub available: u64,
    /// Bytes left to the rest of the machine; 0 while that is off.
    pub reserve: u64,
    /// Bytes left by default, under the `granule` policy.
    pub usual: u64,
}

impl HostRoom {
    /// Room by the settings; `None` where the system does not say what there is. Reads files.
    ///
    /// # Errors
    /// Problem with settings that leave all of the host's memory, and the remedy.
    pub fn of(system: &System, settings: &Settings) -> Result<Option<Self>, String> {
        let Some(HostMemory { total, available }) = system.within_groups() else { return Ok(None) };
        let (reserve, usual) = (settings.host_reserve_of(total), usual_host_reserve(total));
        if reserve < total || reserve == 0 {
            return Ok(Some(Self { available, reserve, usual }));
        }
        let [wanted, total] = [reserve, total].map(format_bytes);
        Err(format!(
            "host_reserve leaves {wanted} to the rest of the machine, which has {total} in all, so that nothing could be \
             allocated: set less, such as host_reserve:{}M, or 0 for none",
            usual >> 20
        ))
    }

    /// Bytes that may be taken.
    #[must_use]
    pub fn spare(&self) -> u64 {
        self.available.saturating_sub(self.reserve)
    }

    /// True if bytes are more than may be taken, or than could be if some memory were left.
    pub(crate) fn is_short_of(&self, bytes: u64) -> bool {
        let left = if self.reserve == 0 { self.usual } else { self.reserve };
        bytes > self.available.saturating_sub(left)
    }
}

impl fmt::Display for HostRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [available, reserve, usual] = [self.available, self.reserve, self.usual].map(format_bytes);
        write!(f, "This device's memory is the host's, of which {available} can be had. ")?;
        if self.reserve == 0 {
            return write!(
                f,
                "Set host_reserve:{}M, so that requests are refused before the host swaps or freezes",
                self.usual >> 20
            );
        }
        write!(
            f,
            "host_reserve leaves {reserve} to the rest of the machine, so that it does not freeze: end other programs, free \
             memory here, or set host_reserve lower ({usual} is usual, 0 is off)"
        )
    }
}

/// Bytes that this process takes of the host's memory, by all allocators over one backend.
#[derive(Debug)]
pub(super) struct Spending {
    /// Bytes ever admitted, and those of them that are taken, or given up. Both wrap.
    admitted: AtomicU64,
    ended: AtomicU64,
    last: Mutex<Option<Reading>>,
}

/// Reading of the system's figures.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    available: u64,
    /// Bytes that had ended when it began: the reading shows those.
    ended: u64,
}

impl Default for Spending {
    fn default() -> Self {
        let last = Mutex::new(Rank::Registry, None);
        Self { admitted: AtomicU64::new(0), ended: AtomicU64::new(0), last }
    }
}

impl Spending {
    /// Admits bytes, if they and bytes that the reading may not show are within `spare`.
    fn admit(&'static self, bytes: u64, reading: &Reading, spare: u64) -> Option<Coming> {
        let more = |admitted: u64| {
            let unseen = admitted.wrapping_sub(reading.ended);
            (unseen.checked_add(bytes)? <= spare).then(|| admitted.wrapping_add(bytes))
        };
        self.admitted.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Coming { spending: self, bytes, reading: *reading, spare })
    }

    fn read(&self, system: &System) -> Option<Reading> {
        let (at, ended) = (Instant::now(), self.ended.load(Ordering::Acquire));
        let HostMemory { available, .. } = system.within_groups()?;
        let reading = Reading { at, available, ended };
        *self.last.lock() = Some(reading);
        Some(reading)
    }
}

/// Bytes that were admitted and are in flight, until this is dropped.
#[derive(Debug)]
pub(crate) struct Coming {
    spending: &'static Spending,
    bytes: u64,
    /// By what they were admitted.
    reading: Reading,
    spare: u64,
}

impl Coming {
    /// Makes them so many, if the host has more to spare by the reading that admitted them. Reads no file, so a refusal
    /// may be over once [`HostReserve::admit`] is asked.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let Some(more) = self.spending.admit(more, &self.reading, self.spare) else { return false };
        self.bytes += more.bytes;
        std::mem::forget(more);
        true
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.spending.ended.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

/// Host memory that one device leaves free.
#[derive(Debug)]
pub(crate) struct HostReserve {
    spending: &'static Spending,
    system: System,
    /// 0 while it is off.
    bytes: AtomicU64,
    usual: u64,
    is_silent: AtomicBool,
}

impl HostReserve {
    pub(super) fn new(spending: &'static Spending, system: &System, room: &HostRoom) -> Self {
        let (system, bytes) = (system.clone(), AtomicU64::new(room.reserve));
        Self { spending, system, bytes, usual: room.usual, is_silent: AtomicBool::new(false) }
    }

    /// Bytes that are left to the rest of the machine.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes that it is to be under other settings. Reads files.
    pub(crate) fn under(&self, settings: &Settings) -> Result<u64, String> {
        if settings.host_reserve_of(u64::MAX) == 0 {
            return Ok(0);
        }
        Ok(HostRoom::of(&self.system, settings)?.map_or(self.bytes(), |room| room.reserve))
    }

    /// Sets the bytes that requests leave from here on.
    pub(crate) fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Admits bytes that are about to be taken from the driver, if the host has them to spare, or does not say. Reads
    /// files, unless that was just done.
    pub(crate) fn admit(&self, bytes: u64) -> Result<Option<Coming>, HostRoom> {
        let reserve = self.bytes();
        if reserve == 0 {
            return Ok(None);
        }
        let spare = |reading: &Reading| reading.available.saturating_sub(reserve);
        let last = self.spending.last.lock().filter(|last| last.at.elapsed() < FRESH);
        let known = last.and_then(|last| self.spending.admit(bytes, &last, spare(&last) / 2));
        if known.is_some() {
            return Ok(known);
        }
        let Some(reading) = self.spending.read(&self.system) else {
            if !self.is_silent.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "the system does not say any more what memory it has; host_reserve is not kept"
                );
            }
            return Ok(None);
        };
        match self.spending.admit(bytes, &reading, spare(&reading)) {
            Some(coming) => Ok(Some(coming)),
            None => Err(self.room(reading.available)),
        }
    }

    /// The host's memory now, where it is known. Reads files.
    pub(crate) fn look(&self) -> Option<HostRoom> {
        self.system.within_groups().map(|memory| self.room(memory.available))
    }

    fn room(&self, available: u64) -> HostRoom {
        HostRoom { available, reserve: self.bytes(), usual: self.usual }
    }
}
