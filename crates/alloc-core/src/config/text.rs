//! Settings written back as text.

use super::options::{Grammar, OptionInfo};
use super::{ConfigError, Flavour, Parsed, Settings, options, pytorch, strict};

/// Settings that no text can express. An example is a limit that is not a whole number of MiB.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} has a value that cannot be written as text; round it to what the option allows")]
pub struct Inexpressible {
    /// The option.
    pub option: &'static str,
}

impl Settings {
    /// The shortest text in PyTorch's grammar that makes the defaults into these settings: options that have
    /// their default are left out. Granule's own options and [`Settings::text`] are not in it.
    ///
    /// # Errors
    /// If a value cannot be written (it was set by hand to a value that no text gives).
    pub fn to_text(&self) -> Result<String, Inexpressible> {
        self.only(Grammar::Pytorch).read_back(|text, from| pytorch::parse(text, from, Flavour::Cuda))
    }

    /// The same for the strict grammar, with Granule's own options.
    ///
    /// # Errors
    /// As [`to_text`](Self::to_text).
    pub fn to_strict_text(&self) -> Result<String, Inexpressible> {
        self.to_text()?;
        self.read_back(strict::parse)
    }

    /// The options of one grammar, with the others at their defaults.
    #[must_use]
    pub fn only(&self, grammar: Grammar) -> Self {
        let mut only = Self::default();
        options().iter().filter(|o| o.grammar == grammar).for_each(|o| (o.field.copy)(&mut only, self));
        only
    }

    /// The names of PyTorch's options in which `other` differs from these, in the order in which help texts list them.
    ///
    /// An option that merely follows another, as `max_non_split_rounding_mb` follows `large_segment_size_mb` where it
    /// is not set, is not named. Granule's own options are not looked at.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differs =
            |o: &OptionInfo| (o.field.differs)(self, other) && !(o.is_default(self) && o.is_default(other));
        let pytorchs = options().iter().filter(|o| o.grammar == Grammar::Pytorch);
        pytorchs.filter(|o| differs(o)).map(|o| o.name).collect()
    }

    /// Every option that has not its default, if reading the text gives these settings again.
    fn read_back(
        &self,
        read: impl Fn(&str, &Self) -> Result<Parsed, ConfigError>,
    ) -> Result<String, Inexpressible> {
        let changed = options().iter().filter(|o| !o.is_default(self));
        let text =
            changed.map(|o| format!("{}:{}", o.name, (o.field.written)(self))).collect::<Vec<_>>().join(",");
        let unwritten = match read(&text, &Self::default()) {
            Ok(back) => options().iter().find(|o| (o.field.differs)(self, &back.settings)).map(|o| o.name),
            Err(error) => {
                Some(options().iter().find(|o| error.option() == Some(o.name)).map_or("", |o| o.name))
            }
        };
        unwritten.map_or(Ok(text), |option| Err(Inexpressible { option }))
    }
}
