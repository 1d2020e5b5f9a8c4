//! Contents.

use crate::memory::{Memory, Pools};
use crate::support::{CAPACITY, Machine, over_drivers, read, write};
use cubecl_server::memory_management::ManagedMemoryHandle;
use granule::cuda::Cuda;
use granule::hip::Hip;
use granule::labelled::{Label, Stream};
use granule_cubecl::Storage;

/// Sizes at the borders of CubeCL's pools: none, small, above 64 KiB, above a page of 2 MiB.
const SIZES: [u64; 7] = [0, 1, 1000, 65_536, 65_537, 300_000, 3 << 20];

struct Kept {
    handle: ManagedMemoryHandle,
    bytes: Vec<u8>,
}

struct Program<L: Label> {
    memory: Memory<Storage<L>>,
    stream: Stream<L>,
    kept: Vec<Kept>,
}

impl<L: Label> Program<L> {
    fn keep(&mut self, size: u64, seed: u8) {
        let handle = self.memory.reserve(size).unwrap();
        let bytes: Vec<u8> = (0..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
        let place = self.memory.resource(&handle);
        assert_eq!(place.address % 512, 0);
        assert_eq!(place.bytes, size);
        write(&self.stream, &place, &bytes);
        self.kept.push(Kept { handle, bytes });
    }

    fn check(&mut self) {
        for Kept { handle, bytes } in &self.kept {
            let place = self.memory.resource(handle);
            assert_eq!(&read(&self.stream, &place), bytes, "a buffer of {} bytes", bytes.len());
        }
    }
}

/// Buffers that come and go never change each other.
fn buffers_keep_their_bytes<L: Label>(pools: Pools) {
    let machine = Machine::<L>::start();
    let stream = machine.stream();
    let memory = Memory::over(Storage::new(&machine.granule, &stream), pools, CAPACITY);
    let mut program = Program { memory, stream, kept: Vec::new() };
    for round in 0..6_u8 {
        for (at, size) in SIZES.into_iter().enumerate() {
            program.keep(size, round * 16 + at as u8);
        }
        program.check();
        let mut at = 0;
        program.kept.retain(|_| {
            at += 1;
            at % 3 == 0
        });
        if round % 2 == 0 {
            program.memory.clean();
        }
        program.check();
    }
    program.kept.clear();
    program.memory.clean();
    assert_eq!((program.memory.manager.bytes_allocated(), machine.live_bytes()), (0, 0), "{pools:?}");
    assert!(machine.reserved() > 0, "what CubeCL gave back is in the cache");
}

#[test]
fn buffers_keep_their_bytes_on_cuda() {
    over_drivers(|| Pools::ALL.into_iter().for_each(buffers_keep_their_bytes::<Cuda>));
}

#[test]
fn buffers_keep_their_bytes_on_hip() {
    over_drivers(|| Pools::ALL.into_iter().for_each(buffers_keep_their_bytes::<Hip>));
}
