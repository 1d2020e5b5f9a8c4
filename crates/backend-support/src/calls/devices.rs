//! Devices.

use crate::driver::{Driver, Site};
use backend_api::{Attribute, Result};
use std::ffi::{CStr, c_char, c_int, c_uint};

/// Where the answer to an attribute is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeSource {
    /// The driver is asked under this number.
    Asked(c_uint),
    /// It is the same for all devices of this driver.
    Known(i64),
    /// Nobody says.
    None,
}

/// Questions about devices.
pub trait DeviceCalls: Driver {
    /// Where an attribute's answer is found.
    fn attribute_source(&self, attribute: Attribute) -> AttributeSource;

    /// What has no number for an attribute: the API, and perhaps its version.
    fn api(&self) -> String;

    /// An attribute by its number.
    fn ask_attribute(site: Site<'_, Self>, number: c_uint) -> Result<c_int>;

    /// Whether the site's device has something; not where nobody says.
    fn has_attribute(site: Site<'_, Self>, attribute: Attribute) -> bool {
        match site.driver().attribute_source(attribute) {
            AttributeSource::Asked(number) => Self::ask_attribute(site, number).is_ok_and(|value| value != 0),
            AttributeSource::Known(value) => value != 0,
            AttributeSource::None => false,
        }
    }

    /// The name of the device.
    fn device_name(site: Site<'_, Self>) -> Result<String>;

    /// The bytes of its memory.
    fn total_memory(site: Site<'_, Self>) -> Result<u64>;

    /// Absent where the driver has no such function; a failure of one that it has is an error.
    fn uuid(site: Site<'_, Self>) -> Result<Option<[u8; 16]>>;

    /// Absent where the driver has no such function; a failure of one that it has is an error.
    fn pci_bus_id(site: Site<'_, Self>) -> Result<Option<String>>;

    /// Whether the device's primary context exists.
    fn has_primary_context(site: Site<'_, Self>) -> Result<bool>;

    /// Waits for the current device.
    fn synchronize(site: Site<'_, Self>) -> Result<()>;
}

/// The text in a buffer, up to the zero or to the end.
#[must_use]
pub fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or_else(
        |_| String::from_utf8_lossy(&bytes).into_owned(),
        |text| text.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_at_the_zero_or_at_the_end() {
        assert_eq!(text(&[72, 50, 0, 7]), "H2");
        assert_eq!(text(&[72, 50]), "H2");
    }
}
