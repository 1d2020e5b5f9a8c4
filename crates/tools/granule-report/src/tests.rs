//! The page is read back as the viewer reads it, and compared with the run.

use crate::bytes::read::Reader;
use crate::classes::Classes;
use crate::lives::{self, Addresses};
use crate::tree::{Interval, LEAF};
use crate::{Report, WhatIf};
use alloc_core::config::Settings;
use alloc_core::snapshot::{Action, Frame, Labels, Snapshot, Stack, TraceEntry};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use granule_analysis::Run;
use granule_analysis::rules::Rules;
use granule_analysis::run::{Allocation, Moment, NEVER, Span};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Read;

/// Sections of a run's page by id.
fn sections(run: &Run) -> HashMap<String, Vec<u8>> {
    let mut page = Vec::new();
    let report = Report {
        run,
        title: "test",
        rules: Rules::new(&Settings::default()),
        verdict: String::new(),
        reasons: Vec::new(),
        capacity: Some(1 << 30),
        facts: Vec::new(),
        remarks: Vec::new(),
        what_if: WhatIf::default(),
    };
    report.write(&mut page).unwrap();
    sections_of(&String::from_utf8(page).unwrap())
}

/// Sections of a page by id.
pub(crate) fn sections_of(page: &str) -> HashMap<String, Vec<u8>> {
    let found = page.split("<script type=\"application/octet-stream\" id=\"").skip(1).map(|rest| {
        let (id, rest) = rest.split_once("\">").unwrap();
        let packed = STANDARD.decode(rest.split_once('<').unwrap().0).unwrap();
        let mut bytes = Vec::new();
        flate2::read::DeflateDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        (id.to_owned(), bytes)
    });
    found.collect()
}

fn about(sections: &HashMap<String, Vec<u8>>) -> serde_json::Value {
    serde_json::from_slice(&sections["about"]).unwrap()
}

/// What an interval's section holds; nothing if there is none.
fn interval(
    sections: &HashMap<String, Vec<u8>>,
    at: Interval,
    run: &Run,
) -> (Vec<(u32, Allocation)>, Vec<Span>) {
    let Some(bytes) = sections.get(&format!("interval-{}-{}", at.height, at.index)) else {
        return Default::default();
    };
    let mut reader = Reader(bytes);
    let addresses = Addresses::of(run);
    let content =
        (lives::read::allocations(&mut reader, addresses), lives::read::spans(&mut reader, addresses));
    assert!(reader.0.is_empty());
    content
}

