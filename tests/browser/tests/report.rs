//! The page of `granule report`, looked at and driven. `cargo xtask browser` runs these; pictures are kept.

#![allow(clippy::unwrap_used)]

use alloc_core::config::Settings;
use browser_tests::runs::{self, NEEDLE, Names, USUAL};
use browser_tests::{Browser, SCREEN, with_report};
use granule_analysis::Run;
use granule_analysis::layout::{Layout, Stretch};
use granule_analysis::rules::Rules;
use granule_report::{Report, WhatIf, WhatIfDevice, WhatIfRow};
use serde_json::Value;

const CHART: &str = "#chart";
const MAP: &str = "#map";
const NARROW: (u32, u32) = (1024, 768);
const TELEPHONE: (u32, u32) = (390, 844);

const VERDICT: &str = "At most 832.00 MiB were live at once. One request was refused, of 20.00 GiB: enough was free, but not \
                       in one piece. expandable_segments:True lets free memory be joined.";

fn what_if() -> WhatIf {
    let row = |name: &str, fits: bool, recommended: bool| WhatIfRow {
        name: name.into(),
        refused: u64::from(!fits),
        reserved_peak: 1_073_741_823,
        retries: 3,
        driver_ns: 1.5e6,
        recommended,
    };
    let device = WhatIfDevice {
        verdict: "On a card of 24 GiB (21.47 GiB without the context): fits with expandable_segments:True."
            .into(),
        steps: vec!["export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".into()],
        rows: vec![
            row("default", false, false),
            row("expandable_segments:True", true, true),
            row("roundup_power2_divisions:[256:1,512:2,1024:4,>:8],max_split_size_mb:512", true, false),
            row("PYTORCH_NO_CUDA_MEMORY_CACHING=1", true, false),
        ],
    };
    WhatIf { summary: String::new(), devices: vec![device.clone(), device] }
}

fn report<'a>(run: &'a Run, title: &'a str) -> Report<'a> {
    Report {
        run,
        title,
        rules: Rules::new(&Settings::default()),
        verdict: VERDICT.into(),
        reasons: vec!["enough was free, but not in one piece".into()],
        capacity: Some(24 << 30),
        facts: vec![("Settings".into(), "max_split_size_mb:128".into())],
        remarks: vec!["earlier history is missing".into()],
        what_if: what_if(),
    }
}

/// Opens the training run.
fn training<T: Future<Output = ()>>(dark: bool, test: impl FnOnce(Browser) -> T) {
    let run = runs::training(&USUAL);
    with_report(&report(&run, "training"), dark, test);
}

async fn width(browser: &Browser) -> f64 {
    browser.number("window.granule.view.to - window.granule.view.from").await
}

async fn begin(browser: &Browser) -> f64 {
    browser.number("window.granule.view.from").await
}

/// Sets the moment by the panel's field.
async fn go_to(browser: &Browser, moment: u64) {
    browser.click("#tab-moment").await;
    browser.get("(document.querySelector('#moment-input').select(), document.querySelector('#moment-input').focus())").await;
    browser.write(&format!("{moment}\u{e007}")).await;
    browser.until(&format!("window.granule.moment === {moment}")).await;
    browser.settle().await;
}

async fn panel(browser: &Browser, id: &str) -> String {
    browser.text(&format!("document.querySelector('{id}').textContent")).await
}

#[test]
fn everything_is_there() {
    training(false, |browser| async move {
        let run = runs::training(&USUAL);
        assert_eq!(panel(&browser, "#title").await, "training");
        let summary = panel(&browser, "#summary").await;
        assert!(summary.contains(&format!("{} entries", run.length)), "{summary}");
        for id in ["overview", "chart", "map"] {
            let painted = format!(
                "(() => {{ const c = document.querySelector('#{id}'); const d = c.getContext('2d').getImageData(0, 0, c.width, \
                 c.height).data; return new Set(new Uint32Array(d.buffer)).size; }})()"
            );
            assert!(browser.number(&painted).await > 5.0, "{id} is empty");
        }
        browser.picture("1-whole-run-light").await;
        browser.end().await;
    });
}

