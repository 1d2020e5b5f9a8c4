//! What the page of several runs tells is compared with the runs.

use super::axis::{Axis, BINS};
use super::{Compared, Comparison};
use crate::bytes::read::Reader;
use crate::tests::sections_of;
use alloc_core::snapshot::{Action, Frame, Labels, Snapshot, TraceEntry};
use granule_analysis::Run;
use granule_analysis::run::{Iteration, Moment};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Function, file and line that asked, if there is a stack, and how many bytes.
type Request<'a> = (Option<(&'a str, &'a str, u64)>, u64);

/// A run of requests that stay.
fn run(requests: &[Request<'_>]) -> Run {
    let entry = |(index, (from, size)): (usize, &Request<'_>)| TraceEntry {
        action: Action::Alloc,
        addr: 0x1000_0000 * (index as u64 + 1),
        size: *size,
        stream: 0,
        time_us: 0,
        labels: Labels::default().into(),
        frames: from.map(|(name, file, line)| {
            [Frame { name: name.into(), filename: file.into(), line, extra: Vec::new() }].into()
        }),
    };
    let entries = requests.iter().enumerate().map(entry).collect();
    Run::of_snapshot(&Snapshot { device_traces: vec![entries], ..Snapshot::default() }, 0)
}

fn page(runs: &[&Run]) -> String {
    let compared = runs.iter().map(|run| Compared {
        name: "<run>",
        run,
        capacity: Some(1 << 30),
        verdict: "<v>".into(),
        remarks: vec!["<r>".into()],
    });
    let mut page = Vec::new();
    Comparison { title: "<t>", runs: compared.collect() }.write(&mut page).unwrap();
    String::from_utf8(page).unwrap()
}

fn about(sections: &HashMap<String, Vec<u8>>) -> Value {
    serde_json::from_slice(&sections["about"]).unwrap()
}

fn table(runs: &[&Run]) -> Vec<(String, Value, i64)> {
    let about = about(&sections_of(&page(runs)));
    let row = |row: &Value| {
        (row["name"].as_str().unwrap().to_owned(), row["bytes"].clone(), row["difference"].as_i64().unwrap())
    };
    about["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn call_sites_are_sorted_by_what_changed() {
    let before = run(&[
        (Some(("build", "/old/app/model.py", 3)), 100),
        (Some(("loss", "/old/app/loss.py", 7)), 500),
        (Some(("step", "/old/app/adam.py", 9)), 40),
        (None, 8),
    ]);
    // Lines and folders are others, and a function is new.
    let after = run(&[
        (Some(("build", "/new/app/model.py", 4)), 60),
        (Some(("build", "/new/app/model.py", 5)), 50),
        (Some(("loss", "/new/app/loss.py", 8)), 200),
        (Some(("cache", "/new/app/cache.py", 1)), 70),
        (Some(("step", "/new/app/adam.py", 9)), 40),
        (None, 8),
    ]);
    let row = |name: &str, bytes: Value, difference| (name.to_owned(), bytes, difference);
    assert_eq!(
        table(&[&before, &after]),
        [
            row("app/loss.py loss", json!([500, 200]), -300),
            row("app/cache.py cache", json!([0, 70]), 70),
            row("app/model.py build", json!([100, 110]), 10),
            row("app/adam.py step", json!([40, 40]), 0),
            row("no stack recorded", json!([8, 8]), 0),
        ]
    );
    // Of several, the most over the least.
    let differences: Vec<i64> = table(&[&before, &after, &before]).iter().map(|row| row.2).collect();
    assert_eq!(differences, [300, 70, 10, 0, 0]);
}

#[test]
fn categories_are_the_same_in_all_runs_and_add_up() {
    let names: Vec<String> = (0..30).map(|number| format!("f{number}")).collect();
    let requests: Vec<_> = names
        .iter()
        .zip(1..)
        .map(|(name, line)| (Some((&**name, "app/model.py", line)), line * 1000))
        .collect();
    let (whole, half) = (run(&requests), run(&requests[15..]));
    let sections = sections_of(&page(&[&whole, &half]));
    let about = about(&sections);
    let categories = about["categories"].as_array().unwrap();
    assert_eq!((categories.len(), &about["rest"]), (13, &Value::Bool(true)));
    assert_eq!((&categories[0], &categories[12]), (&json!("app/model.py f29"), &json!("18 others")));
    for (index, run) in [whole, half].iter().enumerate() {
        let mut reader = Reader(&sections[&format!("run-{index}")]);
        let bins = reader.number() as usize;
        let (_, most) = (reader.steps(bins), reader.steps(bins));
        let _ = (reader.column(bins), reader.steps(bins));
        let live: Vec<Vec<u64>> = categories.iter().map(|_| reader.steps(bins)).collect();
        assert!(reader.0.is_empty());
        assert_eq!(most.iter().max(), Some(&run.peak().1));
        for bin in 0..bins {
            assert_eq!(live.iter().map(|bytes| bytes[bin]).sum::<u64>(), most[bin], "{index}, {bin}");
        }
        // f29 has the first category in both.
        assert_eq!(live[0].last(), Some(&30_000));
    }
}

fn with_marks(length: u32, marks: &[Moment]) -> Run {
    let mark = |(at, number): (&Moment, u64)| Iteration { at: *at, number };
    Run { length, iterations: marks.iter().zip(0..).map(mark).collect(), ..Run::default() }
}

#[test]
fn iterations_are_below_each_other() {
    let (short, long) = (with_marks(100, &[10, 40]), with_marks(90_000, &[500, 1_000, 50_000]));
    let axis = Axis::of(&[&short, &long]);
    assert_eq!(axis, Axis::Iteration { pieces: 4, lead: true });
    // What is before the first takes a quarter, as does each iteration.
    let quarter = BINS as usize / 4;
    for (run, marks) in [(&short, &[0, 10, 40, 101][..]), (&long, &[0, 500, 1_000, 50_000, 90_001])] {
        let ranges = axis.ranges(run);
        assert_eq!(ranges.len(), quarter * (marks.len() - 1));
        for (piece, border) in marks.windows(2).enumerate() {
            let (first, last) = (ranges[piece * quarter], ranges[(piece + 1) * quarter - 1]);
            assert_eq!((first.0, last.1), (border[0], border[1] - 1), "{piece}");
        }
    }
    // Nothing is before the first of both, or one has no iterations.
    let from_the_start = with_marks(100, &[0, 40]);
    assert_eq!(Axis::of(&[&from_the_start, &from_the_start]), Axis::Iteration { pieces: 2, lead: false });
    assert_eq!(Axis::of(&[&short, &with_marks(100, &[10])]), Axis::Share);
}

proptest! {
    /// No moment is in no bin, so no peak is lost.
    #[test]
    fn bins_have_every_moment_in_order(
        length in prop_oneof![0..5_000u32, any::<u32>()],
        marks in prop::collection::btree_set(any::<u32>(), 0..60),
        more in 0..40usize,
    ) {
        let marks: Vec<u32> = marks.into_iter().map(|at| ((u64::from(at) * u64::from(length)) >> 32) as u32).collect();
        let run = with_marks(length, &marks);
        let other = with_marks(1_000, &(0..more as u32).collect::<Vec<_>>());
        let axis = Axis::of(&[&run, &other]);
        let ranges = axis.ranges(&run);
        // Where nothing is before the first mark of either, both begin with it.
        prop_assert_eq!(ranges[0].0, 0);
        prop_assert_eq!(ranges.last().unwrap().1, length);
        prop_assert!(ranges.len() <= BINS as usize);
        for pair in ranges.windows(2) {
            let [(from, to), (next, end)] = [pair[0], pair[1]];
            prop_assert!(from <= to && next <= end && from <= next && to <= end);
            prop_assert!(next <= to.saturating_add(1), "{:?}", pair);
        }
    }
}

#[test]
fn texts_of_a_file_are_nowhere_in_the_markup() {
    let hostile = run(&[(Some(("</script><img>", "<b>.py", 1)), 10)]);
    let page = page(&[&hostile, &hostile]);
    for text in ["<img>", "<b>", "<run>", "<v>", "<r>", "<t>"] {
        assert!(!page.contains(text), "{text}");
    }
    assert_eq!(table(&[&hostile])[0].0, "<b>.py </script><img>");
}

#[test]
fn runs_of_nothing_have_a_page() {
    let nothing = Run::default();
    let sections = sections_of(&page(&[&nothing, &nothing]));
    assert_eq!(about(&sections)["categories"], json!(["no stack recorded"]));
    assert_eq!(about(&sections)["rows"], json!([]));
}