/// Lives with short and long ones among them, so that all heights of the tree and all levels have some.
fn runs() -> impl Strategy<Value = Run> {
    let length = prop_oneof![1..2_000u32, 100_000..700_000u32];
    (length, prop::collection::vec((any::<u32>(), any::<u32>(), 0..20u32, any::<u64>()), 1..300)).prop_map(
        |(length, seeds)| {
            let mut run = Run {
                length,
                streams: vec![0, 7],
                pools: vec![alloc_core::types::PoolId(0, 0), alloc_core::types::PoolId(0, 1)],
                labels: vec!["".into(), "</script><b>".into()],
                ..Run::default()
            };
            for (begin, life, scale, more) in seeds {
                let begin = if more % 11 == 0 { 0 } else { begin % length + 1 };
                let end = match more % 7 {
                    0 => NEVER,
                    _ => (begin + 1 + (life >> scale) % length).min(length),
                };
                let end = if end <= begin { NEVER } else { end };
                let reusable = match more % 5 {
                    0 => NEVER,
                    _ if end == NEVER => NEVER,
                    wait => (end + wait as u32).min(length.max(end)),
                };
                run.allocations.push(Allocation {
                    begin,
                    end,
                    reusable,
                    address: 0x7f00_0000_0000 + (more % 1000) * 512,
                    size: more % (1 << (4 + scale)) + 1,
                    stream: (more % 2) as u32,
                    pool: (more / 2 % 2) as u32,
                    site: 0,
                    label: (more / 4 % 2) as u32,
                });
                run.spans.push(Span {
                    begin,
                    end,
                    address: 0x7f00_0000_0000 + (more % 1000) * 4096,
                    size: 4096,
                    stream: 0,
                    pool: (more % 2) as u32,
                    growable: more % 3 == 0,
                });
            }
            run.allocations.sort_by_key(|life| life.begin);
            run.spans.sort_by_key(|span| span.begin);
            run
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_there_was_at_a_moment_is_in_the_intervals_around_it(run in runs(), moments in prop::collection::vec(any::<u32>(), 20)) {
        let sections = sections(&run);
        let top = about(&sections)["intervals"].as_array().unwrap().iter().map(|at| at[0].as_u64().unwrap()).max().unwrap();
        for moment in moments.into_iter().map(|moment| moment % (run.length + 1)) {
            let mut found: Vec<(u32, Allocation)> = Vec::new();
            let mut held: Vec<Span> = Vec::new();
            for height in 0..=top as u32 {
                let (lives, spans) = interval(&sections, Interval { height, index: moment >> (LEAF + height) }, &run);
                found.extend(lives.into_iter().filter(|(_, life)| life.begin <= moment && moment < life.reusable));
                held.extend(spans.into_iter().filter(|span| span.begin <= moment && moment < span.end));
            }
            found.sort_by_key(|(index, _)| *index);
            held.sort_by_key(|span| (span.begin, span.address, span.size, span.end, span.pool, span.growable));
            let lives = (0..).zip(run.allocations.iter().copied());
            let lives: Vec<_> = lives.filter(|(_, life)| life.begin <= moment && moment < life.reusable).collect();
            prop_assert_eq!(found, lives);
            let mut spans: Vec<_> = run.spans.iter().copied().filter(|span| span.begin <= moment && moment < span.end).collect();
            spans.sort_by_key(|span| (span.begin, span.address, span.size, span.end, span.pool, span.growable));
            prop_assert_eq!(held, spans);
        }
    }

    #[test]
    fn everything_is_in_one_interval_and_only_once(run in runs()) {
        let sections = sections(&run);
        let places = about(&sections)["intervals"].clone();
        let mut all: Vec<(u32, Allocation)> = Vec::new();
        let mut spans = 0;
        for place in places.as_array().unwrap() {
            let at = Interval { height: place[0].as_u64().unwrap() as u32, index: place[1].as_u64().unwrap() as u32 };
            let (lives, held) = interval(&sections, at, &run);
            prop_assert!(!lives.is_empty() || !held.is_empty());
            all.extend(lives);
            spans += held.len();
        }
        all.sort_by_key(|(index, _)| *index);
        prop_assert_eq!(all, (0..).zip(run.allocations.iter().copied()).collect::<Vec<_>>());
        prop_assert_eq!(spans, run.spans.len());
    }

    #[test]
    fn bins_tell_what_a_slow_count_tells(run in runs()) {
        let sections = sections(&run);
        let about = about(&sections);
        let classes = Classes::of(&run);
        let slow = Slow::of(&run);
        let levels = about["levels"].as_array().unwrap().clone();
        prop_assert_eq!(levels.is_empty(), u64::from(run.length) < about["narrow"].as_u64().unwrap());
        for level in levels {
            let (shift, count) = (level[0].as_u64().unwrap() as u32, level[1].as_u64().unwrap() as usize);
            prop_assert_eq!(count as u64, (u64::from(run.length) >> shift) + 1);
            let mut first = 0;
            while first < count {
                let bytes = &sections[&format!("level-{shift}-{}", first / 2048)];
                let mut reader = Reader(bytes);
                let bins = reader.number() as usize;
                prop_assert_eq!(bins, (count - first).min(2048));
                let (at, most, spread) = (reader.steps(bins), reader.steps(bins), reader.column(bins));
                let reserved = reader.steps(bins);
                let live: Vec<Vec<u64>> = (0..classes.total()).map(|_| reader.steps(bins)).collect();
                let visible = lives::read::allocations(&mut reader, Addresses::of(&run));
                prop_assert!(reader.0.is_empty());
                for bin in 0..bins {
                    let from = ((first + bin) << shift) as Moment;
                    let to = (from + (1 << shift)).min(run.length + 1);
                    let (peak, highest, lowest) = slow.range(from, to);
                    prop_assert_eq!((at[bin], most[bin]), (u64::from(peak), highest));
                    prop_assert_eq!(most[bin] - spread[bin], lowest);
                    prop_assert_eq!(reserved[bin], slow.reserved[from as usize..to as usize].iter().copied().max().unwrap());
                    let mut expected = vec![0; classes.total()];
                    for life in run.allocations.iter().filter(|life| life.is_live(peak)) {
                        for place in classes.places(life) {
                            expected[place] += life.size;
                        }
                    }
                    // Slow, so not for every bin.
                    if bin % 97 == 0 {
                        let told: Vec<u64> = live.iter().map(|class| class[bin]).collect();
                        prop_assert_eq!(told, expected);
                    }
                }
                for (index, life) in visible {
                    prop_assert_eq!(life, run.allocations[index as usize]);
                    prop_assert!(at.iter().filter(|at| life.is_live(**at as Moment)).count() >= 1);
                }
                first += bins;
            }
        }
    }
}

/// Live and held bytes at every moment.
struct Slow {
    live: Vec<u64>,
    reserved: Vec<u64>,
}

impl Slow {
    fn of(run: &Run) -> Self {
        let curve = |lives: &mut dyn Iterator<Item = (Moment, Moment, u64)>| {
            let mut by = vec![0i64; run.length as usize + 2];
            for (begin, end, size) in lives {
                by[begin as usize] += size as i64;
                by[(end.min(run.length + 1)) as usize] -= size as i64;
            }
            let mut sum = 0;
            let sums = by.into_iter().map(|by| {
                sum += by;
                sum as u64
            });
            sums.take(run.length as usize + 1).collect::<Vec<_>>()
        };
        Self {
            live: curve(&mut run.allocations.iter().map(|life| (life.begin, life.end, life.size))),
            reserved: curve(&mut run.spans.iter().map(|span| (span.begin, span.end, span.size))),
        }
    }

    /// First moment of the most, the most, the least.
    fn range(&self, from: Moment, to: Moment) -> (Moment, u64, u64) {
        let moments = &self.live[from as usize..to as usize];
        let most = *moments.iter().max().unwrap();
        let at = moments.iter().position(|live| *live == most).unwrap();
        (from + at as Moment, most, *moments.iter().min().unwrap())
    }
}

#[test]
fn a_run_of_nothing_has_a_page() {
    let sections = sections(&Run::default());
    let about = about(&sections);
    assert_eq!(about["allocations"], 0);
    assert_eq!(about["ways"].as_array().unwrap().len(), 6);
    // A colour for what there may be, in every way.
    assert!(about["ways"].as_array().unwrap().iter().all(|way| !way["names"].as_array().unwrap().is_empty()));
}

#[test]
fn texts_of_a_file_are_nowhere_in_the_markup() {
    let run = Run {
        length: 5,
        notes: vec![(1, "</script><img>".into())],
        labels: vec!["<b>hi".into()],
        ..Run::default()
    };
    let mut page = Vec::new();
    let report = Report {
        run: &run,
        title: "<h9>",
        rules: Rules::new(&Settings::default()),
        verdict: "<h8>".into(),
        reasons: vec!["<h7>".into()],
        capacity: None,
        facts: Vec::new(),
        remarks: vec!["<u>".into()],
        what_if: WhatIf { summary: "<i>".into(), devices: Vec::new() },
    };
    report.write(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    for text in ["<img>", "<b>hi", "<i>", "<u>", "<h7>", "<h8>", "<h9>"] {
        assert!(!page.contains(text), "{text}");
    }
    assert_eq!(about(&sections(&run))["notes"][0][1], "</script><img>");
}

/// The flame graph is a sum over this tree: a node comes after the one outside of it, and leads out to the whole stack.
#[test]
fn stacks_are_a_tree_from_the_outermost_frame() {
    let stack = |functions: &[&str]| -> Stack {
        let frame = |name: &&str| Frame {
            name: (*name).into(),
            filename: "model.py".into(),
            line: 1,
            extra: Vec::new(),
        };
        functions.iter().map(frame).collect()
    };
    let stacks = [stack(&["conv", "forward", "main"]), stack(&["relu", "forward", "main"]), stack(&["main"])];
    let entry = |(index, stack): (usize, &Stack)| TraceEntry {
        action: Action::Alloc,
        addr: 0x1000 * (index as u64 + 1),
        size: 10 << index,
        stream: 0,
        time_us: 0,
        labels: Labels::default().into(),
        frames: Some(stack.clone()),
    };
    let entries = stacks.iter().enumerate().map(entry).collect();
    let run = Run::of_snapshot(&Snapshot { device_traces: vec![entries], ..Snapshot::default() }, 0);
    let sections = sections(&run);
    let mut reader = Reader(&sections["texts"]);
    let texts: Vec<String> = (0..reader.number()).map(|_| reader.text()).collect();
    let frames = reader.number() as usize;
    let names = reader.steps(frames);
    let _ = (reader.steps(frames), reader.column(frames));
    let nodes = reader.number() as usize;
    let (outside, frame) = (reader.steps(nodes), reader.steps(nodes));
    let sites = reader.number() as usize;
    let site_nodes = reader.steps(sites);
    // "main" and "forward" are shared.
    assert_eq!(nodes, 4);
    assert!(outside.iter().zip(1..).all(|(outside, node)| *outside < node), "{outside:?}");
    let mut bytes = vec![0; nodes + 1];
    for life in &run.allocations {
        bytes[site_nodes[life.site as usize] as usize] += life.size;
    }
    for node in (1..=nodes).rev() {
        bytes[outside[node - 1] as usize] += bytes[node];
    }
    let by_name: HashMap<&str, u64> =
        (1..=nodes).map(|node| (&*texts[names[frame[node - 1] as usize] as usize], bytes[node])).collect();
    assert_eq!(by_name, HashMap::from([("main", 70), ("forward", 30), ("conv", 10), ("relu", 20)]));
    assert_eq!(bytes[0], 70);
}