#[test]
fn from_the_whole_run_to_one_allocation_by_wheel() {
    training(false, |browser| async move {
        let run = runs::training(&USUAL);
        let needle = run.allocations.iter().find(|life| life.size == NEEDLE).unwrap();
        assert!((width(&browser).await - f64::from(run.length + 1)).abs() < 1e-6);
        let place = browser.find(CHART, "300 MiB").await.expect("the needle is in the chart");
        for _ in 0..40 {
            if width(&browser).await < 40.0 {
                break;
            }
            browser.wheel(place, -120).await;
        }
        let (from, to) = (begin(&browser).await, begin(&browser).await + width(&browser).await);
        assert!(to - from < 40.0, "{from} to {to}");
        assert!(from < f64::from(needle.end) && f64::from(needle.begin) < to, "{from} to {to}, {needle:?}");
        browser.point(place).await;
        assert_eq!(browser.get("window.granule.hovered?.size").await, Value::from(NEEDLE));
        let tip = panel(&browser, "#tip").await;
        assert!(tip.contains("300 MiB") && tip.contains("model.py:77 the_needle"), "{tip}");
        let stack = panel(&browser, "[data-testid=stack]").await;
        assert!(stack.contains("the_needle model.py:77") && stack.contains("main train.py:3"), "{stack}");
        browser.picture("2-one-allocation").await;
        for _ in 0..80 {
            browser.wheel(place, 120).await;
            if width(&browser).await > f64::from(run.length) {
                break;
            }
        }
        assert!((width(&browser).await - f64::from(run.length + 1)).abs() < 1e-6, "and back");
        browser.end().await;
    });
}

#[test]
fn keys_and_dragging_move_and_zoom() {
    training(false, |browser| async move {
        let whole = width(&browser).await;
        browser.click(CHART).await;
        for _ in 0..6 {
            browser.key('+').await;
        }
        let zoomed = width(&browser).await;
        assert!(zoomed < whole / 4.0, "{zoomed} of {whole}");
        let before = begin(&browser).await;
        browser.key('\u{e014}').await; // right
        let moved = begin(&browser).await;
        assert!(moved > before, "{before}, {moved}");
        browser.key('\u{e012}').await; // left
        assert!((begin(&browser).await - before).abs() < 1e-6);
        let middle = browser.middle(CHART).await;
        browser.drag(middle, (-200.0, 0.0)).await;
        assert!(begin(&browser).await > before, "dragged to the left is later");
        assert!((width(&browser).await - zoomed).abs() < 1e-6);
        browser.key('-').await;
        assert!(width(&browser).await > zoomed);
        browser.key('0').await;
        assert!((width(&browser).await - whole).abs() < 1e-6);
        browser.end().await;
    });
}

#[test]
fn the_map_shows_the_chosen_moment() {
    training(false, |browser| async move {
        let run = runs::training(&USUAL);
        let needle = *run.allocations.iter().find(|life| life.size == NEEDLE).unwrap();
        go_to(&browser, u64::from(needle.begin) + 2).await;
        let place = browser.find(MAP, "300 MiB").await.expect("the needle is in the map while it lives");
        browser.point(place).await;
        assert_eq!(browser.get("window.granule.hovered?.size").await, Value::from(NEEDLE));
        let tip = panel(&browser, "#tip").await;
        assert!(tip.contains(&format!("{:x}", needle.address)), "{tip}");
        // What waits for a stream is still there.
        let at = needle.begin + 2;
        let there = run.allocations.iter().filter(|life| life.begin <= at && at < life.reusable).count();
        assert_eq!(browser.number("window.granule.mapBlocks").await, there as f64);
        browser.picture("3-map").await;
        go_to(&browser, u64::from(needle.end) + 3).await;
        assert_eq!(browser.find(MAP, "300 MiB").await, None, "and is not when it is gone");
        browser.end().await;
    });
}

/// What an allocation has of a second mapping was counted as free.
#[test]
fn allocations_reach_from_one_mapping_into_the_next() {
    with_report(&report(&runs::growable(), "growable"), false, |browser| async move {
        go_to(&browser, 4).await;
        let figures = panel(&browser, "#panel-moment").await;
        assert!(figures.contains("10 MiB in 1 piece"), "{figures}");
        browser.end().await;
    });
}

/// Every byte that a request was rounded up by was a gap.
#[test]
fn free_pieces_are_counted_as_inspect_counts_them() {
    let run = runs::rounded();
    let layout = Layout::at(&run, 2, &Rules::new(&Settings::default()));
    let pieces = layout.stretches.iter().flat_map(Stretch::gaps).filter(|gap| gap.size > 0).count();
    assert_eq!(pieces, 2);
    with_report(&report(&run, "rounded"), false, |browser| async move {
        go_to(&browser, 2).await;
        let figures = panel(&browser, "#panel-moment").await;
        assert!(figures.contains("in 2 pieces"), "{figures}");
        browser.end().await;
    });
}

