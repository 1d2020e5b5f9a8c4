//! What a replay says about driver calls, by iteration; every number follows from PyTorch's rules.

use alloc_core::config::{PolicyName, Settings};
use granule_analysis::replay::{ReplayOptions, SimulatedFigures, min_capacity, replay};
use granule_snapshot::trace::Trace;

const MIB: u64 = 1 << 20;

/// Events as in trace files, with sizes in MiB.
fn trace(lines: &str) -> Trace {
    let mut text = String::from("# {}\n");
    for line in lines.split(';').map(str::trim).filter(|line| !line.is_empty()) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["a", id, size, stream] => {
                let bytes = size.parse::<u64>().unwrap() * MIB;
                text += &format!("a {id} {bytes} {stream}\n");
            }
            _ => text += &format!("{line}\n"),
        }
    }
    Trace::from_reader(text.as_bytes()).unwrap()
}

fn simulated(trace: &Trace, options: &ReplayOptions) -> SimulatedFigures {
    let result = replay(trace, options, |_| {}).unwrap().result;
    assert_eq!(result.refused, 0);
    let figures = result.simulated.unwrap();
    assert_eq!(figures.traps, 0);
    figures
}

fn options(expandable_segments: bool, costs: &str) -> ReplayOptions {
    let settings = Settings { expandable_segments, ..Settings::default() };
    ReplayOptions { settings, costs: costs.parse().unwrap(), ..ReplayOptions::default() }
}

/// 40 MiB are live from before the first iteration on. Iterations 2 and 4 repeat earlier ones.
const STEPS: &str = "a 0 40 0; \
    i 0; a 1 60 0; f 1; \
    i 1; a 2 60 0; a 3 20 0; f 2; f 3; \
    i 2; a 4 60 0; f 4; \
    i 3; a 5 120 0; f 5; \
    i 4; a 6 60 0; a 7 20 0; f 6; f 7";

#[test]
fn mapped_memory_is_counted_by_iteration() {
    let costs = "zero,create-physical=100us,map=10us,set-access=1us";
    let figures = simulated(&trace(STEPS), &options(true, costs));
    let by_iteration = |figure: fn(&granule_analysis::replay::DriverFigures<u64>) -> u64| -> Vec<u64> {
        figures.iterations.iter().map(|one| figure(&one.driver)).collect()
    };
    // A large segment grows by handles of 20 MiB: 60, then 20 beyond it, then 120 in place of 80.
    assert_eq!(by_iteration(|f| f.physical_creations), [3, 1, 0, 2, 0]);
    assert_eq!(by_iteration(|f| f.granules_mapped), [30, 10, 0, 20, 0]);
    assert_eq!(by_iteration(|f| f.created_bytes), [60 * MIB, 20 * MIB, 0, 40 * MIB, 0]);
    assert_eq!(by_iteration(|f| f.granules_unmapped + f.granules_moved + f.host_waits), [0; 5]);
    assert_eq!(by_iteration(|f| f.modelled_driver_ns), [331_000, 111_000, 0, 221_000, 0]);
    let repeats: Vec<bool> = figures.iterations.iter().map(|one| one.iteration.repeats).collect();
    assert_eq!(repeats, [false, false, true, false, true]);
    let growth: Vec<u64> =
        figures.iterations.iter().map(|one| one.iteration.requested_peak_growth / MIB).collect();
    assert_eq!(growth, [60, 20, 0, 40, 0]);
    // Two handles and one step were for what was live before.
    assert_eq!((figures.driver.physical_creations, figures.modelled_driver_ns), (8, 884_000));
    assert_eq!(figures.modelled_ns_by_call["orMemCreate"], 800_000);

    let all = figures.after_second_iteration.all.unwrap();
    assert_eq!((all.iterations, all.max.granules_mapped, all.max.physical_creations), (3, 20, 2));
    assert!((all.mean.granules_mapped - 20.0 / 3.0).abs() < 1e-12);
    let repeating = figures.after_second_iteration.repeating.unwrap();
    assert_eq!((repeating.iterations, repeating.max.granules_mapped), (2, 0));
    assert!(repeating.mean.modelled_driver_ns.abs() < 1e-12);
}

#[test]
fn raw_memory_is_counted_by_iteration() {
    let figures = simulated(&trace(STEPS), &options(false, "zero,malloc=1us+1024us/GiB"));
    let creations: Vec<u64> = figures.iterations.iter().map(|one| one.driver.physical_creations).collect();
    assert_eq!(creations, [1, 1, 0, 1, 0], "segments of 60, 20 and 120 MiB");
    assert_eq!(figures.iterations[3].driver.modelled_driver_ns, 121_000);
    assert_eq!(figures.driver.granules_mapped, 0);
    assert!(!figures.device_calls.contains_key("orLaunchKernel"), "kernels are not the driver's calls");
}

