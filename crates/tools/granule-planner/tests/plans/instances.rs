//! The published hard instances and the recorded traces, where they are at hand.

use crate::common::{overlaps, shared};
use granule_planner::{
    Advice, CrossStream, Options, Pattern, Plan, PlanCursor, Recording, Solver, csv, solve,
};
use granule_snapshot::trace::{Event, Trace};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let Some(folder) = shared(folder) else { return Vec::new() };
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(ending));
    files.sort();
    files
}

#[test]
fn published_instances_are_solved_at_their_capacity() {
    for path in files("minimalloc", ".csv") {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let capacity =
            name.split('.').nth(1).and_then(|text| text.parse().ok()).expect("a capacity in the name");
        let table = csv::read(BufReader::new(File::open(&path).expect("readable"))).expect("a table");
        let start = Instant::now();
        let options = Options {
            capacity: Some(capacity),
            time_limit: Some(Duration::from_secs(300)),
            ..Options::default()
        };
        let solution = solve(&table.problem, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
        println!("{name}: {:.3} s, height {}", start.elapsed().as_secs_f64(), solution.placement.height);
        assert!(solution.placement.height <= capacity, "{name}");
        assert_eq!(overlaps(&table.problem, &solution.placement.offsets), [], "{name}");
    }
}

#[test]
fn recorded_iterations_are_placed_close_to_their_load() {
    for path in files("traces", ".trace.gz") {
        let trace = Trace::load(&path).expect("a trace");
        for cross in [CrossStream::Ordered, CrossStream::Waits] {
            let recording = Recording::new(&trace, cross).expect("a sound trace");
            let pattern = Pattern::iteration(&recording, 2).expect("there is a second iteration");
            let planned = pattern.problem(512).expect("a sound problem");
            let options = Options { solver: Solver::Greedy, ..Options::default() };
            let solution = solve(&planned.problem, &options).expect("no capacity");
            let over = solution.placement.height as f64 / solution.bound as f64;
            let name = path.file_name().expect("a file").to_string_lossy();
            println!(
                "{name}, {cross:?}: {} of {} requests, {over:.5}",
                planned.requests.len(),
                pattern.requests()
            );
            if cross == CrossStream::Waits {
                assert!(over < 1.02, "{name}: {over}");
            }
        }
    }
}

#[test]
fn a_plan_of_the_second_iteration_is_followed_by_equal_ones() {
    for path in files("traces", ".trace.gz") {
        let trace = Trace::load(&path).expect("a trace");
        let recording = Recording::new(&trace, CrossStream::Waits).expect("a sound trace");
        let pattern = Pattern::iteration(&recording, 2).expect("there is a second iteration");
        let options = Options { solver: Solver::Greedy, ..Options::default() };
        let (plan, _) = Plan::make("test", &pattern, 512, true, &options).expect("a plan");
        let steps: Vec<_> = plan.steps().iter().map(|step| (step.size, step.stream)).collect();
        let mut cursor = PlanCursor::new(Arc::new(plan));
        let mut iterations: Vec<Vec<(u64, u32)>> = vec![Vec::new()];
        for event in &trace.events {
            match *event {
                Event::Iteration { .. } => iterations.push(Vec::new()),
                Event::Alloc { size, stream, .. } => iterations.last_mut().expect("one").push((size, stream)),
                _ => {}
            }
        }
        let mut equal = 0;
        for iteration in &iterations {
            let outside = iteration.iter().filter(|&&(size, stream)| {
                matches!(cursor.next(size, stream), Advice::Outside | Advice::Mismatch { .. })
            });
            let outside = outside.count();
            if *iteration == steps {
                equal += 1;
                // No more than it takes to find the place; a repeating neighbour leaves nothing to find.
                assert!(outside <= cursor.window() + 1, "{}: {outside} of {}", path.display(), steps.len());
            }
        }
        assert!(equal >= 1, "the second iteration itself");
        println!("{}: {equal} equal of {}, {:?}", path.display(), iterations.len() - 1, cursor.counts());
    }
}
