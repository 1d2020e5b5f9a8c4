//! The out-of-memory report, in Granule's words; `oom/pytorch.rs` has PyTorch's.

mod pytorch_words;

use crate::base::round::format_bytes;
use crate::base::tenant_marks::Marks;
use crate::config::PytorchRelease;
pub use crate::process::host_reserve::HostRoom;
pub use crate::process::unified::PinnedRefusal;
use crate::sync::Arc;
use crate::types::{DeviceIndex, DevicePtr, PoolId, Stream};
use std::fmt;

/// A live block that keeps free memory around it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Its address.
    pub ptr: DevicePtr,
    /// Its size in bytes.
    pub size: u64,
    /// The free bytes on both its sides.
    pub beside: u64,
}

impl Blocker {
    /// The contiguous free bytes there would be without it.
    #[must_use]
    pub const fn would_free(&self) -> u64 {
        self.size + self.beside
    }
}

/// Something that would make memory available, and how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Action to take.
    pub what: String,
    /// Bytes it would make available.
    pub bytes: u64,
    /// True if that is enough for the request.
    pub enough: bool,
}

/// Memory that lacked when a request was refused, after all remedies. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Free memory that the request could get in one piece: a block, or memory that the policy can show side by side.
    pub in_one_piece: u64,
    /// Free memory of the same stream and tier beside it, in pieces that cannot be joined with that.
    pub in_pieces: u64,
    /// Bytes that would have to be taken from the device.
    pub missing: u64,
    /// Bytes that may be taken from it.
    pub available: u64,
    /// Source of that bound: the device, or a limit by its name.
    pub set_by: String,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { in_one_piece, in_pieces, missing, available, set_by } = self;
        let [one, pieces, missing, available] =
            [in_one_piece, in_pieces, missing, available].map(|bytes| format_bytes(*bytes));
        write!(f, "{one} of free memory can serve it in one piece, {pieces} lie in pieces that cannot be ")?;
        write!(
            f,
            "joined with that; {missing} would have to be taken, and {available} can be (bound: {set_by})"
        )
    }
}

/// Memory of a device that a process uses, as the vendor's management library counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// The process.
    pub pid: u32,
    /// Bytes it uses on the device, whatever for.
    pub bytes: u64,
}

/// Free memory that a pool holds. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolCache {
    /// The pool.
    pub pool: PoolId,
    /// Free, of all streams and tiers.
    pub free: u64,
    /// The largest free block.
    pub largest: u64,
    /// Bytes that emptying the pool would give back to the device: whole segments and granules.
    pub releasable: u64,
}

/// The tenant whose pool a request went to. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantReport {
    /// Its name.
    pub name: Arc<str>,
    /// Bytes that its pools hold.
    pub held: u64,
    /// Its budget.
    pub marks: Marks,
    /// True if its hard limit refuses the request.
    pub refuses: bool,
}

impl fmt::Display for TenantReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tenant {:?} holds {}", self.name, format_bytes(self.held))?;
        let Marks { guarantee, soft, hard } = self.marks;
        for (what, bytes) in [("guaranteed", Some(guarantee)), ("soft limit", soft), ("hard limit", hard)] {
            if let Some(bytes) = bytes.filter(|bytes| *bytes > 0) {
                write!(f, ", {what} {}", format_bytes(bytes))?;
            }
        }
        if self.refuses { f.write_str(": it may hold no more") } else { Ok(()) }
    }
}

