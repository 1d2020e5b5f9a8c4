//! PyTorch's grammar as its parsers implement it, not as it is documented.
//!
//! A text is read in three passes, and the order of errors depends on that:
//!
//! 1. the large segment size, wherever its name stands, because other options are measured against it;
//! 2. the options that all accelerators share;
//! 3. the options of the CUDA allocator.
//!
//! The second and the third pass step over each other's options. Separators are told by position, whatever character
//! stands there. A text that PyTorch takes is taken, and whatever is dubious about it becomes a warning.

use super::number::{self, NotANumber};
use super::options::{Grammar, Key, OptionInfo, OwnedBy, UNLIMITED, find, nearest, row, without_effect};
use super::refusals::{ConfigError, ExceptionClass, Warning, clip};
use super::tokens::{Token, inner_spaces, tokens};
use super::values::{self, DivisionTable, MAX_MB, OptionValue, ValueKind};
use super::{AllocatorBackend, Flavour, Parsed, ReserveSize, Settings};
use crate::types::MIB;
use rustc_hash::FxHashMap;

/// More warnings than this about one text say nothing new.
const MAX_WARNINGS: usize = 64;

/// Options that fall back to their defaults unless a text names them.
const RESET: [Key; 4] = [
    Key::MaxSplitSize,
    Key::MaxNonSplitRounding,
    Key::GarbageCollectionThreshold,
    Key::RoundupPower2Divisions,
];

/// Reads `text` as PyTorch 2.15 does when a program passes it to `_accelerator_setAllocatorSettings`.
///
/// As there, `max_split_size_mb`, `max_non_split_rounding_mb`, `garbage_collection_threshold` and
/// `roundup_power2_divisions` fall back to their defaults unless the text names them; other options keep their values
/// from `previous`. Unlike in PyTorch, nothing changes when there is an error: keep `previous` then.
///
/// A change of `backend` is not judged here; see [`Settings::check_backend_change`]. Does not block.
///
/// # Errors
/// Where PyTorch raises an exception, with its class and text; and on a text of more than 64 KiB.
pub fn parse(text: &str, previous: &Settings, flavour: Flavour) -> Result<Parsed, ConfigError> {
    parse_in(text, previous, flavour, [OwnedBy::Common, OwnedBy::Device])
}

/// Reads a text from the environment. There the CUDA parser is the first to run, so it reports unknown keys.
pub(super) fn parse_environment(
    text: &str,
    previous: &Settings,
    flavour: Flavour,
) -> Result<Parsed, ConfigError> {
    parse_in(text, previous, flavour, [OwnedBy::Device, OwnedBy::Common])
}

fn parse_in(
    text: &str,
    previous: &Settings,
    flavour: Flavour,
    order: [OwnedBy; 2],
) -> Result<Parsed, ConfigError> {
    let tokens = tokens(text)?;
    let mut settings = Settings { text: text.to_owned(), ..previous.clone() };
    RESET.iter().for_each(|key| (row(*key).field.copy)(&mut settings, &Settings::default()));
    let mut parser = Parser { tokens: &tokens, settings, flavour, named: Vec::new(), warnings: Vec::new() };
    inner_spaces(&tokens).for_each(|w| parser.warn(w));
    for owner in order {
        if owner == OwnedBy::Common {
            parser.large_segment_pass()?;
        }
        parser.pass(owner)?;
    }
    parser.resets(previous);
    without_effect(&parser.settings, &parser.named).into_iter().for_each(|w| parser.warn(w));
    Ok(Parsed { settings: parser.settings, warnings: parser.warnings })
}

struct Parser<'t> {
    tokens: &'t [Token],
    settings: Settings,
    flavour: Flavour,
    named: Vec<Key>,
    warnings: Vec<Warning>,
}

