//! Memory that is a device's and the host's at once: bytes held by devices and pinned bytes share one budget.
//!
//! Devices count pinned bytes next to those they hold, under the lock of their limits. Before pinned memory takes any,
//! it asks all devices of its backend that share its memory, of whichever allocator. Where either is short, the other
//! gives back its unused cache, and either waits for the other's memory in flight: the tickets of both are in one list.
//!
//! ```text
//! a request of device memory   admit: held + pinned + asked <= limit          miss: Unified::ask_caches
//! a request of pinned memory   Unified::claim -> Sharing::admit, each device  remedies: Unified::ask_devices
//! memory on its way            Unified::slow_path, of devices and of pinned memory
//! ```

use super::host_reserve::{Coming, HostReserve, HostRoom, Spending};
use super::leaked_list::LeakedList;
use super::pinned::Pins;
use super::system::{Shared, SharedMemory, System};
use crate::backend::{Backend, BackendError};
use crate::base::round::format_bytes;
use crate::sync::{Arc, Flight, InFlight, MemoryInFlight, Mutex, Rank, SlowPath, this_thread};
use crate::types::{BackendId, DeviceIndex};
use std::fmt;

/// A device whose memory pinned memory lies in.
pub(crate) trait SharesMemory: Send + Sync {
    /// Host memory that it leaves free.
    fn reserve(&self) -> Option<&HostReserve>;
    /// Refusal of bytes that are to be pinned, for the host's sake.
    fn refusal(&self, bytes: u64, host: HostRoom) -> Box<PinnedRefusal>;
    /// Counts bytes that are to be pinned, if the device's limits admit them next to what it holds. Takes a lock; calls nobody.
    fn admit(&self, bytes: u64) -> Result<(), Box<PinnedRefusal>>;
    /// Sets the bytes pinned. Takes a lock; calls nobody.
    fn note(&self, pinned: u64);
    /// Gives cached memory back; if it may wait, also memory that the device is done with then. Calls the driver.
    fn give_back(&self, may_wait: bool);
    /// Tells observers of crossings. Runs the program's code.
    fn tell(&self);
}

/// Unit of `pinned_sizes:granule`.
const PAGE: u64 = 4096;

/// Refusal to pin memory: with what the device holds it would be more than a limit allows. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedRefusal {
    /// `CUDA`, `HIP`, or what a vendor's backend calls itself.
    pub label: &'static str,
    /// The device that shares the memory.
    pub device: DeviceIndex,
    /// Bytes that were asked for.
    pub requested: u64,
    /// Bytes that were to be pinned for them.
    pub bytes: u64,
    /// Bytes that the device's allocator holds.
    pub held: u64,
    /// Bytes pinned already.
    pub pinned: u64,
    /// The limit, by its name.
    pub limit: String,
    /// Bytes that it allows, for both together.
    pub allowed: u64,
    /// The host's memory, where that is too short, and no limit refuses.
    pub host: Option<HostRoom>,
}

impl fmt::Display for PinnedRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, device, limit, .. } = self;
        let [requested, bytes, held, pinned, allowed] =
            [self.requested, self.bytes, self.held, self.pinned, self.allowed].map(format_bytes);
        write!(f, "{label} out of memory. Tried to pin {bytes} of host memory")?;
        if self.bytes.saturating_sub(self.requested) >= PAGE {
            write!(f, " for {requested} that were asked for (pinned_sizes:granule takes whole pages)")?;
        }
        if let Some(host) = &self.host {
            return write!(f, ". {host}");
        }
        write!(
            f,
            ", which is the memory of device {device}, too: {held} are held as device memory and {pinned} as pinned memory, and {limit} allows {allowed} for both together. Freeing either \
             would help, or raising {limit}"
        )
    }
}

/// Memory that devices of a backend share with the host.
pub(crate) struct Unified {
    backend: BackendId,
    memory: Shared,
    spending: Spending,
    parties: Mutex<Parties>,
    /// Memory in flight: of devices, and pinned memory that comes or goes.
    slow_path: Arc<SlowPath>,
    /// Visits to parties, by their number.
    visits: InFlight<u64>,
}

