//! What is said beside the pictures.

use crate::{NARROW, TELEPHONE, VERDICT, go_to, panel, report, training};
use browser_tests::runs::{self, NEEDLE, Names, USUAL};
use browser_tests::{Browser, SCREEN, with_report, with_reports};
use serde_json::{Value, json};

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

/// What the rows of the list say, the chosen one's entry first.
async fn events(browser: &Browser) -> (f64, Value) {
    let row = "document.querySelector('[data-testid=event][aria-current]')";
    let rows = "[...document.querySelectorAll('[data-testid=event]')].map((e) => [...e.children].map((one) => one.textContent))";
    (
        browser.number(&format!("Number({row}.children[0].textContent.replace(',', ''))")).await,
        browser.get(rows).await,
    )
}

#[test]
fn events_are_listed_around_the_moment() {
    training(false, |browser| async move {
        let run = runs::training(&USUAL);
        let at = run.refusals[0].at;
        browser.click("#tab-events").await;
        browser.until("document.querySelector('#events').textContent.includes('model.py:50 forward')").await;
        let (chosen, rows) = events(&browser).await;
        assert_eq!(chosen, f64::from(at));
        let rows = rows.as_array().unwrap();
        let row = |entry: u32| {
            let entry = entry.to_string();
            rows.iter().find(|row| row[0] == entry.as_str()).unwrap_or_else(|| panic!("no {entry}")).clone()
        };
        assert_eq!(
            row(at),
            json!([at.to_string(), "oom", "20 GiB", "model.py:99 too_much", "default stream"])
        );
        let life = run.allocations.iter().find(|life| life.begin == at - 1).unwrap();
        assert_eq!((&row(at - 1)[1], &row(at - 1)[4]), (&"alloc".into(), &"stream 0x2".into()));
        assert_eq!(row(at + 1)[1], "free_requested");
        assert_eq!(row(at + 2)[1], "free_completed");
        assert!(rows.iter().any(|row| row[1] == "iteration" && row[3] == "iteration 7"));
        // In view, and moved through by the mouse, by keys, and by whole lists.
        let inside = "(() => { const row = document.querySelector('[data-testid=event][aria-current]').getBoundingClientRect();
            const list = document.querySelector('#panel-events').getBoundingClientRect();
            return row.top >= list.top && row.bottom <= list.bottom; })()";
        assert_eq!(browser.get(inside).await, Value::Bool(true));
        browser
            .get("document.querySelector('[data-testid=event][aria-current]').previousElementSibling.click()")
            .await;
        browser.until(&format!("window.granule.moment === {}", at - 1)).await;
        assert_eq!(browser.number("window.granule.selected.size").await, life.size as f64);
        browser.get("document.querySelector('[data-testid=event][aria-current]').focus()").await;
        browser.key('\u{e015}').await; // down
        browser.key('\u{e015}').await;
        browser.until(&format!("window.granule.moment === {}", at + 1)).await;
        browser.until("document.activeElement.dataset.testid === 'event'").await;
        browser.picture("6-events").await;
        browser.click("#events-back").await;
        browser.until(&format!("window.granule.moment === {}", at + 1 - 60)).await;
        assert_eq!(events(&browser).await.0, f64::from(at + 1 - 60));
        browser.end().await;
    });
}

/// What there was is kept in intervals of 2^15 entries.
#[test]
fn events_on_both_sides_of_a_border_are_listed() {
    let run = runs::long(70_000);
    with_report(&report(&run, "long"), false, |browser| async move {
        browser.click("#tab-events").await;
        for at in [1 << 15, (1 << 16) + 60] {
            browser.get(&format!("location.hash = 'panel=events&entry={at}'")).await;
            browser.until(&format!("window.granule.moment === {at}")).await;
            browser
                .until("document.querySelector('#events').textContent.includes('model.py:50 forward')")
                .await;
            let (chosen, rows) = events(&browser).await;
            assert_eq!(chosen, f64::from(at));
            let listed: Vec<_> =
                rows.as_array().unwrap().iter().map(|row| row[0].as_str().unwrap()).collect();
            let expected: Vec<_> =
                (at - 60..=at + 60).map(|at| format!("{},{:03}", at / 1000, at % 1000)).collect();
            assert_eq!(listed, expected);
        }
        browser.end().await;
    });
}

