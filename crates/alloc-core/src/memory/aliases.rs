//! Proof that memory mapped in two places is the same in both. Drivers promise it, and some show other bytes in the
//! second place. Views would lose data there, so it is tried before the first of them is made.

use super::region::{Leftovers, persist, take_down};
use crate::backend::{
    Access, Backend, BackendError, CopyKind, Dropped, Granularity, HandleType, Result, VirtualMemory,
};
use crate::sync::assert_unlocked;
use crate::types::{DeviceIndex, DevicePtr, PhysicalHandle, Stream};

/// Order of two granules that have two places each, side by side.
const ORDER: [usize; 4] = [0, 1, 1, 0];
const FIRST: [u64; 2] = [0, 1];
const SECOND: [u64; 2] = [3, 2];
/// Bytes that are compared at the beginning, in the middle and at the end of a granule.
const SAMPLE: u64 = 1024;

/// Feature that `device` does without, where its memory cannot be in two places; tried with two granules. `None` where
/// it can, and where nothing was learned. Blocks for some milliseconds; not legal during a capture.
pub fn dropped(backend: &dyn Backend, device: DeviceIndex) -> Option<Dropped> {
    let memory = backend.virtual_memory().ok()?;
    let dropped = prove(backend, memory, device, &mut Leftovers::default()).ok()??;
    tracing::warn!(%device, "{dropped}");
    Some(dropped)
}

/// [`dropped`] that keeps leftovers, where the driver refuses to take memory back.
///
/// # Errors
/// Errors that say nothing about the device: memory or addresses are short, for example.
pub(crate) fn prove(
    backend: &dyn Backend,
    vm: &dyn VirtualMemory,
    device: DeviceIndex,
    leftovers: &mut Leftovers,
) -> Result<Option<Dropped>> {
    assert_unlocked();
    let mut trial = || with_memory(backend, vm, device, leftovers).inspect_err(|_| backend.clear_error());
    // A driver that fails once is survived.
    let answer = match trial() {
        Err(error) if error.is_passing() => return Err(error),
        Ok(Answer::Refused(_)) | Err(_) => trial()?,
        Ok(answer) => answer,
    };
    let reason = match answer {
        Answer::Agree => None,
        Answer::Differ(lie) => Some(lie),
        Answer::Refused(error) => Some(error.to_string()),
    };
    let consequence = "policy:granule serves no request from free memory in pieces";
    Ok(reason.map(|reason| Dropped { property: "memory in two places", reason, consequence }))
}

/// Result of a trial.
enum Answer {
    Agree,
    /// Report of the bytes that differ.
    Differ(String),
    /// The driver maps no memory twice. Other calls fail for reasons of their own.
    Refused(BackendError),
}

/// Takes two granules for a trial.
fn with_memory(
    backend: &dyn Backend,
    vm: &dyn VirtualMemory,
    device: DeviceIndex,
    leftovers: &mut Leftovers,
) -> Result<Answer> {
    let unit = SAMPLE.next_multiple_of(vm.granularity(device, Granularity::Minimum)?.max(1));
    let mut memory = Vec::with_capacity(2);
    let made = FIRST.iter().try_for_each(|_| {
        memory.push(vm.create_physical(device, unit, HandleType::None)?);
        Ok(())
    });
    let tried = made.and_then(|()| in_two_places(backend, vm, (device, unit), &memory, leftovers));
    for handle in memory {
        // SAFETY: rule 1: this trial's, and not used again.
        if persist("releasing memory", || unsafe { vm.release_physical(handle) }).is_err() {
            leftovers.keep_memory(unit, handle);
        }
    }
    tried
}