impl<'t> Parser<'t> {
    /// Passes walk over the same separators, so a warning may come up twice.
    fn warn(&mut self, warning: Warning) {
        if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn token(&self, index: usize) -> Result<&'t Token, ConfigError> {
        self.tokens.get(index).ok_or_else(|| {
            let error =
                ConfigError::new(ExceptionClass::RuntimeError, "Index out of bounds in ConfigTokenizer");
            let last = self.tokens.last();
            let error = last.map_or(error.clone(), |last| error.at(&last.text, last.start));
            error
                .because("the text ends where more is expected")
                .allowed("key:value,key:value,... or key:[item:value,...]")
        })
    }

    /// Steps over the separator at `index`.
    fn separator(&mut self, index: usize, expected: &'static str) -> Result<(), ConfigError> {
        let token = self.token(index)?;
        if !token.is(expected) {
            self.warn(Warning::Separator { expected, found: clip(&token.text), position: token.start });
        }
        Ok(())
    }

    fn large_segment_pass(&mut self) -> Result<(), ConfigError> {
        let option = row(Key::LargeSegmentSize);
        for at in 0..self.tokens.len() {
            if self.tokens[at].is(option.name) {
                self.option(at, option).map_err(|e| e.of(option.name))?;
            }
        }
        self.settings.max_non_split_rounding = self.settings.large_segment_size;
        Ok(())
    }

    /// One parser's walk over the text.
    fn pass(&mut self, owner: OwnedBy) -> Result<(), ConfigError> {
        let mut at = 0;
        while at < self.tokens.len() {
            let key = &self.tokens[at];
            let option = find(&key.text).filter(|o| o.grammar == Grammar::Pytorch);
            let Some(option) = option else { return Err(unknown_key(key, owner)) };
            at = if option.owner == owner && option.key != Key::LargeSegmentSize {
                self.option(at, option)
            } else {
                self.skip(at)
            }
            .map_err(|e| e.of(option.name))?;
            if at + 1 < self.tokens.len() {
                at += 1;
                self.separator(at, ",")?;
            }
            at += 1;
        }
        Ok(())
    }

    /// Steps over another parser's option: the index of the last token of its value.
    fn skip(&mut self, key: usize) -> Result<usize, ConfigError> {
        self.separator(key + 1, ":")?;
        let value = key + 2;
        if !self.token(value)?.is("[") {
            return Ok(value);
        }
        let length = self.tokens[value..].iter().position(|t| t.is("]"));
        length.map(|length| value + length).ok_or_else(unclosed)
    }

    /// Reads and stores an option's value: the index of its last token.
    fn option(&mut self, key: usize, option: &'static OptionInfo) -> Result<usize, ConfigError> {
        if self.named.contains(&option.key) {
            self.warn(Warning::Duplicate { option: option.name });
        } else {
            self.named.push(option.key);
        }
        self.separator(key + 1, ":")?;
        let at = key + 2;
        let (value, last) = match option.kind {
            ValueKind::Divisions => self.divisions(at, option)?,
            ValueKind::Classes => self.classes(at)?,
            kind => match self.scalar(at, option, kind)? {
                Some(value) => (value, at),
                None => return Ok(at),
            },
        };
        if let Some(text) = (option.refuse)(&value, self.settings.large_segment_size / MIB) {
            let token = self.token(at)?;
            return Err(value_error(text, "the value is out of range", token).allowed(option.range));
        }
        // A limit so high is none, as it is meant; vLLM writes such ones.
        let limit = option.default == UNLIMITED || option.key == Key::MaxNonSplitRounding;
        if matches!(value, OptionValue::Megabytes(mb) if mb > MAX_MB && !limit) {
            self.warn(Warning::Saturated { option: option.name, limit_mb: MAX_MB });
        }
        (option.field.store)(&mut self.settings, value);
        Ok(last)
    }