/// Report of a request that could not be served. All sizes are bytes.
#[derive(Clone, Debug)]
pub struct OomReport {
    /// `CUDA`, `HIP`, or what a vendor's backend calls itself.
    pub label: &'static str,
    /// The backend's name.
    pub backend: &'static str,
    /// The device.
    pub device: DeviceIndex,
    /// The stream the request was for.
    pub stream: Stream,
    /// The pool it went to.
    pub pool: PoolId,
    /// As the program asked.
    pub requested: u64,
    /// The block that would serve it.
    pub block_size: u64,
    /// Bytes asked from the device (PyTorch's "Tried to allocate").
    pub tried: u64,
    /// The device's memory.
    pub device_total: u64,
    /// The part of it that the driver has free.
    pub device_free: u64,
    /// Most that this process may hold, if limited.
    pub allowed: Option<u64>,
    /// In the program's hands.
    pub allocated: u64,
    /// Held from the device.
    pub reserved: u64,
    /// Host memory that is pinned in the device's memory, and counts against limits, too; 0 where the device has memory
    /// of its own.
    pub pinned: u64,
    /// The host's memory, where the device's is of it.
    pub host: Option<HostRoom>,
    /// Of the reserved bytes, those that private pools have free.
    pub private_free: u64,
    /// Given back and waiting for other streams.
    pub pending: u64,
    /// Memory of the device by process; empty where nobody tells
    /// ([`set_process_memory_source`](crate::allocator::Hooks::set_process_memory_source)).
    pub processes: Vec<ProcessMemory>,
    /// Bytes of live memory that sleep: they take none of the device.
    pub asleep: u64,
    /// The limit of the request's pool, if that refuses it.
    pub pool_limit: Option<u64>,
    /// The pool's tenant.
    pub tenant: Option<TenantReport>,
    /// Bytes guaranteed to other tenants and not used by them, if that refuses the request.
    pub kept_for_others: Option<u64>,
    /// True if the pool's own source of memory refused.
    pub source_refused: bool,
    /// Pools that hold free memory, the one with most first.
    pub pools: Vec<PoolCache>,
    /// Memory that lacked.
    pub bound: Bound,
    /// The largest free block that this request's stream and tier has.
    pub largest_fit: u64,
    /// The largest free block of any stream.
    pub largest_anywhere: u64,
    /// Live blocks of this stream and tier with the most free memory beside them, worst first.
    pub blockers: Vec<Blocker>,
    /// Remedies left to the program, sufficient ones first. The engine's own were tried before this report.
    pub remedies: Vec<Remedy>,
    /// The policy, by its name.
    pub policy: &'static str,
    /// The release of PyTorch that [`pytorch_message`](Self::pytorch_message) speaks as.
    pub pytorch_release: PytorchRelease,
    /// True if growable segments are on.
    pub growable: bool,
    /// The address space a growable segment reserves, where it is too small for the request.
    pub reserve_too_small: Option<u64>,
    /// The stream's reserve class, if it has one.
    pub reserve_class: Option<String>,
}

impl OomReport {
    /// The failure in one paragraph, for a program in which PyTorch does not run.
    #[must_use]
    pub fn message(&self) -> String {
        let bytes = format_bytes;
        let idle = self.reserved.saturating_sub(self.allocated).saturating_sub(self.private_free);
        let allowed = self.allowed.map(|allowed| format!(" {} may be held.", bytes(allowed)));
        let private = match self.private_free {
            0 => String::new(),
            free => format!(", {} are free in private pools", bytes(free)),
        };
        format!(
            "{} out of memory. Tried to allocate {}. Device {} ({}) has a total capacity of {}, of which {} is free.{}{} Of \
             {} held, {} are in use{private} and {} are free.{}{}{}{}",
            self.label,
            bytes(self.tried),
            self.device,
            self.backend,
            bytes(self.device_total),
            bytes(self.device_free),
            self.in_processes(),
            allowed.unwrap_or_default(),
            bytes(self.reserved),
            bytes(self.allocated),
            bytes(idle),
            self.pinned_beside(),
            self.of_host(),
            self.own_source(),
            self.reserve_hint(),
        )
    }

    fn pinned_beside(&self) -> String {
        if self.pinned == 0 {
            return String::new();
        }
        format!(
            " This device shares the host's memory: {} of it are pinned host memory of this process, and limits count both.",
            format_bytes(self.pinned)
        )
    }

    /// Sentence about a host that is short of memory: `host_reserve` refuses or, where it is off, would have refused.
    fn of_host(&self) -> String {
        let short = self.host.filter(|host| host.is_short_of(self.bound.missing));
        short.map_or_else(String::new, |host| format!(" {host}."))
    }

