//! What machine a lookalike driver shows, read from the environment.

pub mod personality;
pub mod rules;
mod words;

use backend_openreg::{Clock, MemoryMode, OpenRegConfig};
use words::{bytes, family};

/// The environment variable.
pub const VARIABLE: &str = "GRANULE_LOOKALIKE";

/// A machine, and the driver in front of it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The machine.
    pub config: OpenRegConfig,
    /// Which driver it is, where one is named: a file of `tests/personalities`.
    pub personality: Option<String>,
}

impl Settings {
    /// Reads a list with commas. Empty is: 2 devices with 256 MiB of mapped memory each, worker threads, all
    /// families.
    ///
    /// | entry | meaning |
    /// |---|---|
    /// | `devices=N` | 0 to 64 devices |
    /// | `capacity=256MiB` | memory of each; bytes, `KiB`, `MiB` or `GiB` |
    /// | `memory=mapped` | real bytes; `reserved`: addresses only |
    /// | `clock=workers` | a thread per stream; `virtual:LAG`: work completes LAG calls later |
    /// | `no-vmm`, `no-ipc`, `no-peers`, `no-capture`, `no-pools`, `no-registration`, `no-managed`, `no-stream-memory`, `no-timing` | a family is absent |
    /// | `personality=NAME` | a file of `tests/personalities`; other entries change its machine |
    ///
    /// # Errors
    /// A sentence that names the entry and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut config = OpenRegConfig::default().memory(MemoryMode::Mapped).clock(Clock::Workers);
        let entries = || text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let personality = entries().filter_map(|entry| entry.strip_prefix("personality=")).next_back();
        if let Some(name) = personality {
            config = personality::machine(name, config).map_err(|wrong| format!("{VARIABLE}: {wrong}"))?;
        }
        for entry in entries() {
            let wrong = |right: &str| format!("{VARIABLE}: `{entry}` is not understood; {right}");
            config = match entry.split_once('=') {
                Some(("devices", count)) => {
                    let count = count.parse().ok().filter(|&count: &u16| count <= 64);
                    config.devices(count.ok_or_else(|| wrong("give a number from 0 to 64"))?)
                }
                Some(("capacity", size)) => {
                    let bytes = bytes(size);
                    config.capacity(bytes.ok_or_else(|| wrong("give bytes, or a number with KiB, MiB, GiB"))?)
                }
                Some(("memory", "mapped")) => config.memory(MemoryMode::Mapped),
                Some(("memory", "reserved")) => config.memory(MemoryMode::Reserved),
                Some(("clock", clock)) => {
                    let clock = parse_clock(clock);
                    config.clock(clock.ok_or_else(|| wrong("give `workers` or `virtual:LAG`"))?)
                }
                Some(("personality", _)) => config,
                None => {
                    let absent = entry.strip_prefix("no-").and_then(family);
                    config.without(absent.ok_or_else(|| wrong("see lookalike::settings for the entries"))?)
                }
                Some(_) => return Err(wrong("see lookalike::settings for the entries")),
            };
        }
        Ok(Self { config, personality: personality.map(str::to_owned) })
    }

    /// The settings that the environment asks for.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn from_environment() -> Result<Self, String> {
        let text = std::env::var_os(VARIABLE).unwrap_or_default();
        Self::parse(text.to_str().ok_or_else(|| format!("{VARIABLE} is not UTF-8"))?)
    }
}

fn parse_clock(text: &str) -> Option<Clock> {
    match text.split_once(':') {
        None if text == "workers" => Some(Clock::Workers),
        Some(("virtual", lag)) => Some(Clock::Virtual { lag: lag.parse().ok()? }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_openreg::Families;

    #[test]
    fn a_list_is_read_and_a_mistake_is_named() {
        let read =
            Settings::parse("devices=1, capacity=8MiB,memory=reserved,clock=virtual:3,no-ipc").unwrap();
        let wanted = OpenRegConfig::default()
            .devices(1)
            .capacity(8 << 20)
            .memory(MemoryMode::Reserved)
            .clock(Clock::Virtual { lag: 3 })
            .without(Families::IPC);
        assert_eq!(format!("{:?}", read.config), format!("{wanted:?}"));
        for wrong in ["devices=65", "capacity=8Mb", "clock=wall", "no-luck", "colour=red", "memory=wool"] {
            let message = Settings::parse(wrong).unwrap_err();
            assert!(message.contains(wrong), "{message}");
        }
        assert_eq!(Settings::parse("personality=stub").unwrap().personality.as_deref(), Some("stub"));
    }
}
