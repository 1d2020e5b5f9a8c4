//! The page of several runs.

use crate::{NARROW, TELEPHONE, VERDICT, panel};
use browser_tests::runs::{self, NEEDLE, Names, USUAL};
use browser_tests::{Browser, SCREEN, with_comparison};
use granule_analysis::Run;
use granule_report::{Compared, Comparison};
use serde_json::Value;

const STRIPS: &str = "[data-testid=strip]";
/// What weights take in the second run: twice as much.
const WEIGHTS: u64 = 128 << 20;

/// The training run, and the same with weights of twice the size.
fn pair(names: &Names<'_>) -> [Run; 2] {
    let before = runs::training(names);
    let mut after = runs::training(names);
    for life in &mut after.allocations {
        if life.size == WEIGHTS / 2 {
            life.size = WEIGHTS;
        }
    }
    [before, after]
}

fn compare<T: Future<Output = ()>>(runs: &[(&str, &Run)], dark: bool, test: impl FnOnce(Browser) -> T) {
    let compared = runs.iter().map(|(name, run)| Compared {
        name,
        run,
        capacity: Some(1 << 30),
        verdict: VERDICT.into(),
        remarks: Vec::new(),
    });
    with_comparison(&Comparison { title: "training", runs: compared.collect() }, dark, test);
}

fn before_and_after<T: Future<Output = ()>>(dark: bool, test: impl FnOnce(Browser) -> T) {
    let [before, after] = pair(&USUAL);
    compare(&[("before", &before), ("after", &after)], dark, test);
}

/// A point of a run's chart: parts of the plot's width and height.
async fn point_of(browser: &Browser, run: usize, x: f64, y: f64) -> (f64, f64) {
    let side = |name: &str, of: &str| format!("{of}.{name}");
    let canvas = format!("document.querySelectorAll('{STRIPS}')[{run}].getBoundingClientRect()");
    let plot = format!("window.granule.plots[{run}]");
    let mut numbers = Vec::new();
    for name in ["left", "top", "width", "height"] {
        numbers.push(browser.number(&side(name, &plot)).await);
    }
    (
        browser.number(&side("left", &canvas)).await + numbers[0] + x * numbers[2],
        browser.number(&side("top", &canvas)).await + numbers[1] + y * numbers[3],
    )
}

