//! The cursor finds its place by content, leaves it at the first request that differs, and finds it again.

use crate::common::Dice;
use flate2::{Compression, write::GzEncoder};
use granule_planner::{
    Advice, CrossStream, Options, Pattern, Plan, PlanCursor, ReadError, Recording, Solver,
};
use granule_snapshot::pickle::Limits;
use granule_snapshot::trace::{Event, Trace};
use proptest::prelude::*;
use std::io::Write as _;
use std::sync::Arc;

/// A program: every iteration makes the same requests, and each block is given back some requests later, in the next
/// iteration if need be.
fn program(requests: &[(u64, u32, usize)], iterations: u64) -> Trace {
    let mut trace = Trace::default();
    let mut frees: Vec<(u64, u64)> = Vec::new();
    let mut id = 0;
    for n in 0..iterations {
        trace.events.push(Event::Iteration { n });
        for &(size, stream, life) in requests {
            frees.retain(|&(due, block)| {
                if due <= id {
                    trace.events.push(Event::Free { id: block });
                }
                due > id
            });
            trace.events.push(Event::Alloc { id, size, stream });
            frees.push((id + life as u64, id));
            id += 1;
        }
    }
    trace
}

fn requests(count: usize, kinds: u64, seed: u64) -> Vec<(u64, u32, usize)> {
    let mut dice = Dice(seed);
    let mut request = || {
        let life = 1 + dice.below(count as u64 + 3) as usize;
        (512 * (1 + dice.below(kinds)), dice.below(2) as u32, life)
    };
    (0..count).map(|_| request()).collect()
}

fn plan(requests: &[(u64, u32, usize)]) -> Plan {
    let recording = Recording::new(&program(requests, 4), CrossStream::Waits).expect("a sound trace");
    let pattern = Pattern::iteration(&recording, 1).expect("there is one");
    let options = Options { solver: Solver::Greedy, ..Options::default() };
    Plan::make("program", &pattern, 512, true, &options).expect("a plan").0
}

/// What the cursor says to each request.
fn follow(cursor: &mut PlanCursor, requests: impl IntoIterator<Item = (u64, u32)>) -> Vec<Advice> {
    requests.into_iter().map(|(size, stream)| cursor.next(size, stream)).collect()
}

fn contents(requests: &[(u64, u32, usize)]) -> impl Iterator<Item = (u64, u32)> + Clone {
    requests.iter().map(|&(size, stream, _)| (size, stream))
}

/// The advice of a step.
fn advice(plan: &Plan, step: usize) -> Advice {
    plan.steps()[step].offset.map_or(Advice::Unplanned { step }, |offset| Advice::Place { step, offset })
}

