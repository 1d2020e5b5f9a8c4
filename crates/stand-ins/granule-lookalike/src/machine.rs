//! The one machine of the process.

use crate::settings::Settings;
use backend_openreg::OpenReg;
use std::sync::{Arc, OnceLock};

/// What the environment asks for, read at the first call.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn settings() -> Result<&'static Settings, &'static str> {
    static SETTINGS: OnceLock<Result<Settings, String>> = OnceLock::new();
    SETTINGS.get_or_init(Settings::from_environment).as_ref().map_err(String::as_str)
}

/// The machine of this process; made from the environment at the first call, never destroyed.
///
/// # Errors
/// A sentence that says what is wrong with the settings, or why the machine could not be made.
pub fn machine() -> Result<&'static Arc<OpenReg>, &'static str> {
    static MACHINE: OnceLock<Result<Arc<OpenReg>, String>> = OnceLock::new();
    let made =
        MACHINE.get_or_init(|| OpenReg::new(settings()?.config.clone()).map_err(|error| error.to_string()));
    made.as_ref().map_err(String::as_str)
}
