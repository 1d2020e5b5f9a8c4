//! The same report in PyTorch's words: frameworks and their users look for them.

use super::{OomReport, ProcessMemory};
use crate::base::round::format_bytes;
use crate::config::{PolicyName, PytorchRelease};

const DOCUMENTATION: &str = "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf";

impl OomReport {
    /// The text PyTorch's allocator would give, word for word, in the release that `pytorch_release` names: for
    /// programs in which PyTorch runs. At its end stands what PyTorch does not know: pinned memory that limits count,
    /// and a host that is short of memory.
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
             unallocated.{}{}{}{}",
            self.label,
            format_bytes(self.tried),
            self.device,
            format_bytes(self.device_total),
            format_bytes(self.device_free),
            self.pytorch_processes(),
            format_bytes(self.allocated + private),
            format_bytes(idle),
            self.hint(),
            self.source_hint(),
            self.pinned_beside(),
            self.of_host(),
        )
    }

    fn pytorch_processes(&self) -> String {
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
        let Some(reserve) = self.reserve_too_small.filter(|_| self.says_what_2_15_says()) else {
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
        // PyTorch advises settings of its own policy.
        if self.policy != PolicyName::Pytorch.name() {
            return String::new();
        }
        // Releases before 2.14 advise the setting that is on already, and 2.14 nothing then.
        if self.growable && self.pytorch_release == PytorchRelease::V2_14 {
            return String::new();
        }
        if self.growable && self.says_what_2_15_says() {
            return " expandable_segments is enabled. If instead the process is running out of virtual address space \
                    (VSZ), expandable segments may be over-reserving VA (each segment reserves ~9/8 of device memory, \
                    times the number of streams); reduce it via PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / \
                    expandable_segments_reserve_by_class."
                .into();
        }
        format!(
            " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to \
             avoid fragmentation.  See documentation for Memory Management  ({DOCUMENTATION})"
        )
    }

    /// True if its release has the sentences that came with 2.15.
    fn says_what_2_15_says(&self) -> bool {
        self.pytorch_release >= PytorchRelease::V2_15
    }

    fn source_hint(&self) -> &'static str {
        if !self.source_refused || !self.says_what_2_15_says() {
            return "";
        }
        " The custom allocator backing this MemPool returned nullptr. Check preceding allocator warnings or logs for \
         the underlying cause. This can indicate an allocator-specific error or memory constraint, even when \
         device-wide free memory is available."
    }
}
