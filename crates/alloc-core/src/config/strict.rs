//! Granule's own grammar, for `GRANULE_CONF` and the API: the same options and a few more, nothing tolerated.
//!
//! `key:value,key:value`, where a value is one word or a list in brackets. Blanks may stand around words, not
//! inside them. Every option at most once. Options that the text does not name keep their values, so there are
//! words to switch one off again (`unlimited`, `full`, `0`).

use super::options::{Grammar, Key, OFF, OptionInfo, find, nearest, without_effect};
use super::plain::{ratio, whole};
use super::refusals::ConfigError;
use super::tokens::{Token, tokens};
use super::values::{self, DivisionTable, MAX_MB, OptionValue, ValueKind};
use super::{AllocatorBackend, CrossStream, Flavour, MemoryLimit, Parsed, PolicyName, ReserveSize, Settings};
use crate::types::MIB;
use rustc_hash::FxHashSet;
use std::path::PathBuf;

/// Reads `text` and changes what it names, starting from `previous`. An empty text changes nothing.
///
/// Warnings are only about options that have no effect. Does not block.
///
/// # Errors
/// Names the token, its place in the text and what is allowed there. Keep `previous` then.
pub fn parse(text: &str, previous: &Settings) -> Result<Parsed, ConfigError> {
    let tokens = tokens(text)?;
    if let Some(cut) = tokens.iter().find(|t| t.inner_space) {
        return Err(ConfigError::strict("white space inside a word").at(&cut.text, cut.start));
    }
    let entries = Scanner { tokens: &tokens, at: 0, end: text.len() }.entries()?;
    let mut settings = Settings { text: text.to_owned(), ..previous.clone() };
    let large = entries.iter().find(|e| e.option.key == Key::LargeSegmentSize);
    if let Some(large) = large {
        large.apply(&mut settings)?;
        // Left at its default, this limit is the large segment size, whatever that is.
        if previous.max_non_split_rounding == previous.large_segment_size {
            settings.max_non_split_rounding = settings.large_segment_size;
        }
    }
    for entry in entries.iter().filter(|e| e.option.key != Key::LargeSegmentSize) {
        entry.apply(&mut settings)?;
    }
    if let Some(large) = large {
        large.below_the_limits(&settings)?;
    }
    let named: Vec<_> = entries.iter().map(|e| e.option.key).collect();
    let warnings = without_effect(&settings, &named);
    Ok(Parsed { settings, warnings })
}

/// One `key:value` with the first token of the value.
struct ListedOption<'t> {
    option: &'static OptionInfo,
    value: OptionValue,
    token: &'t Token,
}

impl ListedOption<'_> {
    fn apply(&self, settings: &mut Settings) -> Result<(), ConfigError> {
        let zero = match self.value {
            OptionValue::Ratio(share) => share == 0.0,
            OptionValue::Megabytes(mb) => mb == 0,
            _ => false,
        };
        let off = zero && self.option.strict_extra == Some(OFF);
        let refused = (self.option.refuse)(&self.value, settings.large_segment_size / MIB);
        if refused.is_some() && !off {
            let limit = settings.large_segment_size / MIB;
            let error = bad_value(self.option, self.token, "the value is out of range");
            return Err(match self.option.key {
                Key::MaxSplitSize | Key::MaxNonSplitRounding => {
                    let range = self.option.strict_range();
                    error.allowed(format!("{range} (which is {limit})"))
                }
                _ => error,
            });
        }
        (self.option.field.store)(settings, self.value.clone());
        Ok(())
    }

    /// The large segment size against limits that an earlier text has set.
    fn below_the_limits(&self, settings: &Settings) -> Result<(), ConfigError> {
        let limits = [
            ("max_split_size_mb", settings.max_split_size),
            ("max_non_split_rounding_mb", settings.max_non_split_rounding),
        ];
        match limits.into_iter().find(|(_, limit)| *limit < settings.large_segment_size) {
            None => Ok(()),
            Some((name, limit)) => {
                let limit = limit / MIB;
                Err(bad_value(
                    self.option,
                    self.token,
                    &format!("the value is above {name}, which is {limit}"),
                )
                .allowed(format!("11 to {limit}, or a larger {name} in the same text")))
            }
        }
    }
}

struct Scanner<'t> {
    tokens: &'t [Token],
    at: usize,
    end: usize,
}

