//! The flame graph.

use crate::{go_to, panel, report, training};
use alloc_core::snapshot::{Action, Frame, Labels, Snapshot, TraceEntry};
use alloc_core::types::MIB;
use browser_tests::runs::{self, NEEDLE, USUAL};
use browser_tests::{Browser, with_report};
use granule_analysis::Run;
use serde_json::Value;

/// A frame of the flame graph as it is drawn, by the function's name.
async fn frame(browser: &Browser, name: &str) -> Value {
    browser.get(&format!("window.granule.flame.find((box) => box.name === '{name}') ?? null")).await
}

/// The middle of a frame, on the screen.
async fn middle_of(browser: &Browser, frame: &Value) -> (f64, f64) {
    let at = "document.querySelector('#flame').getBoundingClientRect()";
    let [x, width, depth] = ["x", "width", "depth"].map(|name| frame[name].as_f64().unwrap());
    (
        browser.number(&format!("{at}.left")).await + x + width / 2.0,
        browser.number(&format!("{at}.top")).await + depth * 18.0 + 9.0,
    )
}

#[test]
fn the_flame_graph_is_what_is_live_by_stack() {
    training(false, |browser| async move {
        let run = runs::training(&USUAL);
        let needle = run.allocations.iter().find(|life| life.size == NEEDLE).unwrap();
        let at = needle.begin + 1;
        let live: Vec<_> = run.allocations.iter().filter(|life| life.is_live(at)).collect();
        let sum = |function: &str| -> u64 {
            let has = |site| run.sites.get(site).iter().any(|frame| &*frame.name == function);
            live.iter().filter(|life| has(life.site)).map(|life| life.size).sum()
        };
        go_to(&browser, u64::from(at)).await;
        browser.click("[data-testid=below-flame]").await;
        browser.until("window.granule.flame?.length > 1").await;
        let whole = browser.number("document.querySelector('#flame').clientWidth").await;
        let all = sum("main");
        for (name, depth) in [("main", 1), ("build", 2), ("the_needle", 2)] {
            let found = frame(&browser, name).await;
            assert_eq!(
                (&found["bytes"], &found["depth"]),
                (&Value::from(sum(name)), &Value::from(depth)),
                "{name}"
            );
            let wide = whole * sum(name) as f64 / all as f64;
            assert!((found["width"].as_f64().unwrap() - wide).abs() < 1.0, "{name}: {found}, not {wide}");
        }
        browser.point(middle_of(&browser, &frame(&browser, "the_needle").await).await).await;
        let tip = panel(&browser, "#tip").await;
        let share = format!("{:.0} % of all", 100.0 * NEEDLE as f64 / all as f64);
        for part in ["the_needle", "model.py:77", "300 MiB in 1 allocation", &share] {
            assert!(tip.contains(part), "{part} is not in {tip}");
        }
        browser.picture("15-flame").await;
        // At another moment it is not there; the peak is where it is.
        go_to(&browser, u64::from(needle.end) + 30).await;
        browser.until("!window.granule.flame.some((box) => box.name === 'the_needle')").await;
        browser.click("#flame-peak").await;
        browser.until(&format!("window.granule.moment === {}", run.peak().0)).await;
        browser.until("window.granule.flame.some((box) => box.name === 'the_needle')").await;
        assert!(panel(&browser, "[data-testid=flame-key]").await.contains("width: bytes"));
        browser.end().await;
    });
}

#[test]
fn a_click_zooms_into_a_frame_and_escape_out() {
    training(true, |browser| async move {
        browser.key('f').await;
        browser.key('m').await;
        browser.until("window.granule.flame?.length > 1").await;
        let whole = browser.number("document.querySelector('#flame').clientWidth").await;
        let needle = frame(&browser, "the_needle").await;
        assert!(needle["width"].as_f64().unwrap() < whole / 2.0);
        browser.click_at(middle_of(&browser, &needle).await).await;
        browser.until("window.granule.frame > 0").await;
        let zoomed = frame(&browser, "the_needle").await;
        assert!((zoomed["width"].as_f64().unwrap() - whole).abs() < 1.0, "{zoomed}");
        assert_eq!(
            browser.number("window.granule.flame.length").await,
            3.0,
            "what is around it stays to be seen"
        );
        browser.until("location.hash.includes('frame=')").await;
        browser.picture("16-flame-zoomed-dark").await;
        browser.key('\u{e00c}').await;
        browser.until("window.granule.frame === 0").await;
        assert_eq!(frame(&browser, "the_needle").await, needle);
        // A search marks frames, and says how much they are.
        browser.key('/').await;
        browser.write("the_needle").await;
        // Frames are marked while one types: those of half a word are others.
        browser.until("document.querySelector('#search-results').dataset.found === 'the_needle'").await;
        browser.until("window.granule.flame.some((box) => box.marked)").await;
        let marked = "window.granule.flame.filter((box) => box.marked).map((box) => box.name).join()";
        assert_eq!(browser.text(marked).await, "the_needle");
        let readout = panel(&browser, "#flame-readout").await;
        assert!(readout.contains("found 300 MiB"), "{readout}");
        browser.picture("17-flame-search-dark").await;
        // What was found stays to be read beside the other picture.
        browser.key('\u{e00c}').await;
        browser.click("[data-testid=below-space]").await;
        browser.until("window.granule.below === 'space'").await;
        assert_eq!(browser.get("document.querySelector('#search-results').hidden").await, false);
        browser.end().await;
    });
}

