//! What is said beside the pictures.

use crate::{NARROW, TELEPHONE, VERDICT, go_to, panel, training};
use browser_tests::SCREEN;
use browser_tests::runs::{self, NEEDLE, USUAL};
use serde_json::Value;

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
                .until(&format!("document.querySelector('#search-results').dataset.found === '{text}'"))
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