#[test]
fn colours_tell_other_things() {
    training(false, |browser| async move {
        let mut pictures = Vec::new();
        for way in ["site", "size", "stream", "label"] {
            browser.click(&format!("[data-testid=way-{way}]")).await;
            browser.until(&format!("window.granule.way === '{way}'")).await;
            browser.settle().await;
            let legend = panel(&browser, "#legend").await;
            let drawn = browser.text("document.querySelector('#chart').toDataURL()").await;
            pictures.push((legend, drawn));
        }
        for (index, one) in pictures.iter().enumerate() {
            for other in &pictures[..index] {
                assert!(one.0 != other.0 && one.1 != other.1, "{} and {}", one.0, other.0);
            }
        }
        assert!(pictures[0].0.contains("forward"), "{}", pictures[0].0);
        assert!(pictures[3].0.contains("weights"), "{}", pictures[3].0);
        browser.picture("4-coloured-by-label").await;
        browser.end().await;
    });
}

#[test]
fn search_finds() {
    training(false, |browser| async move {
        for text in ["the_needle", ">256MiB"] {
            browser.key('/').await;
            browser.get("document.querySelector('#search-input').value = ''").await;
            browser.until("document.activeElement.id === 'search-input'").await;
            browser.write(text).await;
            // Results come while one types: those of half a word are others.
            browser
                .until(&format!("document.querySelector('#search-results').dataset.of === '{text}'"))
                .await;
            let results = "document.querySelector('#search-results').textContent";
            browser
                .until(&format!("{results}.includes('the_needle') && {results}.includes('300 MiB')"))
                .await;
            browser.until(&format!("!{results}.includes('forward')")).await;
            browser.key('\u{e00c}').await; // escape leaves the field
        }
        browser
            .until("document.querySelector('#search-status').textContent.startsWith('1 allocation')")
            .await;
        browser.picture("5-search").await;
        browser.click("[data-testid=found]").await;
        browser.until(&format!("window.granule.selected?.size === {NEEDLE}")).await;
        browser.settle().await;
        browser.end().await;
    });
}

