//! The files of a page's viewer, made one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

const STYLE: &str = include_str!("../viewer/viewer.css");

/// What draws a page.
#[derive(Debug)]
pub(crate) struct Viewer {
    markup: &'static str,
    /// Modules besides [`BASE`], each after those that it uses.
    modules: &'static [&'static str],
}

/// Modules of every page, each after those that it uses.
const BASE: &[&str] = &[
    include_str!("../viewer/base/format.js"),
    include_str!("../viewer/base/scale.js"),
    include_str!("../viewer/base/canvas.js"),
    include_str!("../viewer/base/plot.js"),
    include_str!("../viewer/base/bytes.js"),
    include_str!("../viewer/base/bins.js"),
    include_str!("../viewer/base/colours.js"),
    include_str!("../viewer/base/dom.js"),
    include_str!("../viewer/base/tip.js"),
    include_str!("../viewer/base/drag.js"),
    include_str!("../viewer/base/window.js"),
    include_str!("../viewer/base/help.js"),
    include_str!("../viewer/share/address.js"),
    include_str!("../viewer/share/file.js"),
    include_str!("../viewer/share/picture.js"),
];

/// The page of one run.
pub(crate) const REPORT: Viewer = Viewer {
    markup: include_str!("../viewer/viewer.html"),
    modules: &[
        include_str!("../viewer/data/store.js"),
        include_str!("../viewer/data/texts.js"),
        include_str!("../viewer/data/state.js"),
        include_str!("../viewer/data/events.js"),
        include_str!("../viewer/time/columns.js"),
        include_str!("../viewer/time/raster.js"),
        include_str!("../viewer/data/moment.js"),
        include_str!("../viewer/space/layout.js"),
        include_str!("../viewer/time/window.js"),
        include_str!("../viewer/time/chart.js"),
        include_str!("../viewer/time/overview.js"),
        include_str!("../viewer/space/map.js"),
        include_str!("../viewer/flame/tree.js"),
        include_str!("../viewer/flame/flame.js"),
        include_str!("../viewer/share/link.js"),
        include_str!("../viewer/share/save.js"),
        include_str!("../viewer/panel/words.js"),
        include_str!("../viewer/panel/details.js"),
        include_str!("../viewer/panel/events.js"),
        include_str!("../viewer/panel/search.js"),
        include_str!("../viewer/panel/tables.js"),
        include_str!("../viewer/input/pointer.js"),
        include_str!("../viewer/input/keys.js"),
        include_str!("../viewer/main.js"),
    ],
};

/// The page of several runs.
pub(crate) const COMPARISON: Viewer = Viewer {
    markup: include_str!("../viewer/compare/compare.html"),
    modules: &[
        include_str!("../viewer/compare/axis.js"),
        include_str!("../viewer/compare/strip.js"),
        include_str!("../viewer/compare/table.js"),
        include_str!("../viewer/compare/link.js"),
        include_str!("../viewer/compare/input.js"),
        include_str!("../viewer/compare/main.js"),
    ],
};

impl Viewer {
    /// Everything up to the data.
    pub(crate) fn write_head(&self, title: &str, out: &mut dyn Write) -> io::Result<()> {
        let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
        let (script, style) = (hash(&self.script()), hash(STYLE));
        // Nothing is loaded, and no script or style runs but these.
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
        );
        writeln!(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
        writeln!(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">")?;
        writeln!(out, "<meta name=\"viewport\" content=\"width=device-width\">")?;
        writeln!(out, "<title>{} · Granule</title>", escape(title))?;
        writeln!(out, "<style>{STYLE}</style>\n</head>\n<body>\n{}", self.markup)
    }

    fn all_modules(&self) -> impl Iterator<Item = &'static str> {
        BASE.iter().chain(self.modules).copied()
    }

    /// The script.
    pub(crate) fn write_script(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "<script>{}</script>", self.script())
    }

    /// The modules as one script: what they import from each other is already there. Their names must differ.
    fn script(&self) -> String {
        let mut script = String::from("(() => {\n\"use strict\";\n");
        for module in self.all_modules() {
            for line in module.lines().filter(|line| !line.starts_with("import ")) {
                script.push_str(line.strip_prefix("export ").unwrap_or(line));
                script.push('\n');
            }
        }
        script.push_str("})();\n");
        script
    }
}

pub(crate) fn write_end(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "</body>\n</html>")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{COMPARISON, REPORT, STYLE, Viewer};
    use std::collections::HashSet;

    const VIEWERS: [&Viewer; 2] = [&REPORT, &COMPARISON];

    #[test]
    fn modules_become_one_script() {
        for script in VIEWERS.map(Viewer::script) {
            for line in script.lines() {
                assert!(!line.starts_with("import ") && !line.starts_with("export "), "{line}");
            }
            // Either would end the element that the script is in, or make its end be passed over.
            assert!(!script.contains("</script") && !script.contains("<!--"));
        }
        assert!(!STYLE.contains("</style"));
    }

    /// The name that a line at the top level of a module gives to something.
    fn named(line: &str) -> Option<&str> {
        let line = line.strip_prefix("export ").unwrap_or(line);
        let line = line.strip_prefix("async ").unwrap_or(line);
        let rest =
            ["const ", "let ", "function ", "class "].iter().find_map(|kind| line.strip_prefix(kind))?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    }

    #[test]
    fn top_level_names_differ_and_come_before_they_are_imported() {
        for viewer in VIEWERS {
            let mut names = HashSet::new();
            for module in viewer.all_modules() {
                let imports = module.lines().filter_map(|line| line.strip_prefix("import { "));
                for name in imports.flat_map(|line| line.split(" }").next().unwrap().split(", ")) {
                    assert!(names.contains(name), "{name} is imported, and no module before has it");
                }
                for name in module.lines().filter_map(named) {
                    assert!(names.insert(name), "{name} twice");
                }
            }
            assert!(names.len() > 50, "{}", names.len());
        }
    }

    #[test]
    fn nothing_is_markup_that_came_from_a_file() {
        for viewer in VIEWERS {
            let script = viewer.script();
            for way in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!script.contains(way), "{way}");
            }
            // The policy forbids these.
            assert!(!viewer.markup.contains(" style=") && !viewer.markup.contains(" onclick="));
        }
    }

    #[test]
    fn nothing_is_loaded() {
        for viewer in VIEWERS {
            for text in [viewer.markup, STYLE, &viewer.script()] {
                for way in ["http:", "https:", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "src="] {
                    assert!(!text.contains(way), "{way}");
                }
            }
        }
    }
}
