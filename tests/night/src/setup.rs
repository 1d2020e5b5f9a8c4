//! What a seed says about the machines of a history and the allocators on them.

use alloc_core::config::{CrossStream, PolicyName, ReserveSize, Settings};
use alloc_core::types::MIB;
use backend_openreg::{Clock, MemoryMode, OpenRegConfig};
use fastrand::Rng;

/// The machines and allocators of one history.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Devices of each machine.
    pub devices: u16,
    /// Bytes of each device.
    pub capacity: u64,
    /// Whether devices have virtual memory.
    pub growable: bool,
    /// Whether memory can be mapped twice.
    pub aliases: bool,
    /// Whether streams get the handles of former ones.
    pub reuse: bool,
    machine: OpenRegConfig,
    /// The settings of each allocator, by machine. A machine stands for what processes share, if there are several.
    pub settings: Vec<Vec<Settings>>,
    /// Whether there is an allocator of page-locked memory.
    pub host: bool,
    /// Whether there are limits and tenants. Where there are none, no request is refused that has room.
    pub limits: bool,
    /// Whether processes reach each other's memory over a fabric.
    pub fabric: bool,
}

impl Setup {
    /// What follows from `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let r = &mut Rng::with_seed(seed ^ 0x0073_6574_7570);
        let devices = [1, 1, 1, 2, 2, 3, 4][r.usize(0..7)];
        let capacity = MIB * [64, 128, 256, 256, 512, 1024][r.usize(0..6)];
        let granularity = [2 * MIB, 2 * MIB, 2 * MIB, 64 << 10][r.usize(0..4)];
        let (virtual_memory, aliases, reuse) = (r.u8(0..8) > 0, r.u8(0..6) > 0, r.bool());
        let machine = OpenRegConfig::default()
            .devices(devices)
            .capacity(capacity)
            .memory(MemoryMode::Mapped)
            .granularity(granularity)
            .reuse_handles(reuse)
            .clock(Clock::Virtual { lag: [0, 0, 2, 10][r.usize(0..4)] });
        let machine = if virtual_memory { machine } else { machine.without_virtual_memory() };
        let machine = if aliases { machine } else { machine.without_aliases() };
        let mut count = || [1, 1, 1, 2][r.usize(0..4)];
        let counts: Vec<_> = (0..count()).map(|_| count()).collect();
        let settings = counts.into_iter().map(|count| (0..count).map(|_| settings(r)).collect()).collect();
        // Of their own, so that what was found before is found still.
        let later = &mut Rng::with_seed(seed ^ 0x6661_6272_6963);
        Self {
            devices,
            capacity,
            growable: virtual_memory,
            aliases,
            reuse,
            machine,
            settings,
            host: r.u8(0..3) > 0,
            limits: r.bool(),
            fabric: virtual_memory && later.u8(0..3) == 0,
        }
    }

    /// How each machine is set up.
    #[must_use]
    pub fn machine(&self) -> OpenRegConfig {
        self.machine.clone()
    }
}

fn settings(r: &mut Rng) -> Settings {
    let often = |r: &mut Rng| r.u8(0..3) == 0;
    let rarely = |r: &mut Rng| r.u8(0..8) == 0;
    let policy = if r.bool() { PolicyName::Granule } else { PolicyName::Pytorch };
    Settings {
        policy: Some(policy),
        expandable_segments: r.bool(),
        expandable_segments_reserve: rarely(r).then_some(ReserveSize::Bytes(80 * MIB)),
        max_split_size: if rarely(r) { [20 * MIB, 32 * MIB][r.usize(0..2)] } else { u64::MAX },
        roundup_power2_divisions: [if rarely(r) { 4 } else { 0 }; 16],
        garbage_collection_threshold: if rarely(r) { 0.6 } else { 0.0 },
        cross_stream: CrossStream::ALL[r.usize(0..CrossStream::ALL.len())],
        segments_ipc: r.u8(0..4) > 0,
        graph_capture_record_stream_reuse: often(r),
        throw_on_oom: rarely(r),
        history_max_entries: if often(r) { r.u64(1..500) } else { 0 },
        pinned_reserve_segment_size: if rarely(r) { MIB } else { 0 },
        pinned_use_host_register: rarely(r),
        ..Settings::default()
    }
}
