//! Moving, zooming and keys.

use crate::{CHART, begin, go_to, panel, training, width};
use browser_tests::runs::{self, NEEDLE, USUAL};
use serde_json::Value;

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
