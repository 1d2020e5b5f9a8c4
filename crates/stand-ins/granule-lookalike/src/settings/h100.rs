//! The machine that real programs run on, and the variables by which `granule estimate` and its tests set it.

use backend_openreg::{Clock, MemoryMode, OpenRegConfig};

/// Variables, and the entries that they stand for.
const VARIABLES: &[(&str, Meaning)] = &[
    ("FAKE_GPU_COUNT", Meaning::Number("devices")),
    ("FAKE_GPU_MEM_GB", Meaning::Bytes("capacity", 30)),
    ("FAKE_GPU_CTX_MB", Meaning::Bytes("context", 20)),
    ("FAKE_GPU_EVENT_LAG", Meaning::Number("event-lag")),
    ("FAKE_GPU_BYTES", Meaning::Switch("memory=mapped")),
];

/// What a variable says.
#[derive(Clone, Copy)]
enum Meaning {
    /// The number of an entry.
    Number(&'static str),
    /// An entry's bytes, as a number, which may have a fraction, of this power of two.
    Bytes(&'static str, u32),
    /// An entry that is there unless the variable is 0.
    Switch(&'static str),
}

/// Without what the variables say.
pub(super) fn machine() -> OpenRegConfig {
    OpenRegConfig::default()
        .devices(1)
        .capacity(80 << 30)
        .memory(MemoryMode::Reserved)
        .clock(Clock::AtOnce)
        .waiting_frees(true)
        .maps_during_capture(true)
        .address_sharing(true)
        .read_back(true)
}

/// Programs reserve more addresses than a device has memory, again and again: one device gets 32 TiB of them, and
/// several share them.
pub(super) fn with_room(config: OpenRegConfig) -> OpenRegConfig {
    let devices = u64::from(config.device_count()).next_power_of_two();
    config.addresses((1 << 45) / devices)
}

/// The entries of the variables that are set.
pub(super) fn from_variables() -> Result<String, String> {
    let mut entries = Vec::new();
    for (name, meaning) in VARIABLES {
        let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else { continue };
        let number = value.to_str().and_then(|value| value.trim().parse::<f64>().ok());
        let number = number.filter(|number| *number >= 0.0);
        let number = number.ok_or_else(|| format!("{name}: {} is no number", value.display()))?;
        match meaning {
            Meaning::Number(entry) => entries.push(format!("{entry}={}", number as u64)),
            Meaning::Bytes(entry, power) => {
                // To a MiB, as the command says it.
                let mib = (number * f64::from(1_u32 << (power - 20))).floor() as u64;
                entries.push(format!("{entry}={mib}MiB"));
            }
            Meaning::Switch(entry) if number != 0.0 => entries.push((*entry).to_owned()),
            Meaning::Switch(_) => {}
        }
    }
    Ok(entries.join(","))
}
