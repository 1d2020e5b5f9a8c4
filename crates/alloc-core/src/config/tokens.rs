//! A settings text cut into tokens: the four characters `, : [ ]` and what stands between them.

use super::refusals::{ConfigError, ExceptionClass, Warning};

/// The longest text that is read. PyTorch has no limit; no honest text comes near this one.
pub(super) const MAX_TEXT: usize = 64 << 10;

/// A separator, or the text between two.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// Without white space.
    pub(super) text: String,
    /// Byte offset of its first character.
    pub(super) start: usize,
    /// White space stood inside it.
    pub(super) inner_space: bool,
}

impl Token {
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

/// True for white space, as for C's `isspace`.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

/// Cuts a text. White space vanishes, also inside a token.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ConfigError> {
    if text.len() > MAX_TEXT {
        let problem = format!("the text has {} bytes; at most {MAX_TEXT} are read", text.len());
        return Err(ConfigError::new(ExceptionClass::ValueError, problem.clone()).because(problem));
    }
    let mut found: Vec<Token> = Vec::new();
    let (mut open, mut gap) = (false, false);
    for (start, c) in text.char_indices() {
        if matches!(c, ',' | ':' | '[' | ']') {
            found.push(Token { text: c.into(), start, inner_space: false });
            open = false;
        } else if is_space(c) {
            gap = open;
        } else if let Some(last) = found.last_mut().filter(|_| open) {
            last.text.push(c);
            last.inner_space |= gap;
            gap = false;
        } else {
            found.push(Token { text: c.into(), start, inner_space: false });
            (open, gap) = (true, false);
        }
    }
    Ok(found)
}

/// A warning for every token that white space cut in two.
pub(super) fn inner_spaces(tokens: &[Token]) -> impl Iterator<Item = Warning> {
    let cut = tokens.iter().filter(|t| t.inner_space);
    cut.map(|t| Warning::InnerSpace { token: super::refusals::clip(&t.text), position: t.start })
}
