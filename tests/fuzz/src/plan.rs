//! Plans as files, and tables of placement problems.

use crate::in_words;
use granule_planner::verify::verify;
use granule_planner::{
    Advice, BadPlan, CrossStream, Options, Pattern, Plan, PlanCursor, Problem, ReadError, Recording, Solver,
    csv, max_load, solve,
};
use granule_snapshot::trace::Trace;
use std::sync::Arc;

/// Reads a plan and follows it. Where only the hash of its requests is wrong, the right one is put in.
///
/// # Panics
/// Where a promise is broken.
pub fn run(input: &[u8]) {
    match Plan::read(input) {
        Ok(plan) => look(plan),
        Err(ReadError::Bad(BadPlan::Pattern { found, .. })) => {
            let Ok(mut file) = serde_json::from_slice::<serde_json::Value>(input) else { return };
            file["pattern"] = format!("{found:016x}").into();
            match Plan::read(file.to_string().as_bytes()) {
                Ok(plan) => look(plan),
                Err(error) => refused(input, &error),
            }
        }
        Err(error) => refused(input, &error),
    }
}

fn refused(input: &[u8], error: &ReadError) {
    in_words(error, 4000);
    let is_archive = input.starts_with(&[0x1f, 0x8b]) || input.starts_with(b"PK");
    assert!(is_archive || !matches!(error, ReadError::Read(_)), "memory can be read: {error}");
}

fn look(plan: Plan) {
    let mut written = Vec::new();
    plan.write(&mut written).expect("memory takes all");
    assert_eq!(Plan::read(&written[..]).expect("what is written is read"), plan);
    no_two_meet(&plan);
    let _ = (plan.loads(), plan.main_stream());
    let plan = Arc::new(plan);
    let mut cursor = PlanCursor::new(Arc::clone(&plan));
    for (index, step) in plan.steps().iter().enumerate() {
        let advice = cursor.next(step.size, step.stream);
        if !plan.repeats {
            let expected = match step.offset {
                Some(offset) => Advice::Place { step: index, offset },
                None => Advice::Unplanned { step: index },
            };
            assert_eq!(advice, expected, "a program that does as planned is told so");
        }
    }
    assert_eq!(cursor.counts().requests, plan.steps().len() as u64);
    let _ = cursor.next(u64::MAX, u32::MAX);
}

/// What is placed is below the height. No block begins, on its own stream, on bytes that an earlier one still has for that
/// stream.
fn no_two_meet(plan: &Plan) {
    let placed = |index: usize| plan.steps()[index].offset.map(|offset| (offset, plan.steps()[index].size));
    for later in 0..plan.steps().len() {
        let Some((at, size)) = placed(later) else { continue };
        assert!(at.checked_add(size).is_some_and(|end| end <= plan.height), "step {later} is too high");
        let stream = plan.steps()[later].stream;
        for earlier in 0..later {
            let Some((other, bytes)) = placed(earlier) else { continue };
            let held = plan.steps()[earlier].life_on(stream) > (later - earlier) as u64;
            let meet = at < other + bytes && other < at + size;
            assert!(!(held && meet), "steps {earlier} and {later} share bytes");
        }
    }
}

/// Reads a table and places its buffers.
///
/// # Panics
/// Where a promise is broken.
pub fn table(input: &[u8]) {
    let table = match csv::read(input) {
        Ok(table) => table,
        Err(error) => return in_words(&error, 1000),
    };
    let problem = &table.problem;
    assert_eq!(table.ids.len(), problem.buffers().len(), "every buffer has a name");
    if problem.buffers().len() > 24 {
        return;
    }
    let options = Options { solver: Solver::Greedy, ..Options::default() };
    let solution = match solve(problem, &options) {
        Ok(solution) => solution,
        Err(error) => return in_words(&error, 1000),
    };
    assert_eq!(verify(problem, &solution.placement), Ok(()));
    assert!(solution.placement.height >= solution.bound && solution.bound >= max_load(problem));
    apart(problem, &solution.placement.offsets);
    let mut written = Vec::new();
    csv::write(&table, &solution.placement, &mut written).expect("memory takes all");
    assert!(written.starts_with(b"id,offset\n"));
}

/// No two buffers that are there at once share bytes.
fn apart(problem: &Problem, offsets: &[u64]) {
    let buffers = problem.buffers();
    for (a, (first, at)) in buffers.iter().zip(offsets).enumerate() {
        for (second, other) in buffers.iter().zip(offsets).skip(a + 1) {
            let at_once = first.lower < second.upper && second.lower < first.upper;
            let meet = *at < other + second.size && *other < at + first.size;
            assert!(!(at_once && meet), "{first:?} at {at} and {second:?} at {other} share bytes");
        }
    }
}

/// Plans of a small trace.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let text = "# {\"workload\": \"x\"}\ni 0\na 0 1000 0\na 1 3000 1\nr 0 1\nf 0\na 2 512 0\nf 1\nf 2\n\
                i 1\na 3 1000 0\na 4 3000 1\nr 3 1\nf 3\na 5 512 0\nf 4\nf 5\ni 2\n";
    let trace = Trace::from_reader(text.as_bytes()).expect("a trace");
    let mut seeds = Vec::new();
    for cross in [CrossStream::Waits, CrossStream::Ordered] {
        let recording = Recording::new(&trace, cross).expect("a recording");
        for pattern in [Pattern::whole(&recording), Pattern::iteration(&recording, 0)] {
            let pattern = pattern.expect("a pattern");
            let (plan, _) = Plan::make("x", &pattern, 512, true, &Options::default()).expect("a plan");
            let mut written = Vec::new();
            plan.write(&mut written).expect("memory takes all");
            seeds.push(written);
        }
    }
    seeds
}

/// Small tables.
#[must_use]
pub fn tables() -> Vec<Vec<u8>> {
    ["id,lower,upper,size\n0,0,3,4\n1,1,4,8\nx,3,5,2\n", "size,id,upper,lower\n1,a,2,0\n\n5,b,9,1\n"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}
