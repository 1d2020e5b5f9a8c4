//! A child of the process: all that it asks is refused by a word of its own, without a call of a driver, and it ends like any
//! other. Its parent notices nothing.

use crate::features::Feature;
use crate::world::{Process, World};
use alloc_core::AllocError;
use alloc_core::types::DeviceIndex;

/// One quiet point in so many has a child.
const ONE_IN: u64 = 16;
/// Seconds after which a child that hangs is ended.
const PATIENCE: u32 = 60;

/// What a child asks of each allocator, in the order in which it does.
const ASKED: [&str; 7] = ["malloc", "free", "record_stream", "empty_cache", "poll", "synchronise", "stats"];
/// What else may be wrong.
const CALLED: i32 = 100;
const HOST: i32 = 101;
const ENDED: i32 = 0;

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
            std::process::exit(Self::complaint(world));
        }
        world.verdict.expect(child > 0, "fork", || "the process cannot be forked".to_owned());
        let mut status = 0;
        // SAFETY: the child of this process, waited for once.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        let ended = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        let fine = waited == child && ended == Some(ENDED);
        world.verdict.expect(fine, "fork", || match ended {
            Some(CALLED) => "a forked child called a driver".to_owned(),
            Some(HOST) => "a forked child was given page-locked memory".to_owned(),
            Some(code @ 1..) if (code as usize) <= ASKED.len() => {
                format!("{} answered a forked child", ASKED[code as usize - 1])
            }
            _ => format!("a forked child ended with status {status:#x}"),
        });
    }

    /// The exit code of a child: what it complains about first.
    fn complaint(world: &World) -> i32 {
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
            if let Some(wrong) = answers.iter().position(|answer| !matches!(answer, Err(AllocError::Forked)))
            {
                return wrong as i32 + 1;
            }
        }
        let given =
            |host: &alloc_core::host::HostAllocator| !matches!(host.allocate(64), Err(AllocError::Forked));
        if world.processes.iter().filter_map(|process| process.host.as_ref()).any(given) {
            return HOST;
        }
        if Process::calls(&world.processes) == calls { ENDED } else { CALLED }
    }
}
