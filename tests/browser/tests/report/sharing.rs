//! Links, pictures and tables to keep.

use crate::{go_to, report, training};
use browser_tests::runs::{self, NEEDLE, Names, USUAL};
use browser_tests::{Browser, with_report};

/// What follows the file's name in the page's address.
async fn link(browser: &Browser) -> String {
    browser.text("location.hash").await
}

#[test]
fn a_link_opens_what_it_was_copied_from() {
    training(false, |browser| async move {
        assert_eq!(link(&browser).await, "");
        go_to(&browser, 77).await;
        browser.until("location.hash.includes('entry=77')").await;
        browser.click("[data-testid=way-stream]").await;
        browser.click("#zoom-in").await;
        browser.click("[data-testid=below-flame]").await;
        browser.click("#tab-run").await;
        browser.until("location.hash.includes('panel=run')").await;
        let copied = link(&browser).await;
        let shown = |browser: Browser| async move {
            let state = browser.get("[window.granule.moment, window.granule.way, window.granule.view, window.granule.below, window.granule.tab]").await;
            let controls = [
                "document.querySelector('#tab-run').getAttribute('aria-selected')",
                "document.querySelector('#panel-run').hidden",
                "document.querySelector('#flame').hidden",
                "document.querySelector('#map').hidden",
            ];
            let mut all = vec![state];
            for control in controls {
                all.push(browser.get(control).await);
            }
            (browser, all)
        };
        let (browser, before) = shown(browser).await;
        browser.open_link("").await;
        assert_eq!(browser.get("window.granule.below").await, "space");
        assert_ne!(browser.number("window.granule.moment").await, 77.0);
        browser.open_link(&copied).await;
        browser.until("window.granule.flame?.length > 1").await;
        let (browser, after) = shown(browser).await;
        for (one, other) in before[0].as_array().unwrap().iter().zip(after[0].as_array().unwrap()) {
            if one.is_object() {
                for side in ["from", "to", "low", "high"] {
                    let [one, other] = [one, other].map(|view| view[side].as_f64().unwrap());
                    assert!((one - other).abs() < 1.0, "{side}: {one} and {other}");
                }
            } else {
                assert_eq!(one, other);
            }
        }
        assert_eq!(before[1..], after[1..]);
        assert_eq!(link(&browser).await, copied, "opening changes no address");
        browser.picture("14-by-link").await;
        browser.end().await;
    });
}

#[test]
fn back_and_forward_go_through_what_was_looked_at() {
    training(false, |browser| async move {
        let begin = browser.number("window.granule.moment").await;
        go_to(&browser, 77).await;
        browser.until("location.hash.includes('entry=77')").await;
        browser.click("[data-testid=way-size]").await;
        browser.until("location.hash.includes('by=size')").await;
        browser.back().await;
        browser.until("window.granule.way === 'site' && window.granule.moment === 77").await;
        browser.back().await;
        browser.until(&format!("window.granule.moment === {begin}")).await;
        browser.forward().await;
        browser.forward().await;
        browser.until("window.granule.way === 'size' && window.granule.moment === 77").await;
        assert_eq!(
            browser
                .text("document.querySelector('[data-testid=way-size]').getAttribute('aria-checked')")
                .await,
            "true"
        );
        browser.end().await;
    });
}

/// Whatever somebody has made of the address, the page opens.
#[test]
fn a_wrong_link_opens_the_page_as_it_is_without_one() {
    training(false, |browser| async move {
        let home = browser.get("[window.granule.moment, window.granule.way, window.granule.view]").await;
        let wrong = "#entry=99999999&by=colour&from=20&to=20&low=-1&high=x&view=%3Cb%3E&panel=__proto__&only=200&frame=1e9&a=b";
        browser.open_link(wrong).await;
        assert_eq!(
            browser.get("[window.granule.moment, window.granule.way, window.granule.view]").await,
            home
        );
        assert_eq!(browser.text("window.granule.below + window.granule.tab").await, "spacemoment");
        browser.until("location.hash === ''").await;
        browser.end().await;
    });
}

/// Frames and entries are counted, and words are only those that links have.
#[test]
fn numbers_and_words_that_no_link_has_are_passed_over() {
    training(false, |browser| async move {
        let moment = browser.number("window.granule.moment").await;
        for wrong in ["frame=1.5", "frame=0.4", "entry=1.5", "native=constructor"] {
            browser.open_link(&format!("#view=flame&{wrong}")).await;
            browser.until("window.granule.flame?.length > 1").await;
            assert_eq!(browser.number("window.granule.frame").await, 0.0, "{wrong}");
            assert_eq!(browser.number("window.granule.moment").await, moment, "{wrong}");
            let native = browser.get("document.querySelector('#flame-native').checked").await;
            assert_eq!(native.as_bool(), Some(false), "{wrong}");
            browser.until("location.hash === '#view=flame'").await;
        }
        browser.end().await;
    });
}

