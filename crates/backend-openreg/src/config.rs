//! How a simulated machine is set up.

use crate::os::page;
use crate::{CostModel, Links};
use backend_api::types::{DeviceIndex, GIB, MIB};
use bitflags::bitflags;

/// What device memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryMode {
    /// Addresses only. Memory of any size costs nothing; copies and fills are checked and move no bytes.
    Reserved,
    /// Real bytes, in memory files mapped at device addresses. The host faults when it touches them
    /// outside of [`Driver::unprotect`](crate::Driver::unprotect).
    Mapped,
}

impl MemoryMode {
    /// How a machine's memory is called in names.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Mapped => "mapped",
        }
    }
}

/// How time passes on the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// A thread per stream does the work while the caller goes on.
    Workers,
    /// No threads: an operation completes when `lag` further ticks have passed, in the calls that make them
    /// pass. Every queued operation is one tick ([`OpenRegConfig::operations_tick`]); [`OpenReg::advance`](crate::OpenReg::advance) adds more.
    /// With a lag of 0 all work completes at once. Waiting calls complete what they wait for. The virtual
    /// time is one microsecond per tick, plus the length of kernels and of delays in the fault plan.
    Virtual {
        /// Ticks between queueing an operation and its completion.
        lag: u64,
    },
    /// Real time, of which work takes none: it is done in the call that queues it. A host function runs in a thread
    /// of its stream, and what comes after it waits for it there.
    AtOnce,
}

impl Clock {
    /// Whether streams have threads.
    pub(crate) const fn is_real(self) -> bool {
        matches!(self, Self::Workers | Self::AtOnce)
    }
}

bitflags! {
    /// Optional parts of the contract that a machine offers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Families: u32 {
        /// Reserve, create, map.
        const VIRTUAL_MEMORY = 1;
        /// Sharing with other processes (mapped memory only).
        const IPC = 1 << 1;
        /// Reaching another device's memory.
        const PEERS = 1 << 2;
        /// Stream capture.
        const CAPTURE = 1 << 3;
        /// Page-locking of memory that exists.
        const HOST_REGISTRATION = 1 << 4;
        /// Events with time stamps.
        const EVENT_TIMING = 1 << 5;
        /// Page-locked host memory.
        const PINNED_HOST = 1 << 6;
        /// Giving physical memory to other processes.
        const PHYSICAL_SHARING = 1 << 7;
    }
}

/// The set-up of a simulated machine; see the setters for what can be chosen.
///
/// ```
/// use backend_api::types::DeviceIndex;
/// use backend_openreg::{Clock, OpenReg, OpenRegConfig};
///
/// let config = OpenRegConfig::default().devices(1).capacity(8 << 30).clock(Clock::Virtual { lag: 3 });
/// let machine = OpenReg::new(config)?;
/// assert_eq!(machine.capacity(DeviceIndex(0)), 8 << 30);
/// # Ok::<(), backend_api::BackendError>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenRegConfig {
    pub(crate) devices: u16,
    pub(crate) capacity: Option<u64>,
    pub(crate) memory: MemoryMode,
    pub(crate) clock: Clock,
    pub(crate) granularity: u64,
    pub(crate) families: Families,
    pub(crate) costs: CostModel,
    pub(crate) links: Option<Links>,
    pub(crate) no_peer: Vec<(DeviceIndex, DeviceIndex)>,
    pub(crate) concurrency: u32,
    pub(crate) reuse_handles: bool,
    pub(crate) operations_tick: bool,
    pub(crate) prefix_maps: bool,
    pub(crate) aliases: bool,
    pub(crate) addresses: Option<u64>,
    pub(crate) context: u64,
    pub(crate) resident: u64,
    pub(crate) address_sharing: bool,
    pub(crate) read_back: bool,
    pub(crate) waiting_frees: bool,
    pub(crate) maps_during_capture: bool,
}

