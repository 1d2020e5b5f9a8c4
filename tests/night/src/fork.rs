//! A child of the process: all that it asks is refused by a word of its own, without a call of a driver, and it ends like any
//! other. Its parent notices nothing.

use crate::features::Feature;
use crate::world::{Process, World};
use alloc_core::AllocError;
use alloc_core::host::HostAllocator;
use alloc_core::types::DeviceIndex;

/// One quiet point in so many has a child.
const ONE_IN: u64 = 16;
/// Seconds after which a child that hangs is ended.
const PATIENCE: u32 = 60;

/// What a child may complain about: answers that are no refusal, in the order in which they are asked for, and the rest.
const COMPLAINTS: [&str; 9] = [
    "malloc answered",
    "free answered",
    "record_stream answered",
    "empty_cache answered",
    "poll answered",
    "synchronise answered",
    "stats answered",
    "page-locked memory was given",
    "a driver was called",
];

/// A forked child.
#[derive(Debug)]
pub struct Child;

impl Child {
    /// At some quiet points: forks, and looks at what becomes of the child.
    pub fn look(world: &World, seed: u64, point: usize) {
        if !(seed ^ point as u64).is_multiple_of(ONE_IN) {
            return;
        }
        world.met.note(Feature::Forks);
        // SAFETY: this process has one thread, so the child may do all that it could.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no handler is there: the alarm ends a child that hangs.
            unsafe { libc::alarm(PATIENCE) };
            // With what the library does at the end of a process.
            std::process::exit(Self::complaint(world).map_or(0, |n| n as i32 + 1));
        }
        assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: the child of this process, waited for once.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        let code = if waited == child && libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -1 };
        world.verdict.expect(code == 0, "fork", || {
            let complaint = usize::try_from(code - 1).ok().and_then(|n| COMPLAINTS.get(n));
            let complaint = complaint.unwrap_or(&"it did not end well");
            format!("a forked child (status {status:#x}): {complaint}")
        });
    }

    /// What it complains about first, by place.
    fn complaint(world: &World) -> Option<usize> {
        let calls = Process::calls(&world.processes);
        for (n, site) in world.sites.iter().enumerate() {
            let (stream, block) = {
                let state = world.state();
                let lane = state.lanes[world.default_lane(site.process, DeviceIndex(0))];
                (lane.stream, state.blocks.iter().find(|block| block.site == n).map(|block| block.ptr))
            };
            let allocator = &site.allocator;
            let of_block =
                |ask: &dyn Fn(_) -> Result<(), AllocError>| block.map_or(Err(AllocError::Forked), ask);
            let answers = [
                allocator.malloc(512, stream).map(drop),
                of_block(&|ptr| allocator.free(ptr)),
                of_block(&|ptr| allocator.record_stream(ptr, stream)),
                allocator.empty_cache().map(drop),
                allocator.poll(stream.device).map(drop),
                allocator.synchronise(stream.device).map(drop),
                allocator.stats(stream.device).map(drop),
            ];
            let wrong = answers.iter().position(|answer| !matches!(answer, Err(AllocError::Forked)));
            if wrong.is_some() {
                return wrong;
            }
        }
        let given = |host: &HostAllocator| !matches!(host.allocate(64), Err(AllocError::Forked));
        let host = world.processes.iter().filter_map(|process| process.host.as_ref()).any(given);
        let called = Process::calls(&world.processes) != calls;
        [(host, 7), (called, 8)].into_iter().find(|(wrong, _)| *wrong).map(|(_, n)| n)
    }
}