/// Digits that were meant for the search changed the colours.
#[test]
fn what_is_typed_is_no_command() {
    training(false, |browser| async move {
        browser.click("#tab-search").await;
        browser.until("document.activeElement.id === 'search-input'").await;
        browser.write("2tf").await;
        browser.until("document.querySelector('#search-input').value === '2tf'").await;
        assert_eq!(browser.text("window.granule.way").await, "site");
        assert_eq!(browser.text("window.granule.below").await, "space");
        browser.key('\u{e00c}').await; // escape leaves the field
        browser.key('2').await;
        browser.until("window.granule.way === 'size'").await;
        browser.end().await;
    });
}

#[test]
fn lines_of_code_keep_their_end() {
    let file = format!("{}/model.py", "a_very_long_name_of_a_folder".repeat(4));
    let run = runs::training(&Names { file: &file, ..USUAL });
    with_report(&report(&run, "long names"), false, |browser| async move {
        let ends = "[...document.querySelectorAll('#legend .name')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => {
            const [cell, text] = [e.getBoundingClientRect(), e.firstChild.getBoundingClientRect()];
            return text.right <= cell.right + 1 && text.left < cell.left;
        })";
        let ends = browser.get(ends).await;
        let ends = ends.as_array().unwrap();
        assert!(!ends.is_empty() && ends.iter().all(|shown| shown == true), "{ends:?}");
        browser.picture("6-long-names").await;
        browser.end().await;
    });
}

#[test]
fn another_device_is_chosen() {
    let (first, second) = (runs::training(&USUAL), runs::growable());
    let mut one = report(&first, "both, device 0");
    one.verdict = "the first".into();
    let two = report(&second, "both, device 1");
    let [first, second] = [&first, &second].map(|run| format!("{} entries", run.length));
    with_reports(&[one, two], |browser| async move {
        let options =
            "[...document.querySelector('#device').options].map((option) => option.text).join('; ')";
        assert_eq!(browser.text(options).await, "both, device 0; both, device 1");
        assert!(panel(&browser, "#summary").await.starts_with(&*first));
        let choose = "(() => { const device = document.querySelector('#device'); device.value = '1';
            device.dispatchEvent(new Event('change')); })()";
        browser.get(choose).await;
        browser
            .until(&format!(
                "window.granule?.ready && document.querySelector('#summary').textContent.startsWith('{}')",
                second
            ))
            .await;
        browser.settle().await;
        assert!(panel(&browser, "#verdict").await.starts_with(VERDICT));
        browser.key('t').await;
        assert!(browser.text("location.hash").await.contains("device=1"));
        browser.back().await;
        browser
            .until(&format!(
                "window.granule?.ready && document.querySelector('#summary').textContent.startsWith('{}')",
                first
            ))
            .await;
        // What is no device of the file is none.
        browser.open_link("#device=7").await;
        assert!(panel(&browser, "#verdict").await.starts_with("the first"));
        browser.end().await;
    });
}

#[test]
fn the_page_says_what_it_holds_before_it_is_sent() {
    training(false, |browser| async move {
        browser.click("#save-open").await;
        let held = panel(&browser, "[data-testid=contents]").await;
        for part in [
            "2 paths, such as train.py",
            "6 function names, such as the_needle",
            "2 texts of the program, such as warm-up is over",
            "1 fact of the environment, such as max_split_size_mb:128",
            "1 file name, such as training",
        ] {
            assert!(held.contains(part), "{part} is not in {held}");
        }
        browser.picture("18-contents").await;
        browser.end().await;
    });
}