impl fmt::Debug for Unified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, memory, .. } = self;
        f.debug_struct("Unified").field("backend", backend).field("memory", memory).finish_non_exhaustive()
    }
}

/// Parties that share the memory. A party leaves before its owner goes.
#[derive(Default)]
struct Parties {
    /// Bytes that are pinned, or about to be.
    pinned: u64,
    joined: u64,
    devices: Vec<(u64, Arc<dyn SharesMemory>)>,
    caches: Vec<(u64, Arc<dyn Pins>)>,
}

/// One for every backend that has such devices.
static ALL: LeakedList<Unified> = LeakedList::new();

/// A party, while it is asked for something.
struct PartyVisit<'u, P: ?Sized> {
    // Given up before the visit ends: a party that leaves waits for that, unless it is this very thread.
    party: Arc<P>,
    _under_way: Flight<'u, u64>,
}

/// Pinned memory in flight until this is dropped; then observers of devices are told of crossings. Its thread calls the
/// driver alone meanwhile, so threads that wait for it wait for nobody else. Drop it without a lock.
#[derive(Debug)]
pub(crate) struct PinnedInFlight {
    unified: &'static Unified,
    /// There until this is dropped.
    ticket: Option<MemoryInFlight<'static>>,
}

impl Drop for PinnedInFlight {
    fn drop(&mut self) {
        drop(self.ticket.take());
        self.unified.tell_devices();
    }
}

/// Membership of a party that shares the memory.
#[derive(Debug)]
pub(crate) struct Membership {
    unified: &'static Unified,
    number: u64,
}

