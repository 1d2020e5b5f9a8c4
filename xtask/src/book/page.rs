//! One page of Markdown: its headings, links, paragraphs and examples.

use crate::process::{files, root};
use anyhow::Result;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

/// The most words of a paragraph.
const WORDS: usize = 80;

#[derive(Debug)]
pub(super) struct Page {
    file: PathBuf,
    /// What a link may name after `#`.
    anchors: Vec<String>,
    /// Where links lead, with the line that they are in.
    links: Vec<(usize, String)>,
    /// Paragraphs that are too long: their line and their words.
    long: Vec<(usize, usize)>,
    /// Blocks of code that have a language, with the line of the first.
    code: Vec<Code>,
}

/// A block of code.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) language: String,
    pub(super) line: usize,
    pub(super) text: String,
}

impl Page {
    pub(super) fn read(file: PathBuf) -> Result<Self> {
        let text = files::read(&file)?;
        Ok(Self::of(file, &text))
    }

    fn of(file: PathBuf, text: &str) -> Self {
        let mut page =
            Self { file, anchors: Vec::new(), links: Vec::new(), long: Vec::new(), code: Vec::new() };
        let mut seen = HashMap::new();
        // The text of the heading, paragraph or block that is being read.
        let mut words = String::new();
        let line_of = |at: usize| 1 + text[..at].matches('\n').count();
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. } | Tag::Paragraph | Tag::CodeBlock(_)) => words.clear(),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line_of(range.start), dest_url.into_string()));
                }
                Event::Text(part) | Event::Code(part) => words.push_str(&part),
                Event::SoftBreak | Event::HardBreak => words.push(' '),
                Event::End(TagEnd::Heading(_)) => page.anchors.push(anchor(&words, &mut seen)),
                Event::End(TagEnd::Paragraph) if words.split_whitespace().count() > WORDS => {
                    page.long.push((line_of(range.start), words.split_whitespace().count()));
                }
                Event::End(TagEnd::CodeBlock) => {
                    let info = text[range.clone()].lines().next().unwrap_or_default();
                    let language = info.trim_start_matches('`').trim().to_owned();
                    let (line, text) = (line_of(range.start) + 1, std::mem::take(&mut words));
                    page.code.push(Code { language, line, text });
                }
                _ => {}
            }
        }
        page
    }

    /// The page's name, as a reader of the repository knows it.
    pub(super) fn name(&self) -> String {
        self.file.strip_prefix(root()).unwrap_or(&self.file).display().to_string()
    }

    /// Its blocks in one of these languages.
    pub(super) fn code<'a>(&'a self, languages: &'a [&str]) -> impl Iterator<Item = &'a Code> {
        self.code.iter().filter(|code| languages.contains(&code.language.as_str()))
    }

    /// Links that lead nowhere, and paragraphs that are too long, a line each.
    pub(super) fn faults(&self, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
        let dead = self.links.iter().filter(|(_, link)| !self.leads_somewhere(link, pages));
        let dead = dead.map(|(line, link)| format!("{}:{line}: nothing is at {link}", self.name()));
        let long = self.long.iter().map(|(line, words)| {
            format!("{}:{line}: a paragraph of {words} words; {WORDS} are allowed", self.name())
        });
        dead.chain(long).collect()
    }

    /// Whether a link has an end, as far as that can be seen without a network.
    fn leads_somewhere(&self, link: &str, pages: &BTreeMap<PathBuf, Page>) -> bool {
        if link.contains("://") || link.starts_with("mailto:") {
            return true;
        }
        let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let file = if path.is_empty() { self.file.clone() } else { plain(&folder.join(path)) };
        match anchor {
            None => file.exists(),
            Some(anchor) => pages.get(&file).is_some_and(|page| page.anchors.iter().any(|own| own == anchor)),
        }
    }
}

/// The path without `.` and `..`; links are not followed.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(whole.pop()),
            part => whole.push(part),
        }
        whole
    })
}

/// What GitHub and mdBook call a heading: lower case, words joined by hyphens, a number where it is there again.
fn anchor(heading: &str, seen: &mut HashMap<String, usize>) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    let name = kept.flat_map(char::to_lowercase).collect::<String>().replace(' ', "-");
    let again = seen.entry(name.clone()).and_modify(|times| *times += 1).or_insert(0);
    if *again == 0 { name } else { format!("{name}-{again}") }
}

#[cfg(test)]
mod tests {
    use super::{Code, Page};
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    fn faults(text: &str) -> Vec<String> {
        let file = PathBuf::from("/book/one.md");
        let other = Page::of("/book/two.md".into(), "# A heading: `code`\n\n# Twice\n\n# Twice\n");
        let pages =
            BTreeMap::from([("/book/two.md".into(), other), (file.clone(), Page::of(file.clone(), text))]);
        pages[&file].faults(&pages)
    }

    #[test]
    fn links_are_followed_to_their_heading() {
        let good =
            "# Own\n[a](#own) [b](two.md#a-heading-code) [c](./two.md#twice-1) [d](https://example.org/x)";
        assert_eq!(faults(good), Vec::<String>::new());
        for (bad, said) in [
            ("[a](#other)", "/book/one.md:1: nothing is at #other"),
            ("\n\n[a](two.md#twice-2)", "/book/one.md:3: nothing is at two.md#twice-2"),
            ("![p](gone.png)", "/book/one.md:1: nothing is at gone.png"),
            ("| a |\n|---|\n| [t](gone.md) |", "/book/one.md:3: nothing is at gone.md"),
        ] {
            assert_eq!(faults(bad), [said]);
        }
    }

    #[test]
    fn a_paragraph_has_an_end() {
        assert_eq!(faults(&"word ".repeat(80)), Vec::<String>::new());
        assert_eq!(faults(&"word ".repeat(81)), ["/book/one.md:1: a paragraph of 81 words; 80 are allowed"]);
    }

    #[test]
    fn blocks_of_a_language_are_found_with_their_line() {
        let page = Page::of(
            "x.md".into(),
            "text\n\n```sh\ngranule devices   # all\n```\n\n```rust\nlet a = 1;\n```\n",
        );
        let text = "granule devices   # all\n".to_owned();
        let found: Vec<_> = page.code(&["sh"]).collect();
        assert_eq!(found, [&Code { language: "sh".into(), line: 4, text }]);
    }
}
