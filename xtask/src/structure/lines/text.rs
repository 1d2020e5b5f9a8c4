//! Lines of languages that have no parser here: those that have something besides comments.

/// How a language writes what does not count, and where that may not be looked for.
pub(super) struct Rules {
    line_comment: &'static str,
    /// Begin and end.
    block_comment: Option<(&'static str, &'static str)>,
    /// Quotes, the longer first, with whether the text may go over several lines.
    quotes: &'static [(&'static str, bool)],
    /// Whether a text that stands alone is a comment.
    has_doc_strings: bool,
    has_regular_expressions: bool,
}

pub(super) const CPP: Rules = Rules {
    line_comment: "//",
    block_comment: Some(("/*", "*/")),
    quotes: &[("\"", false), ("'", false)],
    has_doc_strings: false,
    has_regular_expressions: false,
};

pub(super) const PYTHON: Rules = Rules {
    line_comment: "#",
    block_comment: None,
    quotes: &[("\"\"\"", true), ("'''", true), ("\"", false), ("'", false)],
    has_doc_strings: true,
    has_regular_expressions: false,
};

pub(super) const JAVA_SCRIPT: Rules = Rules {
    line_comment: "//",
    block_comment: Some(("/*", "*/")),
    quotes: &[("\"", false), ("'", false), ("`", true)],
    has_doc_strings: false,
    has_regular_expressions: true,
};

/// What the reader is in the middle of.
enum Within {
    Code,
    Block { end: &'static str },
    Text { quote: &'static str, counts: bool },
}

/// The lines of a text.
pub(super) fn lines(text: &str, rules: &Rules) -> usize {
    let mut within = Within::Code;
    let mut depth = 0_usize;
    let mut count = 0;
    for line in text.lines() {
        let (has_code, after) = line_counts(line, rules, within, &mut depth);
        within = after;
        count += usize::from(has_code);
    }
    count
}

/// Whether a line has code, and what it ends within. `depth` counts open brackets: a text in these never stands alone.
fn line_counts(line: &str, rules: &Rules, mut within: Within, depth: &mut usize) -> (bool, Within) {
    let mut has_code = false;
    let mut before = None;
    let mut rest = line.trim();
    let is_blank = rest.is_empty();
    while let Some(first) = rest.chars().next() {
        let mut step = first.len_utf8();
        match within {
            Within::Block { end } => {
                if rest.starts_with(end) {
                    (step, within) = (end.len(), Within::Code);
                }
            }
            Within::Text { quote, counts } => {
                has_code |= counts;
                if first == '\\' {
                    step += rest[step..].chars().next().map_or(0, char::len_utf8);
                } else if rest.starts_with(quote) {
                    (step, within, before) = (quote.len(), Within::Code, Some('"'));
                }
            }
            Within::Code if rest.starts_with(rules.line_comment) => break,
            Within::Code => {
                let quote =
                    rules.quotes.iter().map(|(quote, _)| *quote).find(|quote| rest.starts_with(quote));
                if let Some((begin, end)) = rules.block_comment.filter(|(begin, _)| rest.starts_with(begin)) {
                    (step, within) = (begin.len(), Within::Block { end });
                } else if let Some(quote) = quote.filter(|_| !is_in_a_number(before, first)) {
                    let alone = rules.has_doc_strings && before.is_none() && *depth == 0;
                    has_code |= !alone;
                    (step, within) = (quote.len(), Within::Text { quote, counts: !alone });
                } else if first == '/' && rules.has_regular_expressions && begins_an_expression(before) {
                    has_code = true;
                    (step, before) = (regular_expression(rest), Some('/'));
                } else if !first.is_whitespace() {
                    has_code = true;
                    match first {
                        '(' | '[' | '{' => *depth += 1,
                        ')' | ']' | '}' => *depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    before = Some(first);
                }
            }
        }
        rest = &rest[step..];
    }
    let goes_on = line.ends_with('\\');
    let ends = |quote| rules.quotes.contains(&(quote, false)) && !goes_on;
    let within = match within {
        Within::Text { quote, .. } if ends(quote) => Within::Code,
        other => other,
    };
    (has_code && !is_blank, within)
}

/// C++ writes 1'000.
fn is_in_a_number(before: Option<char>, quote: char) -> bool {
    quote == '\'' && before.is_some_and(|before| before.is_ascii_digit())
}

/// Whether a slash here cannot divide.
fn begins_an_expression(before: Option<char>) -> bool {
    before.is_none_or(|before| "(,=:[!&|?{};>".contains(before))
}

/// How long the regular expression is that a text begins with.
fn regular_expression(text: &str) -> usize {
    let (mut escaped, mut in_class) = (true, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::{CPP, JAVA_SCRIPT, PYTHON, lines};

    #[test]
    fn comments_and_blank_lines_do_not_count() {
        let text = "// a\n\n/* b\n c */ int d; // e\nconst char* f = \"/* no comment\";\nint g = 1'000; /* h */\nchar i = '\"'; // j\n/* k */\n";
        assert_eq!(lines(text, &CPP), 4);
        let text = "const a = /[/\"*]/; // b\n/** c */\nconst d = `e\n// f\n\n`;\nconst g = a / 2; // h\n";
        assert_eq!(lines(text, &JAVA_SCRIPT), 5);
    }

    #[test]
    fn doc_strings_are_comments_and_other_texts_are_not() {
        let text = "\"\"\"The file.\n\nMore.\"\"\"\n# a\nimport b\n\ndef c():\n    '''What.'''\n    d = \"\"\"text\n    # text\n    \"\"\"\n    return (\n        \"e\"  # f\n        'it''s')\n\"\"\"g\"\"\"\nx = '#'\n";
        assert_eq!(lines(text, &PYTHON), 9);
    }
}