#[test]
fn marks_are_listed_and_reached() {
    training(false, |browser| async move {
        let run = runs::training(&USUAL);
        browser.click("#tab-run").await;
        let text = panel(&browser, "#panel-run").await;
        for part in [
            "20 GiB",
            "too_much",
            "warm-up is over",
            "iteration 9",
            "earlier history is missing",
            "max_split_size_mb:128",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        browser.key('0').await;
        browser.get("document.activeElement.blur()").await;
        browser.key(',').await;
        go_to(&browser, 1).await;
        browser.key('o').await;
        browser.until(&format!("window.granule.moment === {}", run.refusals[0].at)).await;
        go_to(&browser, 1).await;
        browser.key('n').await;
        let next = run.iterations.iter().find(|mark| mark.at > 1).unwrap().at;
        browser.until(&format!("window.granule.moment === {next}")).await;
        browser.picture("6-marks").await;
        browser.end().await;
    });
}

#[test]
fn the_what_if_table() {
    training(false, |browser| async move {
        browser.click("#tab-whatif").await;
        let text = panel(&browser, "#panel-whatif").await;
        for part in [
            "On a card of 24 GiB",
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "1 refused",
            "fits, 3 retries",
            // Not 1024 MiB.
            "1.00 GiB",
            "1.50 ms",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(browser.number("document.querySelectorAll('#panel-whatif tbody tr').length").await, 8.0);
        assert!(panel(&browser, "#panel-whatif tr.best").await.contains("expandable_segments"));
        for (width, height) in [SCREEN, NARROW, TELEPHONE] {
            browser.resize(width, height).await;
            // It was wider than its panel at every width.
            let table = "document.querySelector('#panel-whatif table')";
            let panel = "document.querySelector('#panel-whatif')";
            for what in [
                format!("{table}.scrollWidth - {table}.clientWidth"),
                format!("{panel}.scrollWidth - {panel}.clientWidth"),
            ] {
                assert!(browser.number(&what).await <= 0.0, "{width}: {what}");
            }
            let beyond =
                format!("{table}.getBoundingClientRect().right - {panel}.getBoundingClientRect().right");
            assert!(browser.number(&beyond).await <= 0.0, "{width}");
            let cut = browser
                .get("[...document.querySelectorAll('#panel-whatif td, #panel-whatif th')].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)")
                .await;
            assert_eq!(cut, Value::Array(Vec::new()), "{width}");
            browser.picture(&format!("7-what-if-{width}")).await;
        }
        browser.end().await;
    });
}

#[test]
fn dark_and_light() {
    training(true, |browser| async move {
        let paper = "getComputedStyle(document.body).backgroundColor";
        assert_eq!(browser.get("window.granule.dark").await, Value::Bool(true), "as the system says");
        let dark = browser.text(paper).await;
        browser.picture("8-whole-run-dark").await;
        browser.key('t').await;
        browser.until("!window.granule.dark").await;
        assert_ne!(browser.text(paper).await, dark);
        browser.end().await;
    });
}

#[test]
fn help_opens_and_closes_by_key() {
    training(false, |browser| async move {
        assert_eq!(browser.get("document.querySelector('#help').open").await, Value::Bool(false));
        browser.key('?').await;
        browser.until("document.querySelector('#help').open").await;
        let text = panel(&browser, "#help").await;
        assert!(text.contains("search") && text.contains("the whole run"), "{text}");
        browser.picture("9-help").await;
        browser.key('\u{e00c}').await;
        browser.until("!document.querySelector('#help').open").await;
        browser.end().await;
    });
}

#[test]
fn hostile_names_are_only_text() {
    let evil = "</script><script>window.hacked = 1</script><img src=x onerror=\"window.hacked = 2\">";
    // A file of the program's, so that its functions are what categories are called after.
    let file = format!("model{evil}.py");
    let names = Names { function: evil, file: &file, label: evil, note: evil };
    let run = runs::training(&names);
    with_report(&report(&run, evil), false, |browser| async move {
        assert_eq!(panel(&browser, "#title").await, evil);
        browser.click("#tab-run").await;
        assert!(panel(&browser, "#panel-run").await.contains(evil), "the note");
        browser.click("#tab-moment").await;
        let legend = panel(&browser, "#legend").await;
        assert!(legend.contains("window.hacked"), "{legend}");
        browser.key('/').await;
        browser.write("hacked").await;
        browser.until("document.querySelector('#search-results').textContent.includes('onerror')").await;
        assert_eq!(browser.get("window.hacked ?? null").await, Value::Null);
        assert_eq!(browser.number("document.images.length").await, 0.0);
        // However long names are, the pictures keep their room.
        assert!(browser.number("document.querySelector('#chart').clientWidth").await > 900.0);
        browser.picture("10-hostile-names").await;
        browser.end().await;
    });
}

#[test]
fn a_laptop_screen_is_enough() {
    training(false, |browser| async move {
        for tab in ["#tab-moment", "#tab-search", "#tab-whatif", "#tab-run"] {
            browser.click(tab).await;
            let wide = browser.number("document.documentElement.scrollWidth - innerWidth").await;
            let high = browser.number("document.documentElement.scrollHeight - innerHeight").await;
            assert!(wide <= 0.0 && high <= 0.0, "{tab}: {wide} too wide, {high} too high");
        }
        let overlaps = browser
            .get(
                "(() => {
                   const boxes = [...document.querySelectorAll('header > *, .views > *, aside')].map((e) => [e, e.getBoundingClientRect()]);
                   const seen = boxes.filter(([, b]) => b.width > 0 && b.height > 0);
                   const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
                   const out = [];
                   for (const [one, a] of seen) {
                     if (a.left < 0 || a.top < 0 || a.right > innerWidth + 1 || a.bottom > innerHeight + 1) out.push(`${one.id} is outside`);
                     for (const [other, b] of seen) if (one !== other && !apart(a, b)) out.push(`${one.tagName} ${one.id}, ${other.tagName} ${other.id}`);
                   }
                   return out;
                 })()",
            )
            .await;
        assert_eq!(overlaps, Value::Array(Vec::new()));
        let cut = browser
            .get("[...document.querySelectorAll('button, h2')].filter((e) => e.offsetParent && e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1 && !e.closest('#legend, #panel-run')).map((e) => e.textContent)")
            .await;
        assert_eq!(cut, Value::Array(Vec::new()));
        browser.end().await;
    });
}

/// One looks for it first.
#[test]
fn the_page_opens_at_the_refused_request() {
    training(false, |browser| async move {
        let run = runs::training(&USUAL);
        let at = run.refusals[0].at;
        assert_eq!(browser.number("window.granule.moment").await, f64::from(at));
        let verdict = panel(&browser, "#verdict").await;
        assert!(verdict.starts_with(VERDICT), "{verdict}");
        assert_eq!(
            panel(&browser, "[data-testid=refusal]").await,
            "20 GiB refused: enough was free, but not in one piece"
        );
        go_to(&browser, 1).await;
        browser.click("[data-testid=refusal]").await;
        browser.until(&format!("window.granule.moment === {at}")).await;
        browser.end().await;
    });
}