proptest! {
    #[test]
    fn a_repeating_program_is_followed_step_by_step(count in 1usize..60, kinds in 30u64..1000, seed: u64) {
        let requests = requests(count, kinds, seed);
        let plan = Arc::new(plan(&requests));
        let mut cursor = PlanCursor::new(plan.clone());
        let given = follow(&mut cursor, contents(&requests).cycle().take(count * 4 + 40));
        let start = given.iter().position(|advice| *advice != Advice::Outside);
        prop_assume!(start.is_some());
        let start = start.unwrap_or_default();
        prop_assert!(start <= cursor.window() || count < 16, "found after {start}");
        // Whatever it took for its place: from there on every step is the one that the request is.
        for (index, advice_given) in given.iter().enumerate().skip(start) {
            let (Advice::Place { step, .. } | Advice::Unplanned { step }) = *advice_given else {
                return Err(TestCaseError::fail(format!("{advice_given:?} at {index}")));
            };
            prop_assert_eq!(*advice_given, advice(&plan, step));
            prop_assert_eq!((plan.steps()[step].size, plan.steps()[step].stream),
                (requests[index % count].0, requests[index % count].1));
        }
        prop_assert_eq!(cursor.counts().mismatches, 0);
        prop_assert_eq!(cursor.counts().entries, 1);
    }

    #[test]
    fn strange_requests_are_never_given_a_place(
        seed: u64, count in 20usize..80, strangers in prop::collection::vec((0usize..120, 1u64..1000), 1..6),
    ) {
        let requests = requests(count, 400, seed);
        let plan = Arc::new(plan(&requests));
        let mut cursor = PlanCursor::new(plan.clone());
        let mut stream: Vec<(u64, u32, bool)> =
            contents(&requests).cycle().take(count * 6).map(|(size, stream)| (size, stream, false)).collect();
        for &(at, size) in &strangers {
            // Not a multiple of 512, so it is in no plan.
            stream.insert(at, (size * 512 + 1, 0, true));
        }
        for &(size, on, strange) in &stream {
            let given = cursor.next(size, on);
            match given {
                Advice::Place { step, .. } | Advice::Unplanned { step } => {
                    prop_assert!(!strange);
                    prop_assert_eq!(given, advice(&plan, step));
                    prop_assert_eq!((plan.steps()[step].size, plan.steps()[step].stream), (size, on));
                }
                Advice::Mismatch { step } => {
                    prop_assert!((plan.steps()[step].size, plan.steps()[step].stream) != (size, on));
                }
                Advice::Outside => {}
            }
        }
        let counts = cursor.counts();
        prop_assert_eq!(counts.requests, stream.len() as u64);
        prop_assert!(counts.mismatches <= strangers.len() as u64);
        prop_assert!(counts.entries <= counts.mismatches + 1);
        // Behind the last stranger there is time to find the place again.
        let last = stream.iter().rposition(|&(.., strange)| strange).unwrap_or(0);
        if stream.len() - last > cursor.window() + 2 {
            let next = requests[(stream.len() - strangers.len()) % count];
            let lost = matches!(cursor.next(next.0, next.1), Advice::Outside | Advice::Mismatch { .. });
            prop_assert!(!lost);
        }
    }

    #[test]
    fn blocks_given_out_by_the_plan_never_meet(count in 1usize..60, seed: u64) {
        let requests = requests(count, 300, seed);
        let plan = plan(&requests);
        let mut live: Vec<(usize, u64, u64)> = Vec::new();
        for now in 0..4 * count {
            live.retain(|&(until, ..)| until > now);
            let step = now % count;
            let (size, _, life) = requests[step];
            let Some(offset) = plan.steps()[step].offset else {
                prop_assert!(life > count, "it could have had a place");
                continue;
            };
            prop_assert!(offset + size <= plan.height);
            for &(_, from, to) in &live {
                prop_assert!(offset >= to || offset + size <= from, "request {now}");
            }
            live.push((now + life, offset, offset + size));
        }
    }

    #[test]
    fn a_file_gives_back_the_plan(count in 1usize..40, seed: u64) {
        let plan = plan(&requests(count, 50, seed));
        let mut text = Vec::new();
        plan.write(&mut text).expect("memory takes everything");
        prop_assert_eq!(Plan::read(&text[..]).expect("what was written can be read"), plan);
    }
}

#[test]
fn an_empty_stretch_after_leaving_is_no_place() {
    let requests = requests(50, 500, 3);
    let mut cursor = PlanCursor::new(Arc::new(plan(&requests)));
    follow(&mut cursor, contents(&requests));
    assert!(matches!(
        cursor.next(requests[0].0, requests[0].1),
        Advice::Place { .. } | Advice::Unplanned { .. }
    ));
    cursor.leave();
    let window = cursor.window();
    let given = follow(&mut cursor, contents(&requests).cycle().skip(1).take(window + 1));
    assert!(given[..window].iter().all(|advice| *advice == Advice::Outside));
    assert_ne!(given[window], Advice::Outside);
}

