//! Light, dark, and screens of all sizes.

use crate::{CHART, MAP, TELEPHONE, training};
use serde_json::Value;

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

/// The book's, of the recording that comes with the command.
#[test]
fn pictures_of_the_book() {
    browser_tests::book(&[(1400, 860), (390, 1500)]);
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