/// A run of one request of a mebibyte from each stack, innermost frame first; an empty one was not recorded.
fn asked_from(stacks: &[&[(&str, &str)]]) -> Run {
    let frame = |(name, file): &(&str, &str)| Frame {
        name: (*name).into(),
        filename: (*file).into(),
        line: 1,
        extra: Vec::new(),
    };
    let entry = |(index, stack): (u64, &&[(&str, &str)])| TraceEntry {
        action: Action::Alloc,
        addr: 0x1000_0000 * (index + 1),
        size: MIB,
        stream: 0,
        time_us: 0,
        labels: Labels::default().into(),
        frames: Some(stack.iter().map(frame).collect()),
    };
    let entries = (0..).zip(stacks).map(entry).collect();
    Run::of_snapshot(&Snapshot { device_traces: vec![entries], ..Snapshot::default() }, 0)
}

/// Who reads a Python program's stacks does not look for the interpreter in them.
#[test]
fn native_frames_are_there_on_demand_and_where_there_are_no_others() {
    let run = asked_from(&[
        &[
            ("malloc", "cache.cpp"),
            ("forward", "model.py"),
            ("eval", "ceval.c"),
            ("main", "train.py"),
            ("_start", ""),
        ],
        &[("malloc", "cache.cpp"), ("autograd", "engine.cpp"), ("thread", "")],
        &[],
    ]);
    with_report(&report(&run, "native"), false, |browser| async move {
        browser.key('m').await;
        browser.click("[data-testid=below-flame]").await;
        browser.until("window.granule.flame?.length > 1").await;
        let names =
            "window.granule.flame.map((box) => `${box.depth} ${box.name} ${box.bytes >> 20}`).sort().join()";
        let all = "0 everything live: 3 MiB 3";
        let folded = "1 main 1,1 no stack recorded 1,1 thread 1,2 autograd 1,2 forward 1,3 malloc 1";
        assert_eq!(browser.text(names).await, format!("{all},{folded}"));
        browser.click("#flame-native").await;
        browser.until("window.granule.flame.some((box) => box.name === '_start')").await;
        let whole = "1 _start 1,1 no stack recorded 1,1 thread 1,2 autograd 1,2 main 1,3 eval 1,3 malloc 1,4 forward 1,5 malloc 1";
        assert_eq!(browser.text(names).await, format!("{all},{whole}"));
        browser.end().await;
    });
}

/// Cells of notebooks are Python. What is native is folded stack by stack, also where stacks begin with the same frame.
#[test]
fn frames_of_notebooks_stay_and_each_stack_is_folded_by_itself() {
    let run = asked_from(&[
        &[
            ("malloc", "cache.cpp"),
            ("cell", "<ipython-input-3-5f0a>"),
            ("exec", "ceval.c"),
            ("kernel", "/tmp/ipykernel_7/1234"),
            ("book", "train.ipynb"),
        ],
        &[("malloc", "cache.cpp"), ("backward", "model.py"), ("thread", "")],
        &[("malloc", "cache.cpp"), ("thread", "")],
    ]);
    with_report(&report(&run, "notebook"), false, |browser| async move {
        browser.key('m').await;
        browser.click("[data-testid=below-flame]").await;
        browser.until("window.granule.flame?.length > 1").await;
        let names =
            "window.granule.flame.map((box) => `${box.depth} ${box.name} ${box.bytes >> 20}`).sort().join()";
        let folded =
            "0 everything live: 3 MiB 3,1 backward 1,1 book 1,1 thread 1,2 kernel 1,2 malloc 1,3 cell 1";
        assert_eq!(browser.text(names).await, folded);
        browser.end().await;
    });
}