    /// A value of one token; `None` for a reserve size that PyTorch warns about and passes over.
    fn scalar(
        &mut self,
        at: usize,
        option: &'static OptionInfo,
        kind: ValueKind,
    ) -> Result<Option<OptionValue>, ConfigError> {
        let token = self.token(at)?;
        let value = match kind {
            ValueKind::Backend => OptionValue::Backend(self.backend(token)?),
            ValueKind::Megabytes => OptionValue::Megabytes(self.whole(token, option)?),
            ValueKind::Count => OptionValue::Count(self.whole(token, option)?),
            ValueKind::Ratio => OptionValue::Ratio(self.fraction(token, option)?),
            ValueKind::Reserve => match self.reserve(token) {
                Some(size) => OptionValue::Reserve(Some(size)),
                None => return Ok(None),
            },
            ValueKind::Switch
            | ValueKind::Divisions
            | ValueKind::Classes
            | ValueKind::Policy
            | ValueKind::Release
            | ValueKind::CrossStream
            | ValueKind::Limit
            | ValueKind::HostReserve
            | ValueKind::Path => {
                let text = || {
                    format!(
                        "Expected 'True' or 'False' at index {at} in ConfigTokenizer but got '{}'",
                        token.text
                    )
                };
                let value = values::switch(&token.text);
                OptionValue::Switch(value.ok_or_else(|| {
                    value_error(text(), "the value is not a boolean", token).allowed("True or False")
                })?)
            }
        };
        Ok(Some(value))
    }

    fn backend(&self, token: &Token) -> Result<AllocatorBackend, ConfigError> {
        AllocatorBackend::from_name(&token.text, self.flavour).ok_or_else(|| {
            let names = AllocatorBackend::names(self.flavour);
            let text = format!("Unknown allocator backend, options are {names}");
            value_error(text, "there is no such backend", token).allowed(names)
        })
    }

    fn whole(&mut self, token: &Token, option: &OptionInfo) -> Result<u64, ConfigError> {
        let read = number::whole(&token.text).map_err(|e| not_a_number(e, "stoull", token, option))?;
        self.garbage(token, option, read.length, read.value);
        if token.text.starts_with('-') && read.value != 0 {
            let token = clip(&token.text);
            self.warn(Warning::Negative { option: option.name, token, read_as: read.value });
        }
        Ok(read.value)
    }

    fn fraction(&mut self, token: &Token, option: &OptionInfo) -> Result<f64, ConfigError> {
        let read = number::fraction(&token.text).map_err(|e| not_a_number(e, "stod", token, option))?;
        self.garbage(token, option, read.length, read.value);
        Ok(read.value)
    }

    fn garbage(&mut self, token: &Token, option: &OptionInfo, read: usize, value: impl ToString) {
        if read < token.text.len() {
            let (token, read_as) = (clip(&token.text), value.to_string());
            self.warn(Warning::TrailingGarbage { option: option.name, token, read_as });
        }
    }

    fn reserve(&mut self, token: &Token) -> Option<ReserveSize> {
        let size = values::reserve(&token.text);
        if size.is_none() {
            self.warn(Warning::InvalidReserve { token: clip(&token.text) });
        }
        size
    }

    /// `4` or `[256:1,512:2,>:8]`.
    fn divisions(
        &mut self,
        at: usize,
        option: &'static OptionInfo,
    ) -> Result<(OptionValue, usize), ConfigError> {
        let token = self.token(at)?;
        if !token.is("[") {
            let divisions = self.whole(token, option)?;
            if !divisions.is_power_of_two() {
                let text = "For roundups, the divisions has to be power of 2 ";
                return Err(value_error(text, "the number of divisions is not a power of two", token)
                    .allowed(option.range));
            }
            return Ok((OptionValue::Divisions([divisions; 16]), at));
        }
        let mut table = DivisionTable::new();
        let mut at = at + 1;
        while let Some(boundary) = self.tokens.get(at).filter(|t| !t.is("]")) {
            self.separator(at + 1, ":")?;
            let token = self.token(at + 2)?;
            let divisions = self.whole(token, option)?;
            if divisions != 0 && !divisions.is_power_of_two() {
                let text = "For roundups, the divisions has to be power of 2 or 0 to disable roundup ";
                return Err(value_error(text, "the number of divisions is not a power of two", token)
                    .allowed("0, 1, 2, 4, 8, ..."));
            }
            if boundary.is(">") {
                table.rest(divisions);
            } else {
                let boundary_mb = self.whole(boundary, option)?;
                if !boundary_mb.is_power_of_two() {
                    let text = "For roundups, the intervals have to be power of 2 ";
                    return Err(value_error(text, "the boundary is not a power of two", boundary)
                        .allowed("1, 2, 4, ... 32768 (MiB), or >"));
                }
                table.class(boundary_mb, divisions);
            }
            at += 3;
            if !self.token(at)?.is("]") {
                self.separator(at, ",")?;
                at += 1;
            }
        }
        if at >= self.tokens.len() {
            return Err(unclosed());
        }
        Ok((table.value(), at))
    }

