//! The version a library reports and the ABI generation that follows from it.

use core::fmt;

/// What `hipRuntimeGetVersion` reports. The order is that of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The generation; the soname carries it.
    pub major: u32,
    /// The release in the generation.
    pub minor: u32,
    /// A build number, not ROCm's patch level.
    pub patch: u32,
}

impl Version {
    /// From the number that the driver reports: major × 10,000,000 + minor × 100,000 + patch.
    ///
    /// HIP 4 and older packed theirs otherwise and come out as major 0. `None` for a negative number.
    pub fn from_packed(packed: i32) -> Option<Version> {
        let packed = u32::try_from(packed).ok()?;
        Some(Version { major: packed / 10_000_000, minor: packed / 100_000 % 100, patch: packed % 100_000 })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// A set of libraries that share layouts and numbers; each has a module of declarations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// HIP 5: [`abi5`](crate::abi5).
    Five,
    /// HIP 6: [`abi6`](crate::abi6). Memory kinds and the property structs are not those of 5.
    Six,
    /// HIP 7 and, until its differences are known, anything newer: [`abi7`](crate::abi7). Whoever fills structs for a
    /// version above 7 should probe first.
    Seven,
}

impl Generation {
    /// The generation of a version; `None` for one older than 5.
    pub fn of(version: Version) -> Option<Generation> {
        match version.major {
            0..5 => None,
            5 => Some(Generation::Five),
            6 => Some(Generation::Six),
            7.. => Some(Generation::Seven),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_follows_the_major_number() {
        let of = |packed| Version::from_packed(packed).and_then(Generation::of);
        assert_eq!(of(50_221_153), Some(Generation::Five));
        assert_eq!(of(60_443_484), Some(Generation::Six));
        assert_eq!(of(71_460_850), Some(Generation::Seven));
        assert_eq!(of(80_000_000), Some(Generation::Seven));
        assert_eq!(of(40_000_000), None);
        assert_eq!(of(0), None);
        assert_eq!(of(-1), None);
    }

    #[test]
    fn version_is_unpacked_and_ordered() {
        let packed = |number| Version::from_packed(number).unwrap();
        assert_eq!(packed(71_460_850), Version { major: 7, minor: 14, patch: 60_850 });
        assert_eq!(packed(50_221_153).to_string(), "5.2.21153");
        assert!(packed(70_051_831) < packed(70_152_802));
        assert!(packed(70_152_802) < packed(71_460_850));
    }
}