#[test]
fn a_whole_run_is_followed_from_its_first_request_to_its_last() {
    let requests = requests(30, 500, 9);
    let recording = Recording::new(&program(&requests, 3), CrossStream::Waits).expect("a sound trace");
    let pattern = Pattern::whole(&recording).expect("there are requests");
    let (plan, solution) = Plan::make("run", &pattern, 512, true, &Options::default()).expect("a plan");
    assert_eq!(plan.max_load, solution.bound);
    let mut cursor = PlanCursor::new(Arc::new(plan));
    let given = follow(&mut cursor, contents(&requests).cycle().take(90));
    assert!(given.iter().all(|advice| matches!(advice, Advice::Place { .. })));
    assert_eq!(cursor.next(requests[0].0, requests[0].1), Advice::Outside);
}

#[test]
fn wrong_files_are_refused_in_words() {
    let mut text = Vec::new();
    let plan = plan(&requests(20, 50, 4));
    plan.write(&mut text).expect("memory takes everything");
    let text = String::from_utf8(text).expect("JSON is text");
    let refused = |text: &str| Plan::read(text.as_bytes()).expect_err("it is wrong").to_string();
    assert!(refused("{}").contains("no plan"));
    assert!(refused(&text[..text.len() / 2]).contains("damaged"));
    assert!(refused(&text.replace("\"version\":1", "\"version\":9")).contains("version 9"));
    let padded = format!("{}{text}", " ".repeat(5 << 20));
    assert_eq!(Plan::read(padded.as_bytes()).expect("long, but not packed"), plan);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(padded.as_bytes()).expect("memory takes everything");
    let packed = encoder.finish().expect("memory takes everything");
    assert!(Plan::read(&packed[..]).expect_err("5 MiB of a few bytes").to_string().contains("--trust"));
    assert_eq!(Plan::read_with(&packed[..], &Limits::trusting()).expect("it is trusted"), plan);
    let size = plan.steps()[0].size;
    let other = text.replacen(&format!("[[{size},"), &format!("[[{},", size + 512), 1);
    assert!(refused(&other).contains("pattern"));
    assert!(matches!(Plan::read("".as_bytes()), Err(ReadError::Json(_))));
    // Everything onto the same bytes.
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for step in value["steps"].as_array_mut().expect("steps") {
        if !step[3].is_null() {
            step[3] = 0.into();
        }
    }
    assert!(refused(&value.to_string()).contains("other buffer"));
}

#[test]
fn a_place_is_found_soon_where_eight_requests_tell_it() {
    // Most places look alike; the beginning does not.
    let mut requests: Vec<_> = (0..8).map(|n| (512 * (n + 50), 0, 1)).collect();
    requests.extend((0..200).map(|n| (512 * (1 + n % 3), 0, 1)));
    requests.push((77 * 512, 0, 1));
    let mut cursor = PlanCursor::new(Arc::new(plan(&requests)));
    assert!(cursor.window() > 8, "nearly everywhere it takes more: {}", cursor.window());
    let given = follow(&mut cursor, contents(&requests));
    assert!(given[..8].iter().all(|advice| *advice == Advice::Outside));
    assert!(given[8..].iter().all(|advice| matches!(advice, Advice::Place { .. })), "{given:?}");
}

#[test]
fn loads_are_what_is_held_before_each_step() {
    let requests = requests(40, 9, 5);
    let plan = plan(&requests);
    let steps = plan.steps();
    let count = steps.len();
    let held = |at: usize| -> u64 {
        let planned = steps.iter().enumerate().filter(|(_, step)| step.offset.is_some());
        let lives = |(by, step): &(usize, &granule_planner::Step)| {
            let age = (at + count - by - 1) % count + 1;
            age as u64 <= step.life_on(step.stream).saturating_sub(1)
        };
        planned.filter(lives).map(|(_, step)| step.size).sum()
    };
    let expected: Vec<u64> = (0..count).map(held).collect();
    assert_eq!(plan.loads(), expected);
    assert!(expected.iter().max() <= Some(&plan.height));
    let bytes = |stream| -> u64 {
        steps.iter().filter(|step| step.stream == stream && step.offset.is_some()).map(|step| step.size).sum()
    };
    assert_eq!(plan.main_stream(), u32::from(bytes(1) > bytes(0)));
}