/// Maps each of two granules twice for a trial.
fn in_two_places(
    backend: &dyn Backend,
    vm: &dyn VirtualMemory,
    (device, unit): (DeviceIndex, u64),
    memory: &[PhysicalHandle],
    leftovers: &mut Leftovers,
) -> Result<Answer> {
    let bytes = ORDER.len() as u64 * unit;
    let base = vm.reserve_address(device, bytes, 0, DevicePtr::NULL)?;
    let mut mapped = 0;
    let opened = (|| {
        for granule in ORDER {
            // SAFETY: rule 1: the handle has this size. The range lies in the reservation made above, and is empty.
            unsafe { vm.map(base.add(mapped), unit, memory[granule]) }?;
            mapped += unit;
        }
        // SAFETY: the whole range was mapped just above.
        unsafe { vm.set_access(base, bytes, &[device], Access::ReadWrite) }
    })();
    let tried = (|| {
        match opened {
            Err(error) if !error.is_passing() => {
                backend.clear_error();
                return Ok(Answer::Refused(error));
            }
            opened => opened?,
        }
        // The program's streams may have work to do.
        let stream = backend.create_stream(device, 0)?;
        let compared = Trial { backend, stream, base, unit }.compare();
        // SAFETY: rule 1: made above, and not used again.
        let _ = persist("destroying a stream", || unsafe { backend.destroy_stream(stream) });
        compared
    })();
    // SAFETY: rule 3: this trial's reservation; mappings fill it from its beginning on. Copies have ended, or their
    // stream could not even be waited for: then nobody else has this memory, which is lost if it cannot be unmapped.
    unsafe { take_down(backend, vm, (base, bytes), mapped, leftovers) };
    tried
}

/// Memory in two places.
struct Trial<'a> {
    backend: &'a dyn Backend,
    stream: Stream,
    base: DevicePtr,
    unit: u64,
}

impl Trial<'_> {
    /// Writes through one place of each granule and reads through the other, in both directions.
    fn compare(&self) -> Result<Answer> {
        self.write(FIRST, 1)?;
        if self.read(FIRST)? != pattern(1) {
            // Bytes that cannot be read even in their own place are no contents to lose: a simulated device may have
            // none.
            return Ok(Answer::Agree);
        }
        if self.read(SECOND)? != pattern(1) {
            return Ok(self.lie("second", "first"));
        }
        self.write(SECOND, 2)?;
        let agree = self.read(FIRST)? == pattern(2);
        Ok(if agree { Answer::Agree } else { self.lie("first", "second") })
    }

    fn lie(&self, read: &str, written: &str) -> Answer {
        let Self { base, unit, .. } = *self;
        let end = base.add(ORDER.len() as u64 * unit);
        Answer::Differ(format!(
            "of memory mapped twice between {base} and {end}, the {read} place does not show what was written in the {written}"
        ))
    }

    fn write(&self, places: [u64; 2], seed: u8) -> Result<()> {
        self.copy(places, pattern(seed), CopyKind::HostToDevice).map(drop)
    }

    fn read(&self, places: [u64; 2]) -> Result<Vec<u8>> {
        self.copy(places, vec![0; pattern(0).len()], CopyKind::DeviceToHost)
    }

    /// Copies samples of these places from or to `host`, which is returned.
    fn copy(&self, places: [u64; 2], mut host: Vec<u8>, kind: CopyKind) -> Result<Vec<u8>> {
        let from_start = DevicePtr(host.as_mut_ptr().expose_provenance() as u64);
        let samples = places.into_iter().flat_map(|place| {
            let Self { base, unit, .. } = *self;
            let start = base.add(place * unit);
            [0, (self.unit - SAMPLE) / 2, self.unit - SAMPLE].map(|skip| start.add(skip))
        });
        let queued = samples.zip(0..).try_for_each(|(at, number)| {
            let beside = from_start.add(number * SAMPLE);
            let (to, from) = if kind == CopyKind::HostToDevice { (at, beside) } else { (beside, at) };
            // SAFETY: rule 2: the sample is mapped with access, and the host's bytes stay until the stream has passed.
            unsafe { self.backend.copy_async(to, from, SAMPLE, kind, self.stream) }
        });
        let passed = persist("waiting for copies", || self.backend.synchronize_stream(self.stream));
        if let Err(error) = passed {
            // The device may still be copying.
            std::mem::forget(host);
            return Err(error);
        }
        queued.map(|()| host)
    }
}

/// The samples of both granules: no two are alike, and no byte is 0.
fn pattern(seed: u8) -> Vec<u8> {
    let samples = 3 * FIRST.len() as u64;
    let byte = |at: u64| 1 + (at + 41 * (at / SAMPLE) + 97 * u64::from(seed)) % 255;
    (0..samples * SAMPLE).map(|at| byte(at).to_le_bytes()[0]).collect()
}
