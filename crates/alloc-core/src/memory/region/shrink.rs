//! Memory that is exchanged for less of it, under the same address and with the same contents.
//!
//! What stays is copied to new memory first, at another address. The old memory is unmapped only then, and released only when
//! the new is in its place. So each step can be undone, and the contents are in one of the two all the time.

use super::driver::{release, take_down};
use super::{Backing, Leftovers, Mapping, bytes_of, persist};
use crate::backend::{Access, Backend, BackendError, CopyKind, ErrorKind, Result, VirtualMemory};
use crate::process::foreign::Calls;
use crate::sync::assert_unlocked;
use crate::types::DevicePtr;
use std::ops::Range;

/// Who exchanges memory, and what the driver refuses to take back of it.
pub(crate) struct Shrinking<'a> {
    backend: &'a dyn Backend,
    vm: &'a dyn VirtualMemory,
    /// What new memory is like. It has no source.
    backing: &'a Backing,
    calls: &'a Calls<'a>,
    leftovers: Leftovers,
}

/// What became of memory.
pub(crate) enum Shrunk {
    /// This has its place and its contents.
    Into(Vec<Mapping>),
    /// It is as it was.
    Unchanged(BackendError),
    /// Neither the old nor the new memory could be mapped: its contents are out of reach.
    Lost(BackendError),
}

/// New memory with the contents of the old, mapped side by side where nobody knows it.
struct Stage {
    base: DevicePtr,
    bytes: u64,
    /// By their places at home.
    memory: Vec<Mapping>,
}

impl<'a> Shrinking<'a> {
    pub(crate) fn new(
        backend: &'a dyn Backend,
        vm: &'a dyn VirtualMemory,
        backing: &'a Backing,
        calls: &'a Calls<'a>,
    ) -> Self {
        Self { backend, vm, backing, calls, leftovers: Leftovers::default() }
    }

    /// What the driver refused to take back since.
    pub(crate) fn take_leftovers(&mut self) -> Leftovers {
        std::mem::take(&mut self.leftovers)
    }

    /// Exchanges the memory behind `old` for what is behind the ranges that stay, which lie in it in ascending order and have a
    /// size that the driver makes. Blocks. Calls the driver; hold no lock.
    ///
    /// # Safety
    /// `old` is mapped at its place alone. All devices are done with it, and none is given work on it before this returns.
    pub(crate) unsafe fn shrink(&mut self, old: &Mapping, stays: &[Range<u64>]) -> Shrunk {
        assert_unlocked();
        debug_assert!(!stays.is_empty(), "what is free as a whole needs no copy");
        match self.stage(old, stays) {
            Ok(stage) => self.put_in_place(old, stage),
            Err(error) => Shrunk::Unchanged(error),
        }
    }

    fn release(&mut self, memory: &[Mapping]) {
        release(self.vm, memory, &None, &mut self.leftovers, self.calls);
    }

    /// New memory with the contents that stay. On an error everything is undone.
    fn stage(&mut self, old: &Mapping, stays: &[Range<u64>]) -> Result<Stage> {
        let mut memory = Vec::with_capacity(stays.len());
        for Range { start, end } in stays.iter().cloned() {
            let bytes = end - start;
            match self.vm.create_physical(self.backing.device, bytes, self.backing.handle_type) {
                Ok(handle) => memory.push(Mapping { addr: start, bytes, handle }),
                Err(error) => {
                    self.backend.clear_error();
                    self.release(&memory);
                    return Err(error);
                }
            }
        }
        let bytes = bytes_of(&memory);
        let base = match self.vm.reserve_address(self.backing.device, bytes, 0, DevicePtr::NULL) {
            Ok(base) => base,
            Err(error) => {
                self.backend.clear_error();
                self.release(&memory);
                return Err(error);
            }
        };
        let stage = Stage { base, bytes, memory };
        let mut mapped = 0;
        let Err(error) = self.fill(&stage, &mut mapped) else { return Ok(stage) };
        self.backend.clear_error();
        debug_assert!(old.bytes >= bytes, "what stays is part of it");
        self.take_down(&stage, mapped);
        self.release(&stage.memory);
        Err(error)
    }

