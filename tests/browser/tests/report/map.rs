//! The address space.

use crate::{MAP, go_to, panel, report, training};
use alloc_core::config::Settings;
use browser_tests::runs::{self, NEEDLE, USUAL};
use browser_tests::with_report;
use granule_analysis::layout::{Layout, Stretch};
use granule_analysis::rules::Rules;
use serde_json::Value;

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
