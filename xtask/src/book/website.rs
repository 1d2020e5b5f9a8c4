//! The website: what `mdbook` makes, with links out of the book that lead to the repository.

use crate::process::{self, command, files, root, target};
use anyhow::Result;
use std::fs;

/// Where files of the repository are read.
const FILES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");
/// How a link from a page to a file beside the book begins.
const OUT: &str = "href=\"../";

pub(super) fn build() -> Result<()> {
    process::install_if_missing("mdbook")?;
    process::run(command("mdbook").args(["build", "docs"]))?;
    let folder = target().join("book");
    for file in files::in_folder(&folder, "html")? {
        fs::write(&file, to_repository(&files::read(&file)?, |path| root().join(path).exists()))?;
    }
    println!("the website is in {}", folder.display());
    Ok(())
}

/// A page whose links to files beside the book lead to the repository. `mdbook` takes `.md` for a page of its own and writes
/// `.html`; `exists` says what is there.
fn to_repository(page: &str, exists: impl Fn(&str) -> bool) -> String {
    // Pages of results are no part of the book.
    let page = page.replace("href=\"results/", "href=\"../docs/results/");
    let mut parts = page.split(OUT);
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (link, rest) = part.split_once('"').unwrap_or((part, ""));
        let (path, place) = link.split_once('#').map_or((link, None), |(path, place)| (path, Some(place)));
        let text = path.strip_suffix(".html").map(|stem| format!("{stem}.md"));
        let file = text.filter(|text| exists(text)).unwrap_or_else(|| path.to_owned());
        let place = place.map(|place| format!("#{place}")).unwrap_or_default();
        made.push_str(&format!("href=\"{FILES}{file}{place}\"{rest}"));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::to_repository;

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let page = r##"<a href="guide.html">a</a> <a href="../ARCHITECTURE.html#views">b</a> <a href="../tests/x.rs">c</a> <a href="results/d.html">d</a>"##;
        let made = to_repository(page, |path| ["ARCHITECTURE.md", "docs/results/d.md"].contains(&path));
        let files = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main");
        let expected = format!(
            r##"<a href="guide.html">a</a> <a href="{files}/ARCHITECTURE.md#views">b</a> <a href="{files}/tests/x.rs">c</a> <a href="{files}/docs/results/d.md">d</a>"##
        );
        assert_eq!(made, expected);
    }
}
