//! The version a library reports.

use core::fmt;

/// What `hipRuntimeGetVersion` reports. The order is that of releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The number that the soname carries.
    pub major: u32,
    /// The release under that number.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_unpacked_and_ordered() {
        let packed = |number| Version::from_packed(number).unwrap();
        assert_eq!(packed(71_460_850), Version { major: 7, minor: 14, patch: 60_850 });
        assert_eq!(packed(50_221_153).to_string(), "5.2.21153");
        assert!(packed(70_051_831) < packed(70_152_802));
        assert!(packed(70_152_802) < packed(71_460_850));
        assert_eq!(packed(40_000_000).major, 4);
        assert_eq!(Version::from_packed(-1), None);
    }
}
