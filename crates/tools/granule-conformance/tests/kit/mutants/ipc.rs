//! Backends that break rules of this area: other processes.
//!
//! Only the exporter or importer in this process is broken; the second process is judged by what it sees.

use super::virtual_memory::granule;
use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;

pub(crate) const MUTANTS: &[Mutant] = &[
    mutant("ipc.decoy_memory", "the handle exported is that of other memory")
        .malloc(takes_twins)
        .free(frees_twins)
        .export_memory(exports_twin)
        .caught_by("ipc.other_process_reads"),
    mutant("ipc.export_is_a_copy", "what is exported is a copy of the memory")
        .malloc(takes_twins)
        .free(frees_twins)
        .copy(|call| {
            call.go()?;
            call.noted(call.dst).map_or(Ok(()), |twin| call.with(|it| it.dst = twin))
        })
        .export_memory(exports_twin)
        .caught_by("ipc.other_process_writes"),
    mutant("ipc.writes_are_lost", "writes to opened memory go nowhere")
        .open_memory(notes_opened)
        .copy(|call| {
            let is_opened =
                call.keep(|opened: &mut Opened| opened.values().any(|opened| *opened == call.dst));
            call.answer_if(is_opened, ())
        })
        .caught_by("ipc.opened_here"),
    mutant("ipc.one_reference", "a second open is not counted")
        .open_memory(gives_opened)
        .close_memory(|call| {
            call.with(|it| it.keep(|opened: &mut Opened| opened.retain(|_, at| *at != it.ptr)))
        })
        .caught_by("ipc.opened_twice"),
    mutant("ipc.close_of_all", "closing what is not open is fine")
        .close_memory(ignores_refusals)
        .caught_by("ipc.closed_for_good"),
    mutant("ipc.closed_is_remembered", "an address that was closed comes back from the cache")
        .open_memory(gives_opened)
        .caught_by("ipc.close_keeps_memory"),
    mutant("ipc.free_of_opened", "opened memory can be freed")
        .free(ignores_refusals)
        .caught_by("ipc.importer_never_frees"),
    mutant("ipc.exported_for_ever", "exported memory cannot be freed any more")
        .export_memory(|call| call.with(|it| it.note(it.base, ())))
        .free(|call| match call.noted(call.ptr) {
            Some(()) => errs_late(call),
            None => call.go(),
        })
        .caught_by("ipc.death_of_the_importer"),
    mutant("ipc.dead_exporters", "a handle opens although its exporter has gone")
        .open_memory(|call| {
            let looks_real = call.exported.0.iter().any(|byte| *byte != call.exported.0[0]);
            call.go().or_else(|error| if looks_real { Ok(NOWHERE) } else { Err(error) })
        })
        .caught_by("ipc.death_of_the_exporter"),
    mutant("ipc.any_handle", "any 64 bytes open")
        .open_memory(|call| Ok(call.go().unwrap_or(NOWHERE)))
        .caught_by("ipc.malformed_handle"),
    mutant("ipc.interior_exports", "an address inside an allocation exports the whole")
        .export_memory(|call| {
            call.go().or_else(|_| call.with(|it| it.base.0 = it.base.0.saturating_sub(512)))
        })
        .caught_by("ipc.interior_pointer"),
    mutant("ipc.any_export", "any address exports")
        .export_memory(|call| Ok(call.go().unwrap_or(IpcMemoryHandle([0; 64]))))
        .caught_by("ipc.no_memory"),
    mutant("ipc.mapped_exports", "virtual memory gives a handle that cannot be opened")
        .export_memory(|call| call.answer_instead_of(ErrorKind::NotSupported, IpcMemoryHandle([0; 64])))
        .caught_by("ipc.mapped_memory"),
    mutant("ipc.wrong_descriptor", "the descriptor exported is that of other memory")
        .export_physical(|call| {
            let family = call.inner.physical_sharing()?;
            let other = family.create_physical(DeviceIndex(0), granule(call)?, call.handle_type)?;
            let shared = call.with(|it| it.handle = other);
            // SAFETY: rule 1: made above; the export keeps the memory.
            unsafe { family.release_physical(other)? };
            shared
        })
        .caught_by("ipc.physical_memory_leaves"),
    mutant("ipc.import_is_new", "an import is new memory")
        .import_physical(new_memory)
        .caught_by("ipc.physical_memory_arrives"),
    mutant("ipc.released_memory_is_reused", "released memory goes to someone else although it is exported")
        .export_physical(keeps_descriptor)
        .release_physical(|call| {
            call.go()?;
            if let Some(file) = call.take_note::<_, File>(call.handle) {
                // A simulated device's memory is a file.
                let _ = file.write_all_at(&[0xee; 4096], 0);
            }
            Ok(())
        })
        .caught_by("ipc.exported_memory_outlives_handle"),
];

/// Takes a second allocation beside each.
fn takes_twins(call: &mut Call<'_, Result<DevicePtr>>) -> Result<DevicePtr> {
    let (real, twin) = (call.go()?, call.go()?);
    call.note(real, twin);
    Ok(real)
}

fn frees_twins(call: &mut Call<'_, Result<()>>) -> Result<()> {
    call.go()?;
    call.take_note(call.ptr).map_or(Ok(()), |twin| call.with(|it| it.ptr = twin))
}

fn exports_twin(call: &mut Call<'_, Result<IpcMemoryHandle>>) -> Result<IpcMemoryHandle> {
    call.base = call.noted(call.base).unwrap_or(call.base);
    call.go()
}

/// What was opened, by handle.
type Opened = HashMap<IpcMemoryHandle, DevicePtr>;

fn notes_opened(call: &mut Call<'_, Result<DevicePtr>>) -> Result<DevicePtr> {
    call.go().inspect(|at| call.note(*call.exported, *at))
}

fn gives_opened(call: &mut Call<'_, Result<DevicePtr>>) -> Result<DevicePtr> {
    call.noted(*call.exported).map_or_else(|| notes_opened(call), Ok)
}

/// An address that no allocation has.
const NOWHERE: DevicePtr = DevicePtr(0x10_000);

/// Physical memory of its own instead of what was to be imported.
pub(super) fn new_memory(call: &mut Call<'_, Result<PhysicalHandle>>) -> Result<PhysicalHandle> {
    call.inner.virtual_memory()?.create_physical(call.device, granule(call)?, HandleType::None)
}

/// Keeps a descriptor of what is exported, to write over it.
fn keeps_descriptor(call: &mut Call<'_, Result<ShareableHandle>>) -> Result<ShareableHandle> {
    let shared = call.go()?;
    if let ShareableHandle::PosixFd(descriptor) = &shared
        && let Ok(kept) = descriptor.try_clone()
    {
        call.note(call.handle, File::from(kept));
    }
    Ok(shared)
}