/// Lines of a table, cut at their commas.
fn table(bytes: &[u8]) -> Vec<Vec<String>> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn tables_can_be_saved() {
    training(false, |browser| async move {
        let run = runs::training(&USUAL);
        let needle = run.allocations.iter().find(|life| life.size == NEEDLE).unwrap();
        let at = needle.begin + 1;
        go_to(&browser, u64::from(at)).await;
        browser.click("#save-open").await;
        browser.picture("18-save").await;
        let (name, live) = browser.download("[data-testid=save-live]").await;
        assert_eq!(name, format!("training-entry-{at}-live.csv"));
        let live = table(&live);
        assert_eq!(live[0].join(","), "bytes,address,state,begin,end,stream,pool,label,place,stack");
        let there = run.allocations.iter().filter(|life| life.begin <= at && at < life.reusable).count();
        assert_eq!(live.len(), there + 1);
        let row = live.iter().find(|row| row[0] == NEEDLE.to_string()).unwrap();
        assert_eq!(row[1], format!("{:#x}", needle.address));
        assert_eq!(row[9], r#""main (train.py:3);the_needle (model.py:77)""#);
        let (_, sites) = browser.download("[data-testid=save-sites]").await;
        let sites = table(&sites);
        assert!(
            sites.contains(&["model.py:77 the_needle".into(), NEEDLE.to_string(), "1".into()].into()),
            "{sites:?}"
        );
        let bytes: Vec<u64> = sites[1..].iter().map(|row| row[1].parse().unwrap()).collect();
        let all: u64 = run.allocations.iter().filter(|life| life.is_live(at)).map(|life| life.size).sum();
        assert_eq!(bytes.iter().sum::<u64>(), all);
        assert!(bytes.is_sorted_by(|one, other| one >= other), "{bytes:?}");
        let (_, settings) = browser.download("[data-testid=save-whatif]").await;
        assert!(
            std::str::from_utf8(&settings)
                .unwrap()
                .contains("expandable_segments:True,0,3,1073741823,1500000\r\n")
        );
        browser.end().await;
    });
}

#[test]
fn the_picture_can_be_saved() {
    training(false, |browser| async move {
        go_to(&browser, 200).await;
        browser.click("#save-open").await;
        let (name, picture) = browser.download("[data-testid=save-picture]").await;
        assert_eq!(name, "training-entry-200.png");
        let side = |from: usize| u32::from_be_bytes(picture[from..from + 4].try_into().unwrap());
        assert!(
            picture.starts_with(b"\x89PNG") && side(16) > 900 && side(20) > 400,
            "{} x {}",
            side(16),
            side(20)
        );
        // Both pictures are in it, and not only words: most of it is no paper.
        let painted = format!(
            "(async () => {{
               const picture = await createImageBitmap(new Blob([Uint8Array.from({picture:?})]));
               const canvas = document.createElement('canvas');
               [canvas.width, canvas.height] = [picture.width, picture.height];
               const context = canvas.getContext('2d', {{ willReadFrequently: true }});
               context.drawImage(picture, 0, 0);
               const part = (from, to) => {{
                 const y = Math.round(from * picture.height);
                 const rows = context.getImageData(0, y, picture.width, Math.round(to * picture.height) - y);
                 const pixels = new Uint32Array(rows.data.buffer);
                 return pixels.filter((pixel) => pixel !== pixels[0]).length / pixels.length;
               }};
               return [part(0.45, 0.6), part(0.66, 0.95)];
             }})()"
        );
        let painted: Vec<f64> = serde_json::from_value(browser.get(&painted).await).unwrap();
        assert!(painted.iter().all(|part| *part > 0.5), "{painted:?}");
        browser.keep("19-saved", &picture);
        browser.end().await;
    });
}

/// A name in a recording must not become a formula in the spreadsheet of who opens the table.
#[test]
fn tables_have_names_as_text_only() {
    let names = Names { function: "=1+1\",\"x", file: "a,b.py", label: "@sum", note: "" };
    let run = runs::training(&names);
    with_report(&report(&run, "../=x"), false, |browser| async move {
        browser.click("#save-open").await;
        let (name, live) = browser.download("[data-testid=save-live]").await;
        assert!(!name.contains(['/', '=']) && name.ends_with("-live.csv"), "{name}");
        let live = String::from_utf8(live).unwrap();
        assert!(live.contains(",'@sum,"), "{live}");
        assert!(live.contains(r#""main (train.py:3);'=1+1"",""x (a,b.py:50)""#), "{live}");
        browser.end().await;
    });
}