async fn readouts(browser: &Browser) -> Vec<String> {
    let texts = browser.get("window.granule.readouts").await;
    texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn runs_are_under_each_other_on_one_axis_and_one_scale() {
    before_and_after(false, |browser| async move {
        let [before, after] = pair(&USUAL);
        assert_eq!(browser.number(&format!("document.querySelectorAll('{STRIPS}').length")).await, 2.0);
        let axis = panel(&browser, "#axis").await;
        assert!(axis.contains("by iteration") && axis.contains("One scale of bytes"), "{axis}");
        let top = browser.number("window.granule.top").await;
        assert!(top > before.peak().1.max(after.peak().1) as f64);
        let strips = panel(&browser, "#strips").await;
        for (name, run) in [("before", &before), ("after", &after)] {
            let mib = run.peak().1 >> 20;
            let most =
                if mib < 1024 { format!("{mib} MiB") } else { format!("{:.2} GiB", mib as f64 / 1024.0) };
            assert!(strips.contains(name) && strips.contains(&format!("live at most {most}")), "{strips}");
        }
        let legend = panel(&browser, "#legend").await;
        for part in ["model.py build", "model.py forward", "reserved", "capacity", "refused"] {
            assert!(legend.contains(part), "{part} is not in {legend}");
        }
        for canvas in 0..2 {
            let colours = format!(
                "(() => {{ const c = document.querySelectorAll('{STRIPS}')[{canvas}]; const d = c.getContext('2d').getImageData(0, 0, \
                 c.width, c.height).data; return new Set(new Uint32Array(d.buffer)).size; }})()"
            );
            assert!(browser.number(&colours).await > 5.0, "run {canvas} is empty");
        }
        // Where the weights end is a matter of their bytes, in both.
        for (index, bytes) in [WEIGHTS * 2, WEIGHTS * 4].into_iter().enumerate() {
            let height = 1.0 - bytes as f64 / top;
            for (y, within) in [(height + 0.03, true), (height - 0.03, false)] {
                browser.point(point_of(&browser, index, 10.9 / 11.0, y).await).await;
                let tip =
                    "document.querySelector('#tip').hidden ? '' : document.querySelector('#tip').textContent";
                let tip = browser.text(tip).await;
                assert_eq!(tip.contains("model.py build"), within, "run {index} at {y}: {tip}");
            }
        }
        browser.picture("20-compared").await;
        browser.end().await;
    });
}

#[test]
fn help_says_what_the_keys_do() {
    before_and_after(false, |browser| async move {
        let open = "document.querySelector('#help').open";
        assert_eq!(browser.get(open).await, false);
        browser.key('?').await;
        assert_eq!(browser.get(open).await, true);
        assert!(panel(&browser, "#help").await.contains("move the cursor"));
        // The keys are not the charts' while one reads.
        browser.key('.').await;
        assert_eq!(browser.get("window.granule.cursor").await, Value::Null);
        browser.click("[data-testid=help-close]").await;
        browser.click("#help-open").await;
        browser.picture("25-compared-help").await;
        browser.key('\u{e00c}').await;
        assert_eq!(browser.get(open).await, false);
        browser.end().await;
    });
}

#[test]
fn the_cursor_is_at_the_same_place_in_all_runs() {
    before_and_after(true, |browser| async move {
        let [before, after] = pair(&USUAL);
        assert_eq!(browser.get("window.granule.cursor").await, Value::Null);
        // The middle of the fifth iteration of ten; the first chart begins with what is before the first.
        browser.point(point_of(&browser, 1, 5.5 / 11.0, 0.9).await).await;
        browser.until("window.granule.cursor !== null").await;
        let summary = panel(&browser, "#summary").await;
        assert!(summary.contains("at iteration 5"), "{summary}");
        let texts = readouts(&browser).await;
        for (text, run) in texts.iter().zip([&before, &after]) {
            let (from, to) = (run.iterations[4].at, run.iterations[5].at);
            let entry = text.split(" · ").next().unwrap().replace(',', "");
            let entry: u32 = entry.trim_start_matches("entry ").parse().unwrap();
            assert!((from..to).contains(&entry), "{text}: not {from} to {to}");
        }
        assert!(texts[1].contains("+256 MiB against before"), "{texts:?}");
        let tip = panel(&browser, "#tip").await;
        assert!(tip.contains("model.py build") && tip.contains("512 MiB in after"), "{tip}");
        let cursor = browser.number("window.granule.cursor").await;
        // It is where the pointer is, and stays where one clicks.
        browser.click_at(point_of(&browser, 0, 0.8, 0.5).await).await;
        let kept = browser.number("window.granule.cursor").await;
        assert!(kept > cursor, "{kept}, {cursor}");
        browser.point((20.0, 10.0)).await;
        assert_eq!(browser.number("window.granule.cursor").await, kept);
        browser.picture("21-compared-cursor-dark").await;
        browser.until("location.hash.startsWith('#at=')").await;
        let link = browser.text("location.hash").await;
        browser.open_link(&link).await;
        assert_eq!(browser.number("window.granule.cursor").await, kept);
        browser.end().await;
    });
}

/// Who steps through a run with the keys goes back to where they began, not through every step.
#[test]
fn steps_by_keys_are_one_place_in_the_history() {
    before_and_after(false, |browser| async move {
        let places = browser.number("history.length").await;
        let press = "document.dispatchEvent(new KeyboardEvent('keydown', { key: '.' }))";
        browser.get(&format!("[1, 2, 3, 4, 5].forEach(() => {press})")).await;
        browser.until("window.granule.cursor > 0").await;
        browser.until("location.hash === `#at=${window.granule.cursor}`").await;
        assert_eq!(browser.number("history.length").await, places + 1.0);
        browser.back().await;
        browser.until("window.granule.cursor === null && location.hash === ''").await;
        browser.end().await;
    });
}

/// What all charts show.
async fn view(browser: &Browser) -> [f64; 4] {
    let view = browser.get("window.granule.view").await;
    ["from", "to", "low", "high"].map(|side| view[side].as_f64().unwrap())
}

/// The picture of each run's chart.
async fn pictures(browser: &Browser) -> Vec<String> {
    let pictures =
        browser.get(&format!("[...document.querySelectorAll('{STRIPS}')].map((c) => c.toDataURL())")).await;
    serde_json::from_value(pictures).unwrap()
}

#[test]
fn the_wheel_and_drags_move_both_charts() {
    before_and_after(false, |browser| async move {
        let whole = view(&browser).await;
        let pictures_of_all = pictures(&browser).await;
        let place = point_of(&browser, 1, 0.6, 0.5).await;
        browser.point(place).await;
        let at = browser.number("window.granule.cursor").await;
        for _ in 0..8 {
            browser.wheel(place, -120).await;
        }
        let zoomed = view(&browser).await;
        let width = zoomed[1] - zoomed[0];
        assert!(width < (whole[1] - whole[0]) / 5.0, "{zoomed:?} of {whole:?}");
        assert_eq!(zoomed[2..], whole[2..]);
        // What the pointer is at stays below it.
        browser.point(point_of(&browser, 1, 0.3, 0.5).await).await;
        browser.point(place).await;
        assert!((browser.number("window.granule.cursor").await - at).abs() <= 1.0 + width / 500.0);
        // Without the cursor's line, which would be another as well.
        browser.point((20.0, 10.0)).await;
        let near = pictures(&browser).await;
        assert!(near.iter().zip(&pictures_of_all).all(|(near, all)| near != all), "both charts are others");
        let summary = panel(&browser, "#summary").await;
        assert!(summary.contains("iteration 5 to iteration 7"), "{summary}");
        browser.picture("26-compared-zoomed").await;
        browser.drag(point_of(&browser, 0, 0.6, 0.5).await, (-200.0, 0.0)).await;
        let moved = view(&browser).await;
        assert!(moved[0] > zoomed[0], "dragged to the left is later: {moved:?}");
        assert!((moved[1] - moved[0] - width).abs() < 1e-6);
        // A drag keeps no place.
        assert!(!browser.text("location.hash").await.contains("at="));
        // Over the scale of bytes the height is zoomed.
        let scale = point_of(&browser, 0, -0.02, 0.5).await;
        browser.wheel(scale, -120).await;
        let higher = view(&browser).await;
        assert!(higher[3] - higher[2] < whole[3] && higher[..2] == moved[..2], "{higher:?}");
        browser.click("#zoom-all").await;
        assert_eq!(view(&browser).await, whole);
        browser.point((20.0, 10.0)).await;
        assert_eq!(pictures(&browser).await, pictures_of_all);
        browser.end().await;
    });
}

#[test]
fn keys_and_buttons_move_both_charts() {
    before_and_after(false, |browser| async move {
        let whole = view(&browser).await;
        for _ in 0..6 {
            browser.key('+').await;
        }
        let zoomed = view(&browser).await;
        assert!(zoomed[1] - zoomed[0] < (whole[1] - whole[0]) / 4.0, "{zoomed:?}");
        let before = pictures(&browser).await;
        browser.key('\u{e014}').await; // right
        assert!(view(&browser).await[0] > zoomed[0]);
        assert!(pictures(&browser).await.iter().zip(&before).all(|(now, before)| now != before));
        browser.key('\u{e012}').await; // left
        assert!((view(&browser).await[0] - zoomed[0]).abs() < 1e-6);
        browser.click("#zoom-in").await;
        let closer = view(&browser).await;
        assert!((2.0 * (closer[1] - closer[0]) - (zoomed[1] - zoomed[0])).abs() < 1e-6);
        browser.click("#zoom-out").await;
        browser.key('*').await;
        browser.key('\u{e013}').await; // up
        let [from, to, low, high] = view(&browser).await;
        assert!((from - zoomed[0]).abs() < 1e-6 && (to - zoomed[1]).abs() < 1e-6);
        assert!(low > 0.0 && high - low < whole[3], "{low} to {high}");
        // Who goes on with the cursor sees where it is.
        for _ in 0..3 {
            browser.get("[...Array(30)].forEach(() => document.dispatchEvent(new KeyboardEvent('keydown', { key: '>', shiftKey: true })))").await;
            browser.settle().await;
        }
        let cursor = browser.number("window.granule.cursor").await;
        let [from, to, ..] = view(&browser).await;
        assert!(from > zoomed[0] && from <= cursor && cursor < to, "{from} to {to}: {cursor}");
        browser.key('-').await;
        assert!(view(&browser).await[1] - view(&browser).await[0] > to - from);
        browser.key('0').await;
        assert_eq!(view(&browser).await, whole);
        browser.end().await;
    });
}

#[test]
fn a_link_opens_the_part_that_was_shown() {
    before_and_after(false, |browser| async move {
        let whole = view(&browser).await;
        browser.click_at(point_of(&browser, 0, 0.4, 0.5).await).await;
        browser.until("location.hash.startsWith('#at=')").await;
        for _ in 0..4 {
            browser.key('+').await;
        }
        browser.key('*').await;
        browser.until("location.hash.includes('from=') && location.hash.includes('high=')").await;
        browser.settle().await;
        let (shown, cursor) = (view(&browser).await, browser.number("window.granule.cursor").await);
        let link = browser.text("location.hash").await;
        // As many places as keys were pressed with a pause between them.
        while browser.number("window.granule.view.from").await > 0.0
            || browser.text("location.hash").await.contains("high=")
        {
            browser.back().await;
        }
        assert_eq!((view(&browser).await, browser.number("window.granule.cursor").await), (whole, cursor));
        browser.open_link("").await;
        assert_eq!(view(&browser).await, whole);
        browser.open_link(&link).await;
        for (one, other) in view(&browser).await.iter().zip(shown) {
            assert!((one - other).abs() <= 0.5, "{one} and {other}");
        }
        assert_eq!(browser.number("window.granule.cursor").await, cursor);
        assert_eq!(browser.text("location.hash").await, link, "opening changes no address");
        browser.open_link("#at=99999999&from=20&to=20&low=-1&high=x&a=%3Cb%3E").await;
        assert_eq!(view(&browser).await, whole);
        assert_eq!(browser.get("window.granule.cursor").await, Value::Null);
        browser.until("location.hash === ''").await;
        browser.end().await;
    });
}

/// A capacity near to what was used is to be seen, and one far above it is not spoken of.
#[test]
fn the_capacity_is_drawn_where_it_is_near() {
    let near = runs::training(&USUAL);
    compare(&[("one", &near), ("other", &near)], false, |browser| async move {
        assert!(browser.number("window.granule.top").await > f64::from(1 << 30));
        assert!(panel(&browser, "#legend").await.contains("capacity"));
        browser.end().await;
    });
    let mut far = runs::training(&USUAL);
    for life in &mut far.allocations {
        life.size /= 4;
    }
    for span in &mut far.spans {
        span.size /= 4;
    }
    compare(&[("one", &far), ("other", &far)], false, |browser| async move {
        assert!(browser.number("window.granule.top").await < f64::from(1 << 30));
        assert!(!panel(&browser, "#legend").await.contains("capacity"));
        browser.end().await;
    });
}

#[test]
fn call_sites_are_listed_by_what_changed() {
    before_and_after(false, |browser| async move {
        let row = |index: usize| {
            format!(
                "[...document.querySelectorAll('[data-testid=site]')[{index}].cells].map((cell) => cell.textContent).join()"
            )
        };
        let head = "[...document.querySelectorAll('#sites th')].map((cell) => cell.textContent).join()";
        assert_eq!(browser.text(head).await, "Call site,before,after,after − before");
        assert_eq!(browser.text(&row(0)).await, "model.py build,256 MiB,512 MiB,+256 MiB");
        assert!(browser.text(&row(1)).await.ends_with(",0 B"));
        let (name, table) = browser.download("#save-table").await;
        assert_eq!(name, "training.csv");
        let table = String::from_utf8(table).unwrap();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines[..2],
            ["call_site,before,after,after − before", "model.py build,268435456,536870912,268435456"]
        );
        assert!(table.contains(&format!("model.py the_needle,{NEEDLE},{NEEDLE},0")), "{table}");
        let (name, picture) = browser.download("#save-picture").await;
        assert!(name == "training.png" && picture.starts_with(b"\x89PNG"), "{name}");
        browser.keep("22-compared-saved", &picture);
        browser.end().await;
    });
}

