//! When memory is used again.

use crate::memory::{Memory, Pools};
use crate::support::{CAPACITY, Gate, Machine, over_drivers, read, write};
use cubecl_runtime::storage::ComputeStorage;
use granule::backend::{CopyKind, Readiness};
use granule::cuda::Cuda;
use granule::hip::Hip;
use granule::labelled::Label;
use granule::types::{DevicePtr, MIB};
use granule_cubecl::Storage;

/// A page that was given back serves the same stream at once, while that stream still works on it, and nobody waits.
/// Another stream gets other memory until then.
fn memory_goes_back_in_the_order_of_its_stream<L: Label>() {
    let machine = Machine::<L>::start();
    let (ours, theirs) = (machine.stream(), machine.stream());
    let mut storage = Storage::new(&machine.granule, &ours);
    let mut others = Storage::new(&machine.granule, &theirs);

    let page = storage.alloc(4 * MIB).unwrap();
    let first = storage.get(&page).unwrap().address;
    let gate = Gate::on(&ours);
    storage.dealloc(page.id);

    let apart = others.alloc(4 * MIB).unwrap();
    assert_ne!(others.get(&apart).unwrap().address, first, "the page's stream still works on it");
    let again = storage.alloc(4 * MIB).unwrap();
    assert_eq!(storage.get(&again).unwrap().address, first);
    assert_eq!(ours.query().unwrap(), Readiness::NotReady, "nobody waited");
    gate.open();
    ours.synchronize().unwrap();
}

/// Work that was queued before a page went back reads what it was meant to read, though the page has a new owner.
fn queued_work_reads_what_it_was_meant_to<L: Label>() {
    let machine = Machine::<L>::start();
    let stream = machine.stream();
    let mut memory = Memory::over(Storage::new(&machine.granule, &stream), Pools::Dedicated, CAPACITY);
    let (old, target) = (memory.reserve(MIB).unwrap(), memory.reserve(MIB).unwrap());
    let (from, to) = (memory.resource(&old), memory.resource(&target));
    write(&stream, &from, &vec![7; MIB as usize]);
    write(&stream, &to, &vec![0; MIB as usize]);

    let gate = Gate::on(&stream);
    let (source, result) = (DevicePtr(from.address), DevicePtr(to.address));
    let backend = L::backend().unwrap();
    // SAFETY: rule 2: two live buffers of that length. The source goes back in the order of this stream.
    unsafe { backend.copy_async(result, source, MIB, CopyKind::DeviceToDevice, stream.handle()).unwrap() };
    drop(old);
    let new = memory.reserve(MIB).unwrap();
    let place = memory.resource(&new);
    assert_eq!(place.address, from.address, "the stream's next request has its memory");
    gate.open();
    write(&stream, &place, &vec![9; MIB as usize]);
    assert_eq!(read(&stream, &to), vec![7; MIB as usize]);
    assert_eq!(read(&stream, &place), vec![9; MIB as usize]);
}

/// A storage that goes gives everything back, and a stream that ended leaves its cached memory to the next.
fn a_stream_that_ends_leaves_its_memory_to_the_next<L: Label>() {
    let machine = Machine::<L>::start();
    let (first, second) = (machine.stream(), machine.stream());
    let mut storage = Storage::new(&machine.granule, &first);
    let page = storage.alloc(20 * MIB).unwrap();
    let place = storage.get(&page).unwrap().address;
    // SAFETY: nothing queues work on the stream any more.
    unsafe { storage.retire().unwrap() };
    assert_eq!(machine.live_bytes(), 0);

    let mut next = Storage::new(&machine.granule, &second);
    let page = next.alloc(20 * MIB).unwrap();
    assert_eq!(next.get(&page).unwrap().address, place);
    drop(next);
    assert_eq!(machine.live_bytes(), 0, "a dropped storage gives back what it has");
}

fn on_both<A: Fn(), B: Fn()>(cuda: A, hip: B) {
    over_drivers(|| {
        cuda();
        hip();
    });
}

#[test]
fn memory_goes_back_in_the_order_of_its_stream_on_both() {
    on_both(
        memory_goes_back_in_the_order_of_its_stream::<Cuda>,
        memory_goes_back_in_the_order_of_its_stream::<Hip>,
    );
}

#[test]
fn queued_work_reads_what_it_was_meant_to_on_both() {
    on_both(queued_work_reads_what_it_was_meant_to::<Cuda>, queued_work_reads_what_it_was_meant_to::<Hip>);
}

#[test]
fn a_stream_that_ends_leaves_its_memory_to_the_next_on_both() {
    on_both(
        a_stream_that_ends_leaves_its_memory_to_the_next::<Cuda>,
        a_stream_that_ends_leaves_its_memory_to_the_next::<Hip>,
    );
}
