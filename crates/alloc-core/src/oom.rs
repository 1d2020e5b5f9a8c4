//! The out-of-memory report: PyTorch's message and figures, and what PyTorch does not say.

use crate::budget::Marks;
use crate::policy::{Policy, PytorchPolicy};
use crate::round::format_bytes;
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
    /// What to do.
    pub what: String,
    /// Bytes it would make available.
    pub bytes: u64,
    /// Whether that is enough for the request.
    pub enough: bool,
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
    /// What emptying the pool would give back to the device: whole segments and granules.
    pub releasable: u64,
}

/// The tenant whose pool a request went to. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantReport {
    /// Its name.
    pub name: Arc<str>,
    /// What its pools hold.
    pub held: u64,
    /// Its budget.
    pub marks: Marks,
    /// Whether its hard limit refuses the request.
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

/// Why a request could not be served. All sizes are bytes.
#[derive(Clone, Debug)]
pub struct OomReport {
    /// `CUDA`, `HIP`, ...
    pub label: &'static str,
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
    /// What was asked from the device (PyTorch's "Tried to allocate").
    pub tried: u64,
    /// The device's memory.
    pub device_total: u64,
    /// Of which the driver has free.
    pub device_free: u64,
    /// What this process may hold, if limited.
    pub allowed: Option<u64>,
    /// In the program's hands.
    pub allocated: u64,
    /// Held from the device.
    pub reserved: u64,
    /// Of the reserved bytes, those that private pools have free.
    pub private_free: u64,
    /// Given back and waiting for other streams.
    pub pending: u64,
    /// Memory of the device by process; empty where nobody tells
    /// ([`set_process_memory_source`](crate::allocator::CachingAllocator::set_process_memory_source)).
    pub processes: Vec<ProcessMemory>,
    /// Bytes of live memory that sleep: they take none of the device.
    pub asleep: u64,
    /// The limit of the request's pool, where that is what refuses it.
    pub pool_limit: Option<u64>,
    /// The pool's tenant.
    pub tenant: Option<TenantReport>,
    /// What is guaranteed to other tenants and not used by them, where that is what refuses the request.
    pub kept_for_others: Option<u64>,
    /// Whether the pool's own source of memory refused.
    pub source_refused: bool,
    /// Pools that hold free memory, the one with most first.
    pub pools: Vec<PoolCache>,
    /// The largest free block that this request's stream and tier has.
    pub largest_fit: u64,
    /// The largest free block of any stream.
    pub largest_anywhere: u64,
    /// Live blocks of this stream and tier with the most free memory beside them, worst first.
    pub blockers: Vec<Blocker>,
    /// What would help, what is enough first. All remedies of the ladder were tried before this report.
    pub remedies: Vec<Remedy>,
    /// The policy, by its name.
    pub policy: &'static str,
    /// Whether growable segments are on.
    pub growable: bool,
    /// The address space a growable segment reserves, where it is too small for the request.
    pub reserve_too_small: Option<u64>,
    /// The stream's reserve class, if it has one.
    pub reserve_class: Option<String>,
}

const DOCUMENTATION: &str = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf";

impl OomReport {
    /// The text PyTorch's allocator would give, word for word.
    #[must_use]
    pub fn pytorch_message(&self) -> String {
        let private = self.private_free;
        let idle = self.reserved.saturating_sub(self.allocated).saturating_sub(private);
        let allowed = self.allowed.map(|a| format!("{} allowed; ", format_bytes(a))).unwrap_or_default();
        let graphs = match private {
            0 => String::new(),
            _ => format!("with {} allocated in private pools (e.g., CUDA Graphs), ", format_bytes(private)),
        };
        format!(
            "{} out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free. \
             {}{allowed}Of the allocated memory {} is allocated by PyTorch, {graphs}and {} is reserved by PyTorch but \
             unallocated.{}{}",
            self.label,
            format_bytes(self.tried),
            self.device,
            format_bytes(self.device_total),
            format_bytes(self.device_free),
            self.in_processes(),
            format_bytes(self.allocated + private),
            format_bytes(idle),
            self.hint(),
            self.source_hint(),
        )
    }

    fn in_processes(&self) -> String {
        let sentence = |process: &ProcessMemory| {
            let used = format_bytes(process.bytes);
            if process.pid == std::process::id() {
                format!("Including non-PyTorch memory, this process has {used} memory in use. ")
            } else {
                format!("Process {} has {used} memory in use. ", process.pid)
            }
        };
        self.processes.iter().map(sentence).collect()
    }

    fn hint(&self) -> String {
        let Some(reserve) = self.reserve_too_small else {
            return self.usual_hint();
        };
        let whose = match &self.reserve_class {
            Some(class) => format!("stream reserve class '{class}'"),
            None => "this stream".into(),
        };
        format!(
            " This allocation exceeds the expandable-segment reserve of {} for {whose}, and a single allocation cannot \
             span expandable segments. Raise PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve or \
             expandable_segments_reserve_by_class (or unset it) so that a segment is at least {}.",
            format_bytes(reserve),
            format_bytes(self.tried)
        )
    }

    fn usual_hint(&self) -> String {
        // What PyTorch advises are settings of its own policy.
        if self.policy != PytorchPolicy::NAME {
            return String::new();
        }
        if self.growable {
            return " expandable_segments is enabled. If instead the process is running out of virtual address space \
                    (VSZ), expandable segments may be over-reserving VA (each segment reserves ~9/8 of device memory, \
                    times the number of streams); reduce it via PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / \
                    expandable_segments_reserve_by_class."
                .into();
        }
        format!(
            " If reserved but unallocated memory is large try setting \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for \
             Memory Management  ({DOCUMENTATION})"
        )
    }

    const fn source_hint(&self) -> &'static str {
        if !self.source_refused {
            return "";
        }
        " The custom allocator backing this MemPool returned nullptr. Check preceding allocator warnings or logs for \
         the underlying cause. This can indicate an allocator-specific error or memory constraint, even when \
         device-wide free memory is available."
    }
}

impl OomReport {
    /// Bytes that live memory and the request need beyond what may be held: no setting helps with those.
    #[must_use]
    pub fn shortfall(&self) -> u64 {
        let limit = self.allowed.unwrap_or(u64::MAX).min(self.device_total);
        let awake = (self.allocated + self.pending).saturating_sub(self.asleep);
        awake.saturating_add(self.block_size).saturating_sub(limit)
    }
}

impl fmt::Display for OomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.pytorch_message())?;
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
        if self.source_refused {
            write!(f, "\n  pool {} has a source of its own, which had no memory for it", self.pool)?;
        }
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
