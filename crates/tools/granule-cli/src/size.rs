//! Sizes on the command line.

use granule::round::size_text;
use std::fmt;
use std::str::FromStr;

/// A positive number of bytes, written `80GiB`, `1.5G`, `512MiB` or as plain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// A smaller number without a unit has lost it: no device, file or step is so small.
const LEAST: u64 = 1 << 20;

/// Why a text is no size.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum BadSize {
    #[error("a size begins with a number: write for example 80GiB, 512MiB or 85899345920")]
    NoNumber,
    #[error("'{0}' could mean powers of 1000 or of 1024: write {1}iB for powers of 1024, or plain bytes")]
    Ambiguous(String, char),
    #[error("'{0}' is no unit: use KiB, MiB, GiB, TiB (or K, M, G, T, in powers of 1024), or none for bytes")]
    Unit(String),
    #[error("a size cannot be negative")]
    Negative,
    #[error("{0} bytes are hardly meant: write {0}GiB or {0}MiB, or {0}b for bytes")]
    NoUnit(u64),
    #[error("a size must be more than 0 bytes")]
    Zero,
    #[error("a size must be less than 2^63 bytes")]
    TooLarge,
    #[error("a part of a byte cannot be had: add a unit, as in 1.5GiB")]
    PartOfAByte,
}

impl FromStr for Size {
    type Err = BadSize;

    fn from_str(text: &str) -> Result<Self, BadSize> {
        match Self::parse(text)? {
            Self(bytes) if bytes < LEAST && text.trim().parse::<u64>() == Ok(bytes) => {
                Err(BadSize::NoUnit(bytes))
            }
            size => Ok(size),
        }
    }
}

impl Size {
    /// As a text says, also where it is a few bytes: buffers of a table can be so small.
    pub(crate) fn parse(text: &str) -> Result<Self, BadSize> {
        let text = text.trim();
        if text.starts_with('-') {
            return Err(BadSize::Negative);
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim());
        let shift = shift(unit)?;
        let bytes = match number.parse::<u64>() {
            Ok(whole) => u128::from(whole) << shift,
            Err(_) if number.contains('.') => {
                if shift == 0 {
                    return Err(BadSize::PartOfAByte);
                }
                let value: f64 = number.parse().map_err(|_| BadSize::NoNumber)?;
                #[allow(
                    clippy::cast_precision_loss,
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss
                )]
                // The cast saturates, and what is too large is refused below.
                let bytes = (value * (1u64 << shift) as f64).round() as u128;
                bytes
            }
            Err(_) if number.is_empty() => return Err(BadSize::NoNumber),
            Err(_) => return Err(BadSize::TooLarge),
        };
        match u64::try_from(bytes) {
            Ok(0) => Err(BadSize::Zero),
            Ok(bytes) if bytes <= i64::MAX as u64 => Ok(Self(bytes)),
            _ => Err(BadSize::TooLarge),
        }
    }
}

fn shift(unit: &str) -> Result<u32, BadSize> {
    let lower = unit.to_ascii_lowercase();
    Ok(match lower.as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        "kb" | "mb" | "gb" | "tb" => {
            let letter = lower.chars().next().unwrap_or_default().to_ascii_uppercase();
            return Err(BadSize::Ambiguous(unit.into(), letter));
        }
        _ => return Err(BadSize::Unit(unit.chars().take(16).collect())),
    })
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size_text(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::{BadSize, Size};

    fn bytes(text: &str) -> Result<u64, BadSize> {
        text.parse().map(|Size(bytes)| bytes)
    }

    #[test]
    fn units_are_powers_of_1024() {
        assert_eq!(bytes("85899345920"), Ok(80 << 30));
        assert_eq!(bytes("80GiB"), Ok(80 << 30));
        assert_eq!(bytes("80G"), Ok(80 << 30));
        assert_eq!(bytes(" 512 mib "), Ok(512 << 20));
        assert_eq!(bytes("1.5k"), Ok(1536));
        assert_eq!(bytes("2TiB"), Ok(2 << 40));
        assert_eq!(bytes("7b"), Ok(7));
    }

    #[test]
    fn bad_sizes_say_what_is_wrong() {
        assert_eq!(bytes(""), Err(BadSize::NoNumber));
        assert_eq!(bytes("GiB"), Err(BadSize::NoNumber));
        assert_eq!(bytes("-1GiB"), Err(BadSize::Negative));
        assert_eq!(bytes("-5"), Err(BadSize::Negative));
        assert_eq!(bytes("24"), Err(BadSize::NoUnit(24)));
        assert!(BadSize::NoUnit(24).to_string().contains("write 24GiB"));
        assert_eq!(bytes("1.2.3G"), Err(BadSize::NoNumber));
        assert_eq!(bytes("0"), Err(BadSize::Zero));
        assert_eq!(bytes("80GB"), Err(BadSize::Ambiguous("GB".into(), 'G')));
        assert_eq!(bytes("80 parsecs"), Err(BadSize::Unit("parsecs".into())));
        assert_eq!(bytes("1.5"), Err(BadSize::PartOfAByte));
        assert_eq!(bytes("99999999999999999999"), Err(BadSize::TooLarge));
        assert_eq!(bytes("99999999999999.5TiB"), Err(BadSize::TooLarge));
        assert_eq!(bytes("16777216TiB"), Err(BadSize::TooLarge));
    }
}