#[test]
fn a_flush_waits_for_the_device() {
    // Iteration 2 repeats iteration 0: each finds a cached segment that is too small, on a device that has no room for both.
    let flushing = "i 0; a 0 60 0; f 0; i 1; a 1 80 0; f 1; i 2; a 2 60 0; f 2; i 3; a 3 80 0; f 3";
    let small = ReplayOptions { capacity: Some(130 * MIB), ..options(false, "zero,free=100us") };
    let figures = simulated(&trace(flushing), &small);
    let frees = figures.device_calls["orFree"];
    assert_eq!(frees, 1, "80 MiB serve 60 from then on, but not the other way round");
    let in_second = figures.iterations[1].driver;
    assert_eq!(
        in_second.device_wide_waits,
        frees + figures.device_calls.get("orDeviceSynchronize").unwrap_or(&0)
    );
    assert!(in_second.host_waits >= in_second.device_wide_waits);
    assert_eq!(in_second.modelled_driver_ns, 100_000);
    let found = min_capacity(&trace(flushing), &options(false, ""), 2 * MIB, |_| {}).unwrap();
    assert_eq!((found.min_capacity, found.retries_at_min_capacity), (80 * MIB, 1));
    assert_eq!((found.repeating_iterations, found.device_wide_waits_in_repeating_iterations), (2, 0));
}

#[test]
fn a_device_that_is_behind_is_waited_for() {
    // The block is in use on stream 1 when it is freed; nothing else has room for the next request.
    let crossing = trace("i 0; a 0 60 0; r 0 1; f 0; a 1 60 0");
    let figures = |lag| {
        let small = ReplayOptions { lag, capacity: Some(100 * MIB), ..options(false, "zero") };
        simulated(&crossing, &small)
    };
    assert_eq!((figures(0).waited_ns, figures(0).driver.modelled_driver_ns), (0, 0));
    let late = figures(50);
    assert!(late.driver.host_waits > 0, "{late:?}");
    // The last use is queued with the free, and the request comes one event later.
    assert_eq!(late.waited_ns, 49_000);
    assert_eq!(late.iterations[0].driver.modelled_driver_ns, 49_000);
}

#[test]
fn what_waits_for_another_stream_is_not_live() {
    // The first block is freed while stream 1 is behind, and the second one cannot have its memory.
    let crossing = trace("i 0; a 0 60 0; r 0 1; f 0; a 1 60 0; f 1; a 2 20 0");
    let figures = |lag| {
        let options = ReplayOptions { lag, ..options(false, "zero") };
        replay(&crossing, &options, |_| {}).unwrap().result
    };
    let (at_once, late) = (figures(0), figures(50));
    assert_eq!([&at_once, &late].map(|result| result.live_requested_bytes_peak), [60 * MIB; 2]);
    assert_eq!(at_once.requested_bytes_peak.unsigned_abs(), 60 * MIB);
    assert_eq!(late.requested_bytes_peak.unsigned_abs(), 120 * MIB, "PyTorch counts what waits, too");
    assert_eq!((at_once.reserved_over_live, late.reserved_over_live), (Some(1.0), Some(2.0)));
    assert_eq!(late.efficiency, Some(1.0));
}

#[test]
fn a_refused_request_is_never_live() {
    let small = ReplayOptions { capacity: Some(100 * MIB), ..options(false, "") };
    let result = replay(&trace("a 0 60 0; a 1 500 0; f 0; f 1"), &small, |_| {}).unwrap().result;
    assert_eq!((result.refused, result.live_requested_bytes_peak), (1, 60 * MIB));
    let nothing = replay(&trace("i 0"), &small, |_| {}).unwrap().result;
    assert_eq!(nothing.reserved_over_live, None);
}

/// Traps of a replay, under both policies and with growable segments or not.
fn traps(trace: &Trace, lag: u64) -> Vec<u64> {
    let both = |growable| {
        PolicyName::ALL.iter().map(move |policy| {
            let mut options = ReplayOptions { lag, ..options(growable, "") };
            options.settings.policy = Some(*policy);
            replay(trace, &options, |_| {}).unwrap().result.simulated.unwrap().traps
        })
    };
    both(false).chain(both(true)).collect()
}

#[test]
fn a_block_is_used_on_another_stream_after_the_work_of_its_own() {
    // The second block is where the first was, and the device is still at work on that for its own stream.
    let handed_on = trace("a 0 660 0; f 0; a 1 272 0; r 1 2");
    assert_eq!(traps(&handed_on, 100), [0; 4]);
}

#[test]
fn streams_that_prefetch_for_each_other_use_nothing_too_early() {
    // Every second block is used by another stream, too; sizes differ, so that memory is cut and joined.
    let mut lines = Vec::new();
    for n in 0..400_u64 {
        let (own, size) = (n % 3, 1 + n * 7 % 90);
        lines.push(format!("a {n} {size} {own}"));
        if n % 2 == 0 {
            lines.push(format!("r {n} {}", (own + 1) % 3));
        }
        if n % 4 == 0 {
            lines.push(format!("r {n} {}", (own + 2) % 3));
        }
        if n >= 6 {
            lines.push(format!("f {}", n - 6));
        }
    }
    let program = trace(&lines.join(";"));
    for lag in [1, 5, 100, 2000] {
        assert_eq!(traps(&program, lag), [0; 4], "work {lag} events behind");
    }
}

#[test]
fn iterations_without_end_are_cut_where_a_replay_stops() {
    let stopping = ReplayOptions { stop_on_oom: true, capacity: Some(50 * MIB), ..options(false, "") };
    let trace = trace("i 0; a 0 40 0; f 0; i 1; a 1 60 0; f 1; i 2; a 2 40 0");
    let result = replay(&trace, &stopping, |_| {}).unwrap().result;
    assert_eq!((result.refused, result.simulated.unwrap().iterations.len()), (1, 2));
}
