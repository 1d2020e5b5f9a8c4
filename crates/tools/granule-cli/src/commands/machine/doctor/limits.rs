//! What the system is, and what it lets a process have.

use granule::system::{ControlGroups, System};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// The system.
#[derive(Serialize)]
pub(super) struct Machine {
    pub(super) kernel: String,
    pub(super) architecture: String,
    pub(super) page_bytes: u64,
    pub(super) memory_bytes: Option<u64>,
    pub(super) available_bytes: Option<u64>,
    /// What is left of it to other programs, where a device takes its memory from there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host_reserve_bytes: Option<u64>,
}

impl Machine {
    pub(super) fn here(system: &System) -> Self {
        // The name of the machine is left out.
        let uname = rustix::system::uname();
        let memory = system.memory();
        Self {
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            architecture: uname.machine().to_string_lossy().into_owned(),
            page_bytes: rustix::param::page_size() as u64,
            memory_bytes: memory.map(|memory| memory.total),
            available_bytes: memory.map(|memory| memory.available),
            host_reserve_bytes: None,
        }
    }
}

/// A limit that a process may raise up to another; absent where there is none.
#[derive(Serialize)]
pub(super) struct Limit {
    pub(super) now: Option<u64>,
    pub(super) at_most: Option<u64>,
}

impl Limit {
    fn of(resource: Resource) -> Self {
        let limit = getrlimit(resource);
        Self { now: limit.current, at_most: limit.maximum }
    }
}

/// A file system in memory.
#[derive(Serialize)]
pub(super) struct SharedMemory {
    pub(super) bytes: u64,
    pub(super) free_bytes: u64,
}

/// The least of what control groups allow, and of what they leave.
#[derive(Serialize)]
pub(super) struct ControlGroup {
    pub(super) limit_bytes: u64,
    pub(super) left_bytes: u64,
}

/// What a process can have.
#[derive(Serialize)]
pub(super) struct Limits {
    pub(super) open_files: Limit,
    pub(super) locked_bytes: Limit,
    pub(super) address_space_bytes: Limit,
    pub(super) shared_memory: Option<SharedMemory>,
    pub(super) control_group: Option<ControlGroup>,
}

impl Limits {
    pub(super) fn here(system: &System) -> Self {
        let shared_memory = rustix::fs::statvfs("/dev/shm").ok().map(|there| SharedMemory {
            bytes: there.f_blocks.saturating_mul(there.f_frsize),
            free_bytes: there.f_bavail.saturating_mul(there.f_frsize),
        });
        let ControlGroups { limit, left, .. } = system.control_groups();
        let control_group =
            (limit < u64::MAX).then_some(ControlGroup { limit_bytes: limit, left_bytes: left });
        Self {
            open_files: Limit::of(Resource::Nofile),
            locked_bytes: Limit::of(Resource::Memlock),
            address_space_bytes: Limit::of(Resource::As),
            shared_memory,
            control_group,
        }
    }
}