    /// Maps new memory and copies to it. `mapped` says how much was mapped.
    fn fill(&self, stage: &Stage, mapped: &mut u64) -> Result<()> {
        for mapping in &stage.memory {
            // SAFETY: rule 1: made just now, of this size, and mapped nowhere; the place lies in a reservation of its own.
            unsafe { self.vm.map(stage.base.add(*mapped), mapping.bytes, mapping.handle) }?;
            *mapped += mapping.bytes;
        }
        // SAFETY: the whole range was mapped just above.
        unsafe { self.vm.set_access(stage.base, stage.bytes, &[self.backing.device], Access::ReadWrite) }?;
        let mut to = stage.base;
        for mapping in &stage.memory {
            // SAFETY: rule 2: both are mapped, as long as that, and nobody writes to either: the new memory is known to nobody,
            // the old is at rest by the contract of `shrink`.
            unsafe { self.backend.copy(to, mapping.at(), mapping.bytes, CopyKind::DeviceToDevice) }?;
            to = to.add(mapping.bytes);
        }
        // A copy on the device may be queued only.
        self.backend.synchronize_device(self.backing.device)
    }

    /// Takes the second place of new memory away, of which the first bytes are mapped. What the driver refuses is left over.
    fn take_down(&mut self, stage: &Stage, mapped: u64) {
        // SAFETY: rule 3: a reservation of this engine, filled from its beginning on by `fill`, and its last use is past.
        unsafe { take_down(self.backend, self.vm, (stage.base, stage.bytes), mapped, &mut self.leftovers) };
    }

    /// Puts new memory in the place of the old, or the old back.
    fn put_in_place(&mut self, old: &Mapping, stage: Stage) -> Shrunk {
        // Some devices map no memory twice.
        self.take_down(&stage, stage.bytes);
        // SAFETY: rule 3: mapped there by this engine, and at rest by the contract of `shrink`.
        let mut outcome = unsafe { self.vm.unmap(old.at(), old.bytes) };
        let mut mapped = 0;
        if outcome.is_ok() {
            outcome = self.map_home(&stage.memory, &mut mapped);
            if let Err(error) = &outcome {
                self.backend.clear_error();
                if let Err(lost) = self.put_back(old, &stage.memory[..mapped]) {
                    let detail = format!(
                        "the memory of live blocks at {} could be mapped neither anew ({error}) nor as before ({lost})",
                        old.at()
                    );
                    let device = self.backing.device;
                    return Shrunk::Lost(BackendError::new(
                        ErrorKind::DeviceLost,
                        0,
                        "compact",
                        device,
                        detail,
                    ));
                }
            }
        }
        match outcome {
            Ok(()) => {
                self.release(&[*old]);
                Shrunk::Into(stage.memory)
            }
            Err(error) => {
                self.backend.clear_error();
                self.release(&stage.memory);
                Shrunk::Unchanged(error)
            }
        }
    }

    fn map_home(&self, memory: &[Mapping], mapped: &mut usize) -> Result<()> {
        for mapping in memory {
            // SAFETY: rule 1: of this size; the place is part of what was unmapped just now.
            unsafe { self.vm.map(mapping.at(), mapping.bytes, mapping.handle) }?;
            *mapped += 1;
        }
        memory.iter().try_for_each(|mapping| self.open(mapping))
    }

    /// Lets all devices use it that are to.
    fn open(&self, mapping: &Mapping) -> Result<()> {
        // SAFETY: mapped by this thread just now.
        unsafe { self.vm.set_access(mapping.at(), mapping.bytes, &self.backing.access, Access::ReadWrite) }
    }

    /// The old memory has its place again, where these memory of the new were mapped.
    fn put_back(&self, old: &Mapping, mapped: &[Mapping]) -> Result<()> {
        for mapping in mapped {
            // SAFETY: rule 3: mapped by this thread just now, and used by nobody.
            persist("undoing a mapping", || unsafe { self.vm.unmap(mapping.at(), mapping.bytes) })?;
        }
        // SAFETY: rule 1: its own memory, in its own place, where nothing is mapped.
        persist("undoing an unmapping", || unsafe { self.vm.map(old.at(), old.bytes, old.handle) })?;
        persist("undoing an unmapping", || self.open(old))
    }
}
