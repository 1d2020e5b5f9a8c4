//! The page of `granule report`, looked at and driven. `cargo xtask browser` runs these; pictures are kept.

#![allow(clippy::unwrap_used)]

mod comparison;
mod flame;
mod map;
mod moving;
mod panels;
mod screens;
mod sharing;

use alloc_core::config::Settings;
use browser_tests::runs::{self, Names, USUAL};
use browser_tests::{Browser, with_report};
use granule_analysis::Run;
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
        capacity: 24 << 30,
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
        browser.key('f').await;
        browser.until("window.granule.flame?.length > 1").await;
        slowest = 0.0;
        for _ in 0..8 {
            browser.key('>').await;
            slowest = slowest.max(browser.number("window.granule.frameMs").await);
        }
        println!("slowest frame of 8 moments with the flame graph: {slowest:.1} ms");
        browser.picture("11-five-million").await;
        browser.end().await;
    });
}
