//! A limit on memory: bytes with a unit, or a share of the device.

use super::plain::{ratio, shortest, whole};
use crate::types::{GIB, MIB};
use std::fmt;

/// Limit of the memory that may be held of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryLimit {
    /// A share of the device's memory, over 0 and up to 1.
    Fraction(f64),
    /// Bytes, at least 1.
    Bytes(u64),
}

/// Default of `host_reserve` on a host with `total` bytes: 2 GiB or 5 %, whichever is more, but at most a quarter:
/// under 8 GiB, 2 GiB would leave programs little, or nothing.
#[must_use]
pub fn usual_host_reserve(total: u64) -> u64 {
    (total / 20).max(2 * GIB).min(total / 4)
}

/// The units, largest first. All are binary: `40G` is `40GiB`, as in PyTorch's reserve sizes.
const UNITS: [(&str, &str, u64); 5] =
    [("TiB", "T", 1 << 40), ("GiB", "G", GIB), ("MiB", "M", MIB), ("KiB", "K", 1 << 10), ("B", "B", 1)];

impl MemoryLimit {
    /// Bytes on a device with `total` bytes of memory. Bytes stay as they are, also where they exceed `total`.
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        match self {
            #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
            Self::Fraction(share) => ((total as f64 * share) as u64).min(total),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// True if a text could give it.
    pub(crate) fn is_sound(self) -> bool {
        match self {
            Self::Fraction(share) => share > 0.0 && share <= 1.0,
            Self::Bytes(bytes) => bytes > 0,
        }
    }

    /// True if on any device `other` is reached first. Bytes and a share cannot be compared without a device.
    pub(super) fn is_beyond(self, other: Self) -> bool {
        match (self, other) {
            (Self::Fraction(share), Self::Fraction(other)) => share >= other,
            (Self::Bytes(bytes), Self::Bytes(other)) => bytes >= other,
            _ => false,
        }
    }

    /// Reads a limit; the error says what is wrong in one clause.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &text[number.len()..];
        let value = ratio(number).ok_or("the value is not a memory limit")?;
        if value == 0.0 {
            return Err("nothing could be allocated; write unlimited to have no limit");
        }
        let limit = match UNITS.iter().find(|(long, short, _)| unit == *long || unit == *short) {
            Some((.., scale)) => Self::Bytes(scaled(number, value, *scale).ok_or("the number is too large")?),
            None if !unit.is_empty() => return Err(unknown_unit(unit)),
            None if value > 1.0 => return Err("the number has no unit"),
            None => Self::Fraction(value),
        };
        if limit.is_sound() { Ok(limit) } else { Err("the limit is below one byte") }
    }
}

/// Whole numbers exactly, others to the byte below.
#[allow(clippy::cast_precision_loss, clippy::cast_sign_loss, clippy::cast_possible_truncation)]
fn scaled(number: &str, value: f64, scale: u64) -> Option<u64> {
    if number.bytes().all(|b| b.is_ascii_digit()) {
        return whole(number)?.checked_mul(scale);
    }
    let bytes = value * scale as f64;
    (bytes < u64::MAX as f64).then_some(bytes as u64)
}

fn unknown_unit(unit: &str) -> &'static str {
    match unit.to_ascii_lowercase().as_str() {
        "kb" | "mb" | "gb" | "tb" => "units are binary here; write GiB or G, not GB",
        known
            if UNITS.iter().any(|(long, short, _)| {
                long.eq_ignore_ascii_case(known) || short.eq_ignore_ascii_case(known)
            }) =>
        {
            "units are written with capital letters, as in GiB or G"
        }
        _ => "there is no such unit",
    }
}

/// As it is written in a text: the largest unit that gives a whole number.
impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction(share) => f.write_str(&shortest(*share)),
            Self::Bytes(bytes) => {
                let unit = UNITS.iter().find(|(.., scale)| bytes.is_multiple_of(*scale) && *bytes > 0);
                let (unit, _, scale) = unit.unwrap_or(&("B", "B", 1));
                write!(f, "{}{unit}", bytes / scale)
            }
        }
    }
}
