//! Where a recording goes, what is in it, and how much of it is kept.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A recording as it is asked for: of Granule by [`Recorder`](super::Recorder), of PyTorch's own allocator by the
/// command `granule record`. [`FromStr`] reads it from a text, and [`Display`](fmt::Display) writes it. The text is
/// `DIRECTORY[,key=value]...`:
///
/// | key | value (default) | meaning |
/// |---|---|---|
/// | `rotate` | `256MiB` | the size at which a file is followed by the next |
/// | `keep` | a number (8) | how many files are kept, the newest; 0 keeps all |
/// | `max_entries` | a number (200000) | entries of the history that snapshots have |
/// | `stacks` | `none`, `python`, `all` (`python`) | which stacks are recorded with them |
/// | `on_oom` | `True`, `False` (`False`) | files are left only where a request failed for want of memory |
///
/// Units are binary: `256M` is `256MiB`. A directory's name has no comma.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Where files go. It is made if it is not there.
    pub directory: PathBuf,
    /// Bytes at which a file is followed by the next; `None` leaves it to the recorder.
    pub rotate: Option<u64>,
    /// How many files are kept, the newest; 0 keeps all.
    pub keep: usize,
    /// Entries of the history that snapshots have; `None` leaves it to the recorder.
    pub max_entries: Option<usize>,
    /// Which stacks are recorded with the history.
    pub stacks: Stacks,
    /// Files are left only where a request failed for want of memory.
    pub on_oom: bool,
}

/// Which stacks are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    /// None.
    None,
    /// Those of the Python program.
    #[default]
    Python,
    /// Those of C++, too.
    All,
}

impl Stacks {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 3] =
        [("none", Self::None), ("python", Self::Python), ("all", Self::All)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, stacks)| *stacks == self).map_or("", |(name, _)| name)
    }
}

/// A text that asks for no recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRecordOptions {
    /// It names no directory.
    #[error("a recording begins with the directory that it goes to, as in recording,rotate=64MiB,keep=4")]
    NoDirectory,
    /// A word that is none of the options.
    #[error(
        "'{0}' is no option of a recording: there are rotate=SIZE, keep=N, max_entries=N, stacks=none|python|all and \
         on_oom=True|False (and the directory's name has no comma)"
    )]
    Unknown(String),
    /// An option with a value that it cannot have.
    #[error("'{word}': {expected}")]
    Value {
        /// The option and its value.
        word: String,
        /// What it can have.
        expected: &'static str,
    },
}

impl RecordOptions {
    /// A recording with the usual limits.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            rotate: None,
            keep: 8,
            max_entries: None,
            stacks: Stacks::default(),
            on_oom: false,
        }
    }

    fn set(&mut self, word: &str) -> Result<(), BadRecordOptions> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let (key, value) = (key.trim(), value.trim());
        let expected = match key {
            "rotate" => match bytes(value) {
                Some(bytes) => {
                    self.rotate = Some(bytes);
                    return Ok(());
                }
                None => "a size is a number and a unit, as in 256MiB (units are KiB, MiB, GiB, TiB)",
            },
            "keep" | "max_entries" => match value.parse() {
                Ok(number) if key == "keep" => {
                    self.keep = number;
                    return Ok(());
                }
                Ok(number) if number > 0 => {
                    self.max_entries = Some(number);
                    return Ok(());
                }
                _ => "it is a whole number",
            },
            "stacks" => match Stacks::ALL.iter().find(|(name, _)| *name == value) {
                Some((_, stacks)) => {
                    self.stacks = *stacks;
                    return Ok(());
                }
                None => "stacks are none, python or all",
            },
            "on_oom" => match value {
                "True" | "False" => {
                    self.on_oom = value == "True";
                    return Ok(());
                }
                _ => "it is True or False",
            },
            _ => return Err(BadRecordOptions::Unknown(word.trim().into())),
        };
        Err(BadRecordOptions::Value { word: word.trim().into(), expected })
    }
}

impl FromStr for RecordOptions {
    type Err = BadRecordOptions;

    fn from_str(text: &str) -> Result<Self, BadRecordOptions> {
        let mut words = text.split(',');
        let directory = words.next().map(str::trim).filter(|directory| !directory.is_empty());
        let mut options = Self::new(directory.ok_or(BadRecordOptions::NoDirectory)?);
        words.try_for_each(|word| options.set(word))?;
        Ok(options)
    }
}

impl fmt::Display for RecordOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.directory.display())?;
        if let Some(bytes) = self.rotate {
            write!(f, ",rotate={bytes}")?;
        }
        write!(f, ",keep={}", self.keep)?;
        if let Some(entries) = self.max_entries {
            write!(f, ",max_entries={entries}")?;
        }
        write!(f, ",stacks={}", self.stacks.name())?;
        if self.on_oom { f.write_str(",on_oom=True") } else { Ok(()) }
    }
}

/// A positive number of bytes.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let all = RecordOptions {
            rotate: Some(3 << 20),
            keep: 0,
            max_entries: Some(5),
            stacks: Stacks::None,
            on_oom: true,
            ..RecordOptions::new("some/where")
        };
        for options in [RecordOptions::new("here"), all] {
            assert_eq!(options.to_string().parse(), Ok(options));
        }
    }

    #[test]
    fn words_may_have_spaces_and_units() {
        let read: RecordOptions = " there , rotate = 64 MiB ,keep=2".parse().unwrap();
        assert_eq!(read, RecordOptions { rotate: Some(64 << 20), keep: 2, ..RecordOptions::new("there") });
    }

    #[test]
    fn errors_name_the_word_and_what_is_allowed() {
        let refused = |text: &str| text.parse::<RecordOptions>().unwrap_err().to_string();
        assert!(refused("").contains("directory"));
        assert!(refused(",keep=1").contains("directory"));
        for (text, word, allowed) in [
            ("d,rotate=256MB", "rotate=256MB", "256MiB"),
            ("d,rotate=0", "rotate=0", "256MiB"),
            ("d,keep=-1", "keep=-1", "whole number"),
            ("d,max_entries=0", "max_entries=0", "whole number"),
            ("d,stacks=c++", "stacks=c++", "none, python or all"),
            ("d,on_oom=1", "on_oom=1", "True or False"),
            ("d,rotat=1", "rotat=1", "rotate=SIZE"),
            ("a,b", "b", "no comma"),
        ] {
            let said = refused(text);
            assert!(said.contains(word) && said.contains(allowed), "{text}: {said}");
        }
    }
}