impl Unified {
    /// The memory `memory` of a backend's devices.
    pub(crate) fn of(backend: BackendId, memory: Shared) -> &'static Self {
        let is_meant = |one: &Self| one.backend == backend && one.memory == memory;
        ALL.find_or_add(is_meant, || {
            let parties = Mutex::new(Rank::Unified, Parties::default());
            let (spending, slow_path, visits) = (Spending::default(), Arc::default(), InFlight::default());
            Self { backend, memory, spending, parties, slow_path, visits }
        })
    }

    /// Memory of pages on `node`, or on the system's choice of node, if devices share that. Calls the driver.
    pub(crate) fn of_pages(
        system: &System,
        backend: &dyn Backend,
        node: Option<u32>,
    ) -> Option<&'static Self> {
        let failed = |error: &BackendError| {
            backend.clear_error();
            tracing::warn!(
                %error,
                "the driver does not say what devices there are; what is pinned counts for none of them"
            );
        };
        let count = backend.device_count().inspect_err(failed).unwrap_or(0);
        let shared = (0..count).filter_map(|device| SharedMemory::of(system, backend, DeviceIndex(device)));
        let holds = |memory: &Shared| match memory {
            Shared::Host => true,
            Shared::Node(of_device) => node == Some(*of_device),
            Shared::Aside => false,
        };
        shared.map(|memory| memory.which).find(holds).map(|memory| Self::of(backend.id(), memory))
    }

    /// Adds a device that has its memory there.
    pub(crate) fn join_device(&'static self, device: Arc<dyn SharesMemory>) -> Membership {
        let mut parties = self.parties.lock();
        device.note(parties.pinned);
        let number = parties.number();
        parties.devices.push((number, device));
        Membership { unified: self, number }
    }

    /// Adds an allocator that pins memory there.
    pub(crate) fn join_cache(&'static self, cache: Arc<dyn Pins>) -> Membership {
        let mut parties = self.parties.lock();
        let number = parties.number();
        parties.caches.push((number, cache));
        Membership { unified: self, number }
    }

    /// The slow path of devices and of pinned memory.
    pub(crate) fn slow_path(&self) -> &Arc<SlowPath> {
        &self.slow_path
    }

    /// Marks pinned memory in flight, taken or given back by the calling thread, while the guard lives.
    pub(crate) fn moving(&'static self) -> PinnedInFlight {
        PinnedInFlight { unified: self, ticket: Some(self.slow_path.begin()) }
    }

    /// Host memory that a device leaves free.
    pub(crate) fn reserve(&'static self, system: &System, room: &HostRoom) -> HostReserve {
        HostReserve::new(&self.spending, system, room)
    }

    /// Counts bytes that are to be pinned, if every device's limits admit them, and the host has them to spare. They
    /// are in flight while the guard lives. Hold no lock.
    pub(crate) fn claim(&self, bytes: u64) -> Result<Option<Coming>, Box<PinnedRefusal>> {
        let visits = self.visit(&self.parties.lock().devices);
        let most =
            |visit: &&PartyVisit<'_, dyn SharesMemory>| visit.party.reserve().map_or(0, HostReserve::bytes);
        let coming = match visits.iter().max_by_key(most).map(|visit| &visit.party) {
            Some(device) => {
                let coming = device.reserve().map_or(Ok(None), |reserve| reserve.admit(bytes));
                coming.map_err(|host| device.refusal(bytes, host))?
            }
            None => None,
        };
        drop(visits);
        let mut parties = self.parties.lock();
        for at in 0..parties.devices.len() {
            if let Err(refused) = parties.devices[at].1.admit(bytes) {
                parties.tell(at);
                return Err(refused);
            }
        }
        parties.pinned = parties.pinned.saturating_add(bytes);
        Ok(coming)
    }

    /// The host's memory, where a device shares it and it is too short for these bytes. Reads files. Hold no lock.
    pub(crate) fn short_host(&self, bytes: u64) -> Option<HostRoom> {
        let visits = self.visit(&self.parties.lock().devices);
        let mut rooms = visits.iter().filter_map(|visit| visit.party.reserve()?.look());
        rooms.find(|room| room.is_short_of(bytes))
    }

    /// Counts bytes that are pinned no more.
    pub(crate) fn give_up(&self, bytes: u64) {
        let mut parties = self.parties.lock();
        parties.pinned = parties.pinned.saturating_sub(bytes);
        parties.tell(parties.devices.len());
    }

    /// Asks allocators of pinned memory for unused memory. `false` where none had any. Hold no lock.
    pub(crate) fn ask_caches(&self, may_wait: bool) -> bool {
        // Another thread may give it back first.
        let any = self.parties.lock().pinned > 0;
        if any {
            let visits = self.visit(&self.parties.lock().caches);
            visits.iter().for_each(|visit| visit.party.give_back(may_wait));
        }
        any
    }

    /// Asks devices for unused memory. Hold no lock.
    pub(crate) fn ask_devices(&self, may_wait: bool) {
        let visits = self.visit(&self.parties.lock().devices);
        visits.iter().for_each(|visit| visit.party.give_back(may_wait));
    }

    /// Tells observers of devices about crossings that pinned memory caused. Hold no lock.
    fn tell_devices(&self) {
        let visits = self.visit(&self.parties.lock().devices);
        visits.iter().for_each(|visit| visit.party.tell());
    }

    fn visit<P: ?Sized>(&self, parties: &[(u64, Arc<P>)]) -> Vec<PartyVisit<'_, P>> {
        let visit = |(number, party): &(u64, Arc<P>)| PartyVisit {
            party: Arc::clone(party),
            _under_way: self.visits.begin(*number),
        };
        parties.iter().map(visit).collect()
    }
}

impl Parties {
    fn number(&mut self) -> u64 {
        self.joined += 1;
        self.joined
    }

    /// Tells the first `count` devices how many bytes are pinned.
    fn tell(&self, count: usize) {
        self.devices.iter().take(count).for_each(|(_, device)| device.note(self.pinned));
    }
}

impl Membership {
    /// Removes the party. Where it `waits`, nobody visits it any more then, unless that is the calling thread.
    pub(crate) fn end(&self, waits: bool) {
        let gone = {
            let mut parties = self.unified.parties.lock();
            let mine = |number: &u64| *number == self.number;
            let device = parties.devices.iter().position(|(number, _)| mine(number));
            let cache = parties.caches.iter().position(|(number, _)| mine(number));
            (device.map(|at| parties.devices.remove(at)), cache.map(|at| parties.caches.remove(at)))
        };
        drop(gone);
        if waits {
            let me = this_thread();
            let others = |visitor, number: &u64| *number == self.number && visitor != me;
            self.unified.visits.wait_for(others, || None::<()>);
        }
    }
}