    /// `[name:0.5,other:40G]`. A comma after an entry is stepped over, anything else begins the next one.
    fn classes(&mut self, at: usize) -> Result<(OptionValue, usize), ConfigError> {
        self.separator(at, "[")?;
        let mut classes: Vec<(String, ReserveSize)> = Vec::new();
        let mut known = FxHashMap::default();
        let mut at = at + 1;
        loop {
            let name = self.token(at)?;
            if name.is("]") {
                return Ok((OptionValue::Classes(classes), at));
            }
            self.separator(at + 1, ":")?;
            let size = self.token(at + 2)?;
            if let Some(size) = self.reserve(size) {
                let place = *known.entry(name.text.as_str()).or_insert(classes.len());
                if place == classes.len() {
                    classes.push((name.text.clone(), size));
                } else {
                    classes[place].1 = size;
                    self.warn(Warning::Duplicate { option: row(Key::ExpandableSegmentsReserveByClass).name });
                }
            }
            at += 3;
            if self.tokens.get(at).is_some_and(|t| t.is(",")) {
                at += 1;
            } else if let Some(token) = self.tokens.get(at).filter(|t| !t.is("]")) {
                let (found, position) = (clip(&token.text), token.start);
                self.warn(Warning::Separator { expected: ",", found, position });
            }
        }
    }

    /// Says which earlier options this text silently put back.
    fn resets(&mut self, previous: &Settings) {
        let gone =
            RESET.map(row).into_iter().filter(|o| !o.is_default(previous) && !self.named.contains(&o.key));
        let options: Vec<_> = gone.map(|o| o.name).collect();
        if !options.is_empty() {
            self.warn(Warning::Reset { options });
        }
    }
}

fn value_error(pytorch: impl Into<String>, problem: &str, token: &Token) -> ConfigError {
    ConfigError::new(ExceptionClass::ValueError, pytorch).because(problem).at(&token.text, token.start)
}

fn unclosed() -> ConfigError {
    let text = "Expected closing bracket ']' in ConfigTokenizer but reached end of config";
    ConfigError::new(ExceptionClass::RuntimeError, text)
        .because("the list is not closed")
        .allowed("] at its end")
}

/// PyTorch passes on what the C++ library throws, whose whole text is the name of its function.
fn not_a_number(error: NotANumber, function: &str, token: &Token, option: &OptionInfo) -> ConfigError {
    let (class, problem) = match error {
        NotANumber::Invalid => (ExceptionClass::ValueError, "the value is not a number"),
        NotANumber::OutOfRange => (ExceptionClass::IndexError, "the number is out of range"),
    };
    ConfigError::new(class, function).because(problem).at(&token.text, token.start).allowed(option.range)
}

fn unknown_key(key: &Token, owner: OwnedBy) -> ConfigError {
    let parser = if owner == OwnedBy::Device { "CUDA" } else { "Accelerator" };
    let text = format!("Unrecognized key '{}' in {parser} allocator config.", key.text);
    let error = value_error(text, "there is no such option", key);
    if let Some(own) = find(&key.text) {
        return error.because(format!("{} is Granule's own option; set it in GRANULE_CONF", own.name));
    }
    match (nearest(&key.text, Grammar::Pytorch), nearest(&key.text, Grammar::Granule)) {
        (None, Some(own)) => error
            .because("PyTorch has no such option, and Granule's own go into GRANULE_CONF")
            .meant(Some(own)),
        (near, _) => error.meant(near),
    }
}
