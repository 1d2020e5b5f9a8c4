//! The viewer's files, made one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::io::{self, Write};

const MARKUP: &str = include_str!("../../viewer/viewer.html");
const STYLE: &str = include_str!("../../viewer/viewer.css");

/// Modules, each after those that it uses.
const MODULES: &[&str] = &[
    include_str!("../../viewer/format.js"),
    include_str!("../../viewer/bytes.js"),
    include_str!("../../viewer/data.js"),
    include_str!("../../viewer/texts.js"),
    include_str!("../../viewer/state.js"),
    include_str!("../../viewer/colours.js"),
    include_str!("../../viewer/dom.js"),
    include_str!("../../viewer/columns.js"),
    include_str!("../../viewer/raster.js"),
    include_str!("../../viewer/moment.js"),
    include_str!("../../viewer/layout.js"),
    include_str!("../../viewer/window.js"),
    include_str!("../../viewer/chart.js"),
    include_str!("../../viewer/overview.js"),
    include_str!("../../viewer/map.js"),
    include_str!("../../viewer/tip.js"),
    include_str!("../../viewer/details.js"),
    include_str!("../../viewer/search.js"),
    include_str!("../../viewer/tables.js"),
    include_str!("../../viewer/pointer.js"),
    include_str!("../../viewer/keys.js"),
    include_str!("../../viewer/main.js"),
];

/// Everything up to the data.
pub(super) fn write_head(title: &str, out: &mut dyn Write) -> io::Result<()> {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let (script, style) = (hash(&script()), hash(STYLE));
    // Nothing is loaded, and no script or style runs but these.
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"
    );
    writeln!(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    writeln!(out, "<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">")?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width\">")?;
    writeln!(out, "<title>{} · Granule</title>", escape(title))?;
    writeln!(out, "<style>{STYLE}</style>\n</head>\n<body>\n{MARKUP}")
}

/// The viewer.
pub(super) fn write_scripts(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<script>{}</script>", script())
}

pub(super) fn write_end(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "</body>\n</html>")
}

/// The modules as one script: what they import from each other is already there. Their names must differ.
fn script() -> String {
    let mut script = String::from("(() => {\n\"use strict\";\n");
    for module in MODULES {
        for line in module.lines().filter(|line| !line.starts_with("import ")) {
            script.push_str(line.strip_prefix("export ").unwrap_or(line));
            script.push('\n');
        }
    }
    script.push_str("})();\n");
    script
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::{MARKUP, MODULES, STYLE, script};
    use std::collections::HashSet;

    #[test]
    fn modules_become_one_script() {
        let script = script();
        for line in script.lines() {
            assert!(!line.starts_with("import ") && !line.starts_with("export "), "{line}");
        }
        // Either would end the element that the script is in, or make its end be passed over.
        assert!(!script.contains("</script") && !script.contains("<!--"));
        assert!(!STYLE.contains("</style"));
    }

    #[test]
    fn top_level_names_differ() {
        let mut names = HashSet::new();
        for line in MODULES.iter().flat_map(|module| module.lines()) {
            let line = line.strip_prefix("export ").unwrap_or(line);
            let line = line.strip_prefix("async ").unwrap_or(line);
            let kinds = ["const ", "let ", "function ", "class "];
            let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            assert!(names.insert(name.clone()), "{name} twice");
        }
        assert!(names.len() > 50);
    }

    #[test]
    fn nothing_is_markup_that_came_from_a_file() {
        let script = script();
        for way in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
        {
            assert!(!script.contains(way), "{way}");
        }
        // The policy forbids these.
        assert!(!MARKUP.contains(" style=") && !MARKUP.contains(" onclick="));
    }

    #[test]
    fn nothing_is_loaded() {
        for text in [MARKUP, STYLE, &script()] {
            for way in ["http:", "https:", "url(", "fetch(", "XMLHttpRequest", "WebSocket", "src="] {
                assert!(!text.contains(way), "{way}");
            }
        }
    }
}
