//! What each process has of a device, from the vendor: the rest of a ledger that Granule's own files do not tell.

use alloc_core::CachingAllocator;

/// Lets the allocator's ledgers and reports of refusals have what the vendor says of each process: NVIDIA's management library,
/// loaded now, or the files of AMD's kernel driver. Contexts and libraries are in these figures. A later
/// `set_process_memory_source` takes its place.
///
/// Numbers of processes are the machine's. In a container with numbers of its own, this process is one of the others.
///
/// # Errors
/// Why nothing is known, and what to do. Nothing has changed then.
pub fn tell_processes(allocator: &CachingAllocator) -> Result<(), String> {
    match allocator.backend().name() {
        #[cfg(feature = "cuda-of-cudarc")]
        "cuda" => of_nvidia(allocator),
        #[cfg(any(feature = "hip", feature = "hip-as-cuda"))]
        "hip" | "hip-as-cuda" => of_amd(allocator),
        other => Err(format!("the devices of {other} have no management library")),
    }
}

#[cfg(feature = "cuda-of-cudarc")]
fn of_nvidia(allocator: &CachingAllocator) -> Result<(), String> {
    let library = backend_cuda::Management::load()?;
    set(allocator, move |place| library.processes(place));
    Ok(())
}

#[cfg(any(feature = "hip", feature = "hip-as-cuda"))]
fn of_amd(allocator: &CachingAllocator) -> Result<(), String> {
    let root = allocator.settings().system_root;
    let devices = (0..allocator.device_count()).map(alloc_core::types::DeviceIndex);
    if let Some(first) = devices.into_iter().find_map(|device| place(&**allocator.backend(), device)) {
        backend_hip::processes(&root, &first)?;
    }
    set(allocator, move |place| backend_hip::processes(&root, place));
    Ok(())
}

/// Where on the bus a device is.
#[cfg(any(feature = "cuda-of-cudarc", feature = "hip", feature = "hip-as-cuda"))]
fn place(
    backend: &dyn alloc_core::backend::Backend,
    device: alloc_core::types::DeviceIndex,
) -> Option<String> {
    backend.properties(device).inspect_err(|_| backend.clear_error()).ok()?.pci_bus_id
}

#[cfg(any(feature = "cuda-of-cudarc", feature = "hip", feature = "hip-as-cuda"))]
fn set(
    allocator: &CachingAllocator,
    ask: impl Fn(&str) -> Result<Vec<(u32, u64)>, String> + Send + Sync + 'static,
) {
    use alloc_core::oom::ProcessMemory;
    let backend = allocator.backend().clone();
    allocator.hooks().set_process_memory_source(move |device| {
        let Some(place) = place(&*backend, device) else { return Vec::new() };
        let known = ask(&place).unwrap_or_else(|error| {
            tracing::debug!(%device, error, "what processes use is not known");
            Vec::new()
        });
        known.into_iter().map(|(pid, bytes)| ProcessMemory { pid, bytes }).collect()
    });
}