    fn own_source(&self) -> String {
        if !self.source_refused {
            return String::new();
        }
        format!(
            " Pool {} has a source of memory of its own, which had none for this request: see what it logged.",
            self.pool
        )
    }

    fn in_processes(&self) -> String {
        let own = std::process::id();
        let used = |process: &ProcessMemory| match (process.pid == own, format_bytes(process.bytes)) {
            (true, used) => format!(" This process uses {used}, other libraries in it included."),
            (false, used) => format!(" Process {} uses {used}.", process.pid),
        };
        self.processes.iter().map(used).collect()
    }

    fn reserve_hint(&self) -> String {
        let Some(reserve) = self.reserve_too_small else { return String::new() };
        format!(
            " A growable segment of {} reserves {} of address space, and a block lies within one: raise {} (or unset it), \
             so that a segment has {} at least.",
            match &self.reserve_class {
                Some(class) => format!("stream reserve class '{class}'"),
                None => "this stream".into(),
            },
            format_bytes(reserve),
            match &self.reserve_class {
                Some(_) => "expandable_segments_reserve_by_class",
                None => "expandable_segments_reserve",
            },
            format_bytes(self.tried)
        )
    }

    /// Bytes beyond what may be held, of live memory, pinned memory beside it and the request. No setting helps with
    /// those.
    #[must_use]
    pub fn shortfall(&self) -> u64 {
        let limit = self.allowed.unwrap_or(u64::MAX).min(self.device_total);
        let awake = (self.allocated + self.pending).saturating_sub(self.asleep);
        awake.saturating_add(self.pinned).saturating_add(self.block_size).saturating_sub(limit)
    }

    /// Writes the blockers, the pools with free memory, and the remedies.
    fn fmt_ways_out(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for blocker in &self.blockers {
            write!(
                f,
                "\n  blocker: {} ({}) has {} free beside it; without it {} would be free in one piece",
                blocker.ptr,
                format_bytes(blocker.size),
                format_bytes(blocker.beside),
                format_bytes(blocker.would_free())
            )?;
        }
        for PoolCache { pool, free, largest, releasable } in &self.pools {
            write!(
                f,
                "\n  pool {pool} has {} free, at most {} in one piece, {} of it in whole segments or granules",
                format_bytes(*free),
                format_bytes(*largest),
                format_bytes(*releasable)
            )?;
        }
        for remedy in &self.remedies {
            let verdict = if remedy.enough { "enough" } else { "not enough by itself" };
            write!(f, "\n  remedy: {} would give {}: {verdict}", remedy.what, format_bytes(remedy.bytes))?;
        }
        Ok(())
    }
}

impl fmt::Display for OomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.message())?;
        write!(
            f,
            "Granule: {} were asked for, which takes one block of {}. The largest free block this request may use has \
             {}, the largest of any stream {}.",
            format_bytes(self.requested),
            format_bytes(self.block_size),
            format_bytes(self.largest_fit),
            format_bytes(self.largest_anywhere),
        )?;
        if self.pending > 0 {
            write!(f, " {} were given back and wait for other streams.", format_bytes(self.pending))?;
        }
        write!(f, "\n  no fit: {}", self.bound)?;
        if let Some(limit) = self.pool_limit {
            write!(f, "\n  pool {} may hold {} and no more", self.pool, format_bytes(limit))?;
        }
        if let Some(tenant) = &self.tenant {
            write!(f, "\n  {tenant}")?;
        }
        if let Some(kept) = self.kept_for_others {
            write!(f, "\n  {} are guaranteed to other tenants and kept free for them", format_bytes(kept))?;
        }
        if self.asleep > 0 {
            write!(
                f,
                "\n  {} of what is allocated sleep and take none of the device",
                format_bytes(self.asleep)
            )?;
        }
        if self.shortfall() > 0 {
            write!(
                f,
                "\n  live memory and the request need {} more than can be held: free that much, or use a larger device",
                format_bytes(self.shortfall())
            )?;
        }
        self.fmt_ways_out(f)
    }
}
