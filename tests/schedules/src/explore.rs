//! In which orders the threads of a scenario run.

use crate::rig::Rig;
use alloc_core::config::{PolicyName, Settings};
use alloc_core::types::MIB;
use backend_openreg::OpenRegConfig;
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, Runner};

/// Schedules of each kind for each scenario: a slice for every day, and with `GRANULE_LONG`. Each makes a machine, and
/// one process can make 65 535.
const FEW: usize = 120;
const MANY: usize = 1500;
/// Of the few; the many are other ones each time.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// The most switches against priorities: bugs rarely need more.
const DEPTH: usize = 3;

/// Runs a scenario on fresh machines of `mebibytes`. Whether segments are fixed or grow is a part of the schedule.
pub(crate) fn explore(mebibytes: u64, scenario: fn(&Rig)) {
    explore_with(PolicyName::Pytorch, of(mebibytes), Rig::new, scenario);
}

/// The same on a device that shares the host's memory.
pub(crate) fn explore_integrated(mebibytes: u64, scenario: fn(&Rig)) {
    explore_with(PolicyName::Pytorch, of(mebibytes), Rig::integrated, scenario);
}

/// The same with the `granule` policy, which moves memory between streams and shows it in views.
pub(crate) fn explore_granules(mebibytes: u64, scenario: fn(&Rig)) {
    explore_with(PolicyName::Granule, of(mebibytes), Rig::new, scenario);
}

/// The same on a machine without virtual memory.
pub(crate) fn explore_fixed_granules(mebibytes: u64, scenario: fn(&Rig)) {
    explore_with(PolicyName::Granule, of(mebibytes).without_virtual_memory(), Rig::new, scenario);
}

fn of(mebibytes: u64) -> OpenRegConfig {
    OpenRegConfig::default().capacity(mebibytes * MIB)
}

fn explore_with(
    policy: PolicyName,
    machine: OpenRegConfig,
    rig: fn(OpenRegConfig, Settings) -> Rig,
    scenario: fn(&Rig),
) {
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        // Which orders the processor may see is for loom.
        config.silence_warnings = true;
        let machine = machine.clone();
        Runner::new(scheduler, config).run(move || {
            let expandable_segments = shuttle::rand::thread_rng().gen_bool(0.5);
            let settings = Settings { expandable_segments, policy: Some(policy), ..Settings::default() };
            let rig = rig(machine.clone(), settings);
            scenario(&rig);
            rig.end();
        });
    };
    if let Ok(schedule) = std::env::var("GRANULE_SCHEDULE") {
        run(Box::new(ReplayScheduler::new_from_encoded(&schedule)));
    } else if std::env::var_os("GRANULE_LONG").is_some() {
        run(Box::new(RandomScheduler::new(MANY)));
        run(Box::new(PctScheduler::new(DEPTH, MANY)));
    } else {
        run(Box::new(RandomScheduler::new_from_seed(SEED, FEW)));
        run(Box::new(PctScheduler::new_from_seed(SEED, DEPTH, FEW)));
    }
}