impl Default for OpenRegConfig {
    /// Two devices with reserved memory and a virtual clock without lag; every family; all devices are peers.
    fn default() -> Self {
        Self {
            devices: 2,
            capacity: None,
            memory: MemoryMode::Reserved,
            clock: Clock::Virtual { lag: 0 },
            granularity: 2 * MIB,
            families: Families::all(),
            costs: CostModel::default(),
            links: None,
            no_peer: Vec::new(),
            concurrency: 16,
            reuse_handles: false,
            operations_tick: true,
            prefix_maps: false,
            aliases: true,
            addresses: None,
            context: 0,
            resident: 0,
            address_sharing: false,
            read_back: false,
            waiting_frees: false,
            maps_during_capture: false,
        }
    }
}

impl OpenRegConfig {
    /// How many devices (0 to 64). Default 2.
    #[must_use]
    pub const fn devices(mut self, devices: u16) -> Self {
        self.devices = devices;
        self
    }

    /// Lets calls about virtual memory alone while a stream is captured, as current drivers do. By default they are refused,
    /// and break the capture, as the contract allows.
    #[must_use]
    pub const fn maps_during_capture(mut self, allowed: bool) -> Self {
        self.maps_during_capture = allowed;
        self
    }

    /// How many devices it has.
    #[must_use]
    pub const fn device_count(&self) -> u16 {
        self.devices
    }

    /// Bytes of memory on each device. Default 80 GiB reserved, 256 MiB mapped.
    #[must_use]
    pub const fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// What memory is made of. Default [`MemoryMode::Reserved`].
    #[must_use]
    pub const fn memory(mut self, mode: MemoryMode) -> Self {
        self.memory = mode;
        self
    }

    /// How time passes. Default [`Clock::Virtual`] with lag 0.
    #[must_use]
    pub const fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The unit of virtual memory in bytes: a power of two from 4 KiB, and no less than a page of the host where memory is
    /// [mapped](MemoryMode::Mapped). Default 2 MiB.
    #[must_use]
    pub const fn granularity(mut self, bytes: u64) -> Self {
        self.granularity = bytes;
        self
    }

    /// Exactly these families.
    #[must_use]
    pub const fn families(mut self, families: Families) -> Self {
        self.families = families;
        self
    }

    /// Switches families off.
    #[must_use]
    pub const fn without(mut self, families: Families) -> Self {
        self.families = self.families.difference(families);
        self
    }

    /// Switches virtual memory off.
    #[must_use]
    pub const fn without_virtual_memory(self) -> Self {
        self.without(Families::VIRTUAL_MEMORY)
    }

    /// Switches event time stamps off.
    #[must_use]
    pub const fn without_event_timing(self) -> Self {
        self.without(Families::EVENT_TIMING)
    }

    /// What calls cost. Default [`CostModel::default`].
    #[must_use]
    pub fn costs(mut self, costs: CostModel) -> Self {
        self.costs = costs;
        self
    }

    /// Gives the devices links to the host: copies take their time while the host goes on, and
    /// [`Driver::elapsed`](crate::Driver::elapsed) says when all is over. Reserved memory then has no bytes on the
    /// host's side either: copies within the host move none, and page-locked memory may be larger than the host's. By
    /// default a copy costs the host what the [`CostModel`] says.
    #[must_use]
    pub const fn links(mut self, links: Links) -> Self {
        self.links = Some(links);
        self
    }

    /// Whether nothing on the host's side has bytes.
    pub(crate) fn is_without_bytes(&self) -> bool {
        self.links.is_some() && self.memory == MemoryMode::Reserved
    }

    /// `from` cannot reach `to`'s memory. By default every device reaches every other.
    #[must_use]
    pub fn without_peer(mut self, from: DeviceIndex, to: DeviceIndex) -> Self {
        self.no_peer.push((from, to));
        self
    }

    /// How many kernels and copies a device runs at the same time under [`Clock::Workers`]; urgent streams
    /// go first when there are more. Default 16.
    #[must_use]
    pub const fn concurrency(mut self, operations: u32) -> Self {
        self.concurrency = operations;
        self
    }

    /// Lets handle values of destroyed streams and events come back, as drivers do. By default they never
    /// do, so that a handle kept too long is noticed.
    #[must_use]
    pub const fn reuse_handles(mut self, reuse: bool) -> Self {
        self.reuse_handles = reuse;
        self
    }