impl<'t> Scanner<'t> {
    fn entries(mut self) -> Result<Vec<ListedOption<'t>>, ConfigError> {
        let mut entries: Vec<ListedOption<'t>> = Vec::new();
        while self.at < self.tokens.len() {
            if !entries.is_empty() {
                self.separator(",")?;
            }
            let key = self.word("an option name")?;
            let Some(option) = find(&key.text) else {
                let error = ConfigError::strict("there is no such option").at(&key.text, key.start);
                // A list of all names would hide the one that is meant.
                return Err(match nearest(&key.text, Grammar::Granule) {
                    Some(near) => error.meant(Some(near)),
                    None => {
                        error.allowed(super::options().iter().map(|o| o.name).collect::<Vec<_>>().join(", "))
                    }
                });
            };
            if entries.iter().any(|e| e.option.key == option.key) {
                let error = ConfigError::strict("the option is given twice").of(option.name);
                return Err(error.at(&key.text, key.start));
            }
            self.separator(":").map_err(|e| e.of(option.name))?;
            let token = self.peek().unwrap_or(key);
            let value = self.value(option).map_err(|e| e.of(option.name))?;
            entries.push(ListedOption { option, value, token });
        }
        Ok(entries)
    }

    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self, wanted: &str) -> Result<&'t Token, ConfigError> {
        let token = self.peek().ok_or_else(|| {
            let mut error = ConfigError::strict(format!("expected {wanted}, but the text ends"));
            error.detail.position = Some(self.end);
            error
        })?;
        self.at += 1;
        Ok(token)
    }

    fn separator(&mut self, separator: &'static str) -> Result<(), ConfigError> {
        let token = self.next(&format!("'{separator}'"))?;
        if token.is(separator) {
            return Ok(());
        }
        Err(ConfigError::strict(format!("expected '{separator}'")).at(&token.text, token.start))
    }

    fn word(&mut self, wanted: &str) -> Result<&'t Token, ConfigError> {
        let token = self.next(wanted)?;
        if matches!(token.text.as_str(), "," | ":" | "[" | "]") {
            return Err(ConfigError::strict(format!("expected {wanted}")).at(&token.text, token.start));
        }
        Ok(token)
    }

    fn value(&mut self, option: &'static OptionInfo) -> Result<OptionValue, ConfigError> {
        let kind = option.kind;
        let list = self.peek().is_some_and(|t| t.is("["));
        match kind {
            ValueKind::Divisions if list => return self.divisions(),
            ValueKind::Classes if list => return self.classes(option),
            _ => {}
        }
        let token = self.word("a value").map_err(|e| e.allowed(option.strict_range()))?;
        let text = token.text.as_str();
        let value = match kind {
            ValueKind::Megabytes if text == "unlimited" && option.strict_extra == Some("unlimited") => {
                Some(OptionValue::Unlimited)
            }
            ValueKind::Megabytes => whole(text).filter(|mb| *mb <= MAX_MB).map(OptionValue::Megabytes),
            ValueKind::Count => whole(text).filter(|n| *n <= u64::from(u32::MAX)).map(OptionValue::Count),
            ValueKind::Ratio => ratio(text).map(OptionValue::Ratio),
            ValueKind::Switch => values::switch(text).map(OptionValue::Switch),
            ValueKind::Backend => AllocatorBackend::from_name(text, Flavour::Hip).map(OptionValue::Backend),
            ValueKind::Reserve if text == "full" => Some(OptionValue::Reserve(None)),
            ValueKind::Reserve => reserve(text).map(|size| OptionValue::Reserve(Some(size))),
            ValueKind::Divisions => divisions(text).map(|n| OptionValue::Divisions([n; 16])),
            ValueKind::Policy => {
                PolicyName::ALL.iter().find(|p| p.name() == text).map(|p| OptionValue::Policy(*p))
            }
            ValueKind::CrossStream => CrossStream::named(text).map(OptionValue::CrossStream),
            ValueKind::Release => text.parse().ok().map(OptionValue::Release),
            ValueKind::Limit if text == "unlimited" => Some(OptionValue::Limit(None)),
            ValueKind::Limit => MemoryLimit::parse(text).ok().map(|limit| OptionValue::Limit(Some(limit))),
            ValueKind::HostReserve if text == "default" => Some(OptionValue::Limit(None)),
            ValueKind::HostReserve if text == "0" => Some(OptionValue::Limit(Some(MemoryLimit::Bytes(0)))),
            ValueKind::HostReserve => {
                MemoryLimit::parse(text).ok().map(|reserve| OptionValue::Limit(Some(reserve)))
            }
            ValueKind::Path => {
                Some(text.into()).filter(|path: &PathBuf| path.is_absolute()).map(OptionValue::Path)
            }
            ValueKind::Classes => None,
        };
        value.ok_or_else(|| bad_value(option, token, hint(kind, text)))
    }

    /// Steps over a list's end or the comma before its next entry; true at the end.
    fn list_ends(&mut self, empty: bool) -> Result<bool, ConfigError> {
        match self.peek() {
            Some(token) if token.is("]") => {
                self.at += 1;
                Ok(true)
            }
            None => Err(ConfigError::strict("the list is not closed").allowed("] at its end")),
            Some(_) if empty => Ok(false),
            Some(_) => self.separator(",").map(|()| false),
        }
    }

    fn divisions(&mut self) -> Result<OptionValue, ConfigError> {
        let mut table = DivisionTable::new();
        let open = self.next("'['")?;
        let mut last = None;
        let mut complete = false;
        while !self.list_ends(last.is_none() && !complete)? {
            let boundary = self.word("a boundary in MiB")?;
            self.separator(":")?;
            let count = self.word("a number of divisions")?;
            let problem = |problem: &str, token: &Token, allowed: &str| {
                ConfigError::strict(problem).at(&token.text, token.start).allowed(allowed)
            };
            let Some(n) = divisions(&count.text) else {
                return Err(problem(
                    "the number of divisions is not a power of two",
                    count,
                    "0 (off), 1, 2, 4, 8, ...",
                ));
            };
            if complete {
                return Err(problem("nothing may follow the entry for '>'", boundary, "]"));
            }
            if boundary.is(">") {
                if last.is_none() {
                    return Err(problem("'>' needs a boundary before it", boundary, "a boundary in MiB"));
                }
                table.rest(n);
                complete = true;
                continue;
            }
            let mb = whole(&boundary.text).filter(|mb| mb.is_power_of_two() && *mb <= 32768);
            let Some(mb) = mb else {
                let allowed = "1, 2, 4, ... 32768 (MiB), or > for the rest";
                return Err(problem("the boundary is not a power of two", boundary, allowed));
            };
            if last.is_some_and(|last| mb <= last) {
                return Err(problem("the boundaries do not rise", boundary, "a larger power of two"));
            }
            table.class(mb, n);
            last = Some(mb);
        }
        if last.is_none() {
            let error = ConfigError::strict("the list is empty").at(&open.text, open.start);
            return Err(error.allowed("[MiB:divisions,...,>:divisions], or 0 to switch it off"));
        }
        Ok(table.value())
    }

    fn classes(&mut self, option: &'static OptionInfo) -> Result<OptionValue, ConfigError> {
        self.next("'['")?;
        let mut classes: Vec<(String, ReserveSize)> = Vec::new();
        let mut known = FxHashSet::default();
        while !self.list_ends(classes.is_empty())? {
            let name = self.word("a class name")?;
            if !known.insert(name.text.as_str()) {
                return Err(ConfigError::strict("the class is given twice").at(&name.text, name.start));
            }
            self.separator(":")?;
            let size = self.word("a reserve size")?;
            let Some(reserve) = reserve(&size.text) else {
                return Err(bad_value(option, size, "the value is not a reserve size"));
            };
            classes.push((name.text.clone(), reserve));
        }
        Ok(OptionValue::Classes(classes))
    }
}

