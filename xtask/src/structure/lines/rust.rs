//! Lines of Rust: those that have a token which is no documentation.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// The lines of a file, without some.
pub(super) fn lines(text: &str, without: &[RangeInclusive<usize>]) -> Result<usize> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{error}"))?;
    let blank: Vec<bool> = text.lines().map(|line| line.trim().is_empty()).collect();
    let mut lines = BTreeSet::new();
    collect(tokens, &mut lines);
    let counts = |line: &usize| !without.iter().any(|out| out.contains(line)) && !blank[line - 1];
    Ok(lines.into_iter().filter(counts).count())
}

fn collect(tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let mut add = |span: Span| lines.extend(span.start().line..=span.end().line);
    let mut inner = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if let TokenTree::Punct(hash) = &token
            && hash.as_char() == '#'
        {
            // An inner attribute's mark goes with it.
            let mark = tokens.next_if(|next| matches!(next, TokenTree::Punct(mark) if mark.as_char() == '!'));
            if tokens.next_if(is_documentation).is_none() {
                add(token.span());
                mark.iter().for_each(|mark| add(mark.span()));
            }
        } else if let TokenTree::Group(group) = token {
            add(group.span_open());
            add(group.span_close());
            inner.push(group.stream());
        } else {
            add(token.span());
        }
    }
    inner.into_iter().for_each(|tokens| collect(tokens, lines));
}

/// Whether this is `[doc = "..."]`, which is what a documentation comment is to the compiler.
fn is_documentation(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else {
        return false;
    };
    let inside: Vec<TokenTree> = group.stream().into_iter().collect();
    group.delimiter() == Delimiter::Bracket
        && matches!(inside.as_slice(), [TokenTree::Ident(doc), TokenTree::Punct(_), TokenTree::Literal(_)] if *doc == "doc")
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn code_counts_and_what_is_said_about_it_does_not() {
        let text = "//! The file.\n\n#![allow(dead_code)]\n/* a\n b */\n/// What it is.\n#[doc(hidden)]\nfn f() -> &'static str {\n    // Why.\n    \"one\n\n    // two\"\n}\nmacro_rules! m {\n    () => {\n        /// Said.\n        1\n    };\n}\n";
        assert_eq!(lines(text, &[]).unwrap(), 11);
        assert_eq!(lines(text, &[7..=13]).unwrap(), 6);
        assert_eq!(lines("", &[]).unwrap(), 0);
    }
}