/// Ranks, of which one has no iterations: by share of entries then.
#[test]
fn several_ranks_are_compared_by_share_of_entries() {
    let [mut first, second] = pair(&USUAL);
    first.iterations.clear();
    let ranks = [("rank 0", &first), ("rank 1", &second), ("rank 2", &first), ("rank 3", &second)];
    compare(&ranks, false, |browser| async move {
        let axis = panel(&browser, "#axis").await;
        assert!(axis.contains("by share of entries"), "{axis}");
        assert_eq!(browser.number(&format!("document.querySelectorAll('{STRIPS}').length")).await, 4.0);
        assert!(panel(&browser, "#sites").await.contains("most − least"));
        for (width, height) in [SCREEN, NARROW, TELEPHONE] {
            browser.resize(width, height).await;
            let wide = "Math.max(document.documentElement.scrollWidth - innerWidth, ...[...document.querySelectorAll('canvas, h1, h2, button, p')].map((e) => e.getBoundingClientRect().right - innerWidth))";
            assert!(browser.number(wide).await <= 0.5, "{width}");
            browser.picture(&format!("23-ranks-{width}")).await;
        }
        browser.end().await;
    });
}

#[test]
fn hostile_names_are_only_text_when_compared() {
    let evil = "</script><script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 2\">";
    let file = format!("model{evil}.py");
    let runs = pair(&Names { function: evil, file: &file, label: evil, note: evil });
    compare(&[(evil, &runs[0]), ("after", &runs[1])], false, |browser| async move {
        for place in ["#strips", "#legend", "#sites"] {
            assert!(panel(&browser, place).await.contains("window.hacked"), "{place}");
        }
        assert_eq!(browser.get("window.hacked ?? null").await, Value::Null);
        assert_eq!(browser.number("document.images.length").await, 0.0);
        browser.picture("24-compared-hostile").await;
        browser.end().await;
    });
}
