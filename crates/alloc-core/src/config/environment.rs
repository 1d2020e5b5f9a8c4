//! Environment variables that hold settings, and their precedence.

use super::options::without_effect;
use super::refusals::{ConfigError, Warning};
use super::tokens::tokens;
use super::{AllocatorBackend, Flavour, Parsed, Settings, pytorch, strict};
use std::env::VarError;

/// PyTorch's variables. The first that is set counts, and the others are ignored.
pub const PYTORCH_VARIABLES: [&str; 3] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
/// Granule's variable, read on top of PyTorch's.
pub const GRANULE_VARIABLE: &str = "GRANULE_CONF";
/// Variables that switch caching off where their value is exactly `1`. PyTorch ignores every other value, `True` too.
pub const BYPASS_VARIABLES: [&str; 2] = ["PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"];
/// PyTorch's variable for `segments_ipc`: 0, false, no, off and n switch it off, in any case; everything else is on.
pub const SEGMENTS_IPC_VARIABLE: &str = "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC";

/// Reads the settings, and the switch of caching, from variables. It starts from the defaults. `lookup` gives a
/// variable's value, `None` if it is not set. Does not block.
///
/// # Errors
/// From whichever grammar refuses its text; [`ConfigError::variable`] says which variable it was.
pub fn read(lookup: impl Fn(&str) -> Option<String>, flavour: Flavour) -> Result<Parsed, ConfigError> {
    let caching = !caching_disabled(&lookup);
    let settings = Settings { caching, segments_ipc: !is_off(&lookup), ..Settings::default() };
    let mut parsed = Parsed { settings, warnings: Vec::new() };
    if let Some((used, text, ignored)) = chosen(&lookup) {
        parsed =
            pytorch::parse_environment(&text, &parsed.settings, flavour).map_err(|e| e.in_variable(used))?;
        if !ignored.is_empty() {
            parsed.warnings.push(Warning::SeveralVariables { used, ignored });
        }
    }
    if let Some(text) = lookup(GRANULE_VARIABLE) {
        let below = parsed.settings.text.clone();
        let own = strict::parse(&text, &parsed.settings).map_err(|e| e.in_variable(GRANULE_VARIABLE))?;
        // An option that does nothing in one text may do something together with the other.
        let every: Vec<_> = super::options().iter().map(|o| o.key).collect();
        let idle = without_effect(&own.settings, &every);
        parsed
            .warnings
            .retain(|w| !matches!(w, Warning::NoEffect { .. } | Warning::Harm { .. }) || idle.contains(w));
        parsed.warnings.retain(|w| !own.warnings.contains(w));
        parsed.warnings.extend(own.warnings);
        parsed.settings = own.settings;
        if !below.is_empty() {
            parsed.settings.text = if text.is_empty() { below } else { format!("{below},{text}") };
        }
    }
    Ok(parsed)
}

/// [`read`] from this process's environment.
///
/// # Errors
/// As [`read`].
pub fn from_env(flavour: Flavour) -> Result<Parsed, ConfigError> {
    let mut parsed = read(|name| std::env::var(name).ok(), flavour)?;
    let variables = PYTORCH_VARIABLES.into_iter().chain([GRANULE_VARIABLE]);
    let garbled = variables.filter(|name| matches!(std::env::var(name), Err(VarError::NotUnicode(_))));
    parsed.warnings.extend(garbled.map(|variable| Warning::NotUnicode { variable }));
    Ok(parsed)
}

/// The backend that the environment asks for, whatever else is wrong with the text: it is chosen when the library
/// loads, and errors come at first use. It is the native backend if none is named, or if the text cannot be parsed.
#[must_use]
pub fn backend(lookup: impl Fn(&str) -> Option<String>, flavour: Flavour) -> AllocatorBackend {
    let own = lookup(GRANULE_VARIABLE).and_then(|text| backend_in(&text, Flavour::Hip));
    own.or_else(|| chosen(&lookup).and_then(|(_, text, _)| backend_in(&text, flavour))).unwrap_or_default()
}

/// True if every request is to go straight to the driver. Either name counts, whatever the vendor.
#[must_use]
pub fn caching_disabled(lookup: impl Fn(&str) -> Option<String>) -> bool {
    BYPASS_VARIABLES.iter().any(|name| lookup(name).as_deref() == Some("1"))
}

fn is_off(lookup: impl Fn(&str) -> Option<String>) -> bool {
    lookup(SEGMENTS_IPC_VARIABLE).is_some_and(|value| {
        ["0", "false", "no", "off", "n"].iter().any(|off| value.eq_ignore_ascii_case(off))
    })
}

/// The variable of PyTorch's that counts, its text, and the others that are set.
fn chosen(lookup: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String, Vec<&'static str>)> {
    let mut set = PYTORCH_VARIABLES.into_iter().filter_map(|name| lookup(name).map(|text| (name, text)));
    let (used, text) = set.next()?;
    // The same text in two variables is no contradiction.
    let ignored = set.filter(|(_, other)| *other != text).map(|(name, _)| name).collect();
    Some((used, text, ignored))
}

fn backend_in(text: &str, flavour: Flavour) -> Option<AllocatorBackend> {
    let tokens = tokens(text).ok()?;
    let (mut at, mut found) = (0, None);
    while let Some(key) = tokens.get(at) {
        let mut value = at + 2;
        if key.is("backend") {
            found = tokens.get(value).and_then(|t| AllocatorBackend::from_name(&t.text, flavour)).or(found);
        }
        if tokens.get(value).is_some_and(|t| t.is("[")) {
            value += tokens[value..].iter().position(|t| t.is("]"))?;
        }
        at = value + 2;
    }
    found
}