/// At 390 pixels the pictures had no room, and the panel was beside the screen.
#[test]
fn a_telephone_is_enough() {
    for dark in [false, true] {
        training(dark, |browser| async move {
            browser.resize(TELEPHONE.0, TELEPHONE.1).await;
            for tab in ["#tab-moment", "#tab-search", "#tab-whatif", "#tab-run"] {
                browser.get(&format!("document.querySelector('{tab}').click()")).await;
                browser.settle().await;
                let wide = browser.number("document.documentElement.scrollWidth - innerWidth").await;
                assert!(wide <= 0.0, "{tab}: {wide} too wide");
                browser
                    .picture(&format!("12-telephone{}-{}", if dark { "-dark" } else { "" }, &tab[5..]))
                    .await;
            }
            for (canvas, height) in [(CHART, 250.0), (MAP, 200.0)] {
                let of = format!("document.querySelector('{canvas}')");
                assert!(browser.number(&format!("{of}.clientWidth")).await > 350.0, "{canvas}");
                assert!(browser.number(&format!("{of}.clientHeight")).await >= height, "{canvas}");
            }
            // Nothing of the page is out of reach, and no button is too small for a finger.
            let outside = browser
                .get(
                    "[...document.querySelectorAll('button, input, canvas, h1, h2, table, p')].filter((e) => {
                       const box = e.getBoundingClientRect();
                       return box.width > 0 && (box.left < 0 || box.right > innerWidth + 0.5);
                     }).map((e) => e.id || e.textContent)",
                )
                .await;
            assert_eq!(outside, Value::Array(Vec::new()));
            let small = browser
                .get("[...document.querySelectorAll('header button, #tabs button')].filter((e) => e.offsetHeight < 30).map((e) => e.id || e.textContent)")
                .await;
            assert_eq!(small, Value::Array(Vec::new()));
            browser.end().await;
        });
    }
}

/// Names were dark on dark blue.
#[test]
fn names_can_be_read_on_every_colour() {
    for dark in [false, true] {
        training(dark, |browser| async move {
            browser.get("document.querySelector('#zoom-in').click()").await;
            browser.get("document.querySelector('#zoom-in').click()").await;
            browser.settle().await;
            let mut named = 0;
            for way in ["site", "size", "stream", "pool", "label", "life"] {
                browser.get(&format!("document.querySelector('[data-testid=way-{way}]').click()")).await;
                browser.settle().await;
                // Where all blocks are too small there are no names, and no contrast.
                if let Some(contrast) = browser.get("window.granule.leastContrast").await.as_f64() {
                    assert!(contrast >= 4.5, "{way}: {contrast}");
                    named += 1;
                }
                browser.picture(&format!("13-{way}{}", if dark { "-dark" } else { "" })).await;
            }
            assert!(named > 0, "no block has a name");
            browser.end().await;
        });
    }
}

#[test]
fn lines_of_the_chart_are_explained() {
    training(false, |browser| async move {
        let lines = panel(&browser, "#chart-lines").await;
        for part in ["least live in a column", "reserved", "capacity", "refused"] {
            assert!(lines.contains(part), "{part} is not in {lines}");
        }
        let text = browser.text("document.body.innerText").await;
        assert!(!text.contains(" held"), "one word for one thing: {text}");
        browser.end().await;
    });
}

/// Measured, not judged: `cargo xtask browser --big`.
#[test]
fn five_million_entries() {
    if std::env::var_os("GRANULE_BROWSER_BIG").is_none() {
        eprintln!("skipped: `cargo xtask browser --big` runs this");
        return;
    }
    let run = runs::long(5_000_000);
    with_report(&report(&run, "five million entries"), false, |browser| async move {
        println!("ready after {:.0} ms", browser.number("window.granule.readyMs").await);
        let middle = browser.middle(CHART).await;
        let mut slowest: f64 = 0.0;
        for _ in 0..12 {
            browser.wheel(middle, -120).await;
            slowest = slowest.max(browser.number("window.granule.frameMs").await);
        }
        println!("slowest frame of 12 while zooming: {slowest:.1} ms");
        slowest = 0.0;
        for _ in 0..8 {
            browser.drag(middle, (-150.0, 0.0)).await;
            slowest = slowest.max(browser.number("window.granule.frameMs").await);
        }
        println!("slowest last frame of 8 while panning: {slowest:.1} ms");
        browser.picture("11-five-million").await;
        browser.end().await;
    });
}