fn bad_value(option: &'static OptionInfo, token: &Token, problem: &str) -> ConfigError {
    ConfigError::strict(problem).of(option.name).at(&token.text, token.start).allowed(option.strict_range())
}

/// Problem with a value, as precisely as can be told.
fn hint(kind: ValueKind, text: &str) -> &'static str {
    match kind {
        ValueKind::Switch if values::switch(&capitalised(text)).is_some() => {
            "booleans are written with a capital letter"
        }
        ValueKind::Switch => "the value is not a boolean",
        ValueKind::Megabytes | ValueKind::Count => {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            match (digits, text.len() - digits) {
                (0, _) => "the value is not a whole number",
                (_, 0) => "the number is too large",
                _ => "something follows the number; write it without unit or fraction",
            }
        }
        ValueKind::Ratio => "the value is not a number",
        ValueKind::Reserve => "the value is not a reserve size",
        ValueKind::Divisions => "the number of divisions is not a power of two",
        ValueKind::Classes => "the value is not a list",
        ValueKind::Backend => "there is no such backend",
        ValueKind::Policy => "there is no such policy",
        ValueKind::Release => "the decisions of this release are not known",
        ValueKind::CrossStream => "there is no such way to share",
        ValueKind::HostReserve if text.trim_end_matches(char::is_alphabetic) == "0" => "0 has no unit",
        ValueKind::Limit | ValueKind::HostReserve => MemoryLimit::parse(text).err().unwrap_or_default(),
        ValueKind::Path => "the path is not absolute",
    }
}

fn capitalised(text: &str) -> String {
    let mut text = text.to_ascii_lowercase();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// As [`values::reserve`], without a sign.
fn reserve(text: &str) -> Option<ReserveSize> {
    if text.starts_with('+') { None } else { values::reserve(text) }
}

/// 0 or a power of two.
fn divisions(text: &str) -> Option<u64> {
    whole(text).filter(|n| *n == 0 || n.is_power_of_two())
}