    /// Whether queueing an operation is a tick of the virtual clock. Default true; without it only
    /// [`OpenReg::advance`](crate::OpenReg::advance) lets time pass.
    #[must_use]
    pub const fn operations_tick(mut self, tick: bool) -> Self {
        self.operations_tick = tick;
        self
    }

    /// Lets the first bytes of a physical handle be mapped alone, as some drivers do. The contract asks for whole handles,
    /// and by default anything else is refused.
    #[must_use]
    pub const fn prefix_maps(mut self, allowed: bool) -> Self {
        self.prefix_maps = allowed;
        self
    }

    /// A physical handle can be mapped at one address at a time only; a second mapping is `InvalidValue`. By default it can
    /// be mapped at several, as CUDA allows.
    #[must_use]
    pub const fn without_aliases(mut self) -> Self {
        self.aliases = false;
        self
    }

    /// Bytes of addresses that each device has, of which allocations and reservations take theirs: a power of two, for all
    /// devices together 64 TiB at most. Default: 8 TiB reserved, 256 GiB mapped.
    #[must_use]
    pub const fn addresses(mut self, bytes: u64) -> Self {
        self.addresses = Some(bytes);
        self
    }

    /// Bytes in use on each device before the first request, as a driver's context takes them. Default 0.
    #[must_use]
    pub const fn context(mut self, bytes: u64) -> Self {
        self.context = bytes;
        self
    }

    /// Bytes of released physical memory whose pages each device keeps for the next handles of the same size
    /// ([mapped](MemoryMode::Mapped) memory). The memory of a real device is there all the time: with enough of it kept,
    /// copies fault no pages after the first, and new memory holds what was last there. What others may have, because it
    /// was exported, is not kept. Default 0: pages go back to the host at once and new memory reads as zeroes, so that
    /// contents that were given up are seen to be lost.
    #[must_use]
    pub const fn resident(mut self, bytes: u64) -> Self {
        self.resident = bytes;
        self
    }

    /// Lets reserved memory be shared with other processes, too, by its addresses alone. Default: only memory with bytes
    /// is shared.
    #[must_use]
    pub const fn address_sharing(mut self, shared: bool) -> Self {
        self.address_sharing = shared;
        self
    }

    /// Lets copies of reserved memory to the host write there: zeros, or what
    /// [`set_read_back`](crate::Driver::set_read_back) and [`remember`](crate::Driver::remember) say. Copies of more
    /// than 1 MiB leave the host's memory as it was. Managed memory has pages of the host then. Default false.
    #[must_use]
    pub const fn read_back(mut self, reads: bool) -> Self {
        self.read_back = reads;
        self
    }

    /// Lets frees wait for what is queued on the device, as drivers do. By default, memory that queued work uses is not
    /// freed: a trap tells of it.
    #[must_use]
    pub const fn waiting_frees(mut self, waits: bool) -> Self {
        self.waiting_frees = waits;
        self
    }

    pub(crate) fn capacity_or_default(&self) -> u64 {
        self.capacity.unwrap_or(match self.memory {
            MemoryMode::Reserved => 80 * GIB,
            MemoryMode::Mapped => 256 * MIB,
        })
    }

    /// What is wrong with it, if anything.
    pub(crate) fn fault(&self) -> Option<String> {
        if self.devices > 64 {
            return Some(format!("{} devices were asked for; choose 64 or fewer", self.devices));
        }
        let least = match self.memory {
            MemoryMode::Reserved => 4096,
            MemoryMode::Mapped => page(),
        };
        if !self.granularity.is_power_of_two() || !(least..=GIB).contains(&self.granularity) {
            return Some(format!(
                "granularity {} is not a power of two from {} KiB to 1 GiB",
                self.granularity,
                least >> 10
            ));
        }
        let span = 1_u64 << 46;
        if let Some(bytes) = self.addresses
            && !(bytes.is_power_of_two() && (bytes * u64::from(self.devices.max(1))) <= span)
        {
            return Some(format!(
                "{bytes} bytes of addresses are no power of two, or too many for {} devices",
                self.devices
            ));
        }
        if self.concurrency == 0 {
            return Some("a device that runs 0 operations at a time never finishes; choose 1 or more".into());
        }
        None
    }
}
