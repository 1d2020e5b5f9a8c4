//! What machine a lookalike driver shows, read from the environment.

mod h100;
mod order;
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
    /// Whether the machine is one that real programs run on.
    pub is_h100: bool,
    /// An event is passed only so many kernels after it was recorded, unless something waited for it.
    pub event_lag: u64,
    /// Bytes of its device that an instantiated graph takes.
    pub graph_memory: u64,
    /// Bytes of a device that the driver takes for memory nodes when a graph is launched there first.
    pub node_memory: u64,
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
    /// | `clock=workers` | a thread per stream; `virtual:LAG`: work completes LAG calls later; `at-once`: work takes no time |
    /// | `context=0MiB` | bytes of each device that are in use from the start |
    /// | `graph=0MiB` | bytes of its device that an instantiated graph takes |
    /// | `graph-nodes=0MiB` | bytes of a device that the driver takes for memory nodes when a graph is launched there first |
    /// | `event-lag=0` | events are passed so many kernels later, unless something waits for them |
    /// | `h100` | what programs such as PyTorch want of a machine, see below |
    /// | `no-vmm`, `no-ipc`, `no-peers`, `no-capture`, `no-registration`, `no-timing` | a family is absent |
    /// | `personality=NAME` | a file of `tests/personalities`; other entries change its machine |
    ///
    /// `h100` is one device with 80 GiB of reserved memory, which does work at once. Its frees wait for queued work, copies
    /// of up to 1 MiB to the host read zeros, other processes open its memory by address, and kernels do nothing. The
    /// driver calls it an H100.
    ///
    /// # Errors
    /// A sentence that names the entry and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut config = OpenRegConfig::default().memory(MemoryMode::Mapped).clock(Clock::Workers);
        let entries = || text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let is_h100 = entries().any(|entry| entry == "h100");
        if is_h100 {
            config = h100::machine();
        }
        let personality = entries().filter_map(|entry| entry.strip_prefix("personality=")).next_back();
        if let Some(name) = personality {
            config = personality::machine(name, config).map_err(|wrong| format!("{VARIABLE}: {wrong}"))?;
        }
        let (mut event_lag, mut graph_memory, mut node_memory) = (0, 0, 0);
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
                None if entry == "h100" => config,
                Some(("context", size)) => {
                    let bytes = bytes(size);
                    config.context(bytes.ok_or_else(|| wrong("give bytes, or a number with KiB, MiB, GiB"))?)
                }
                Some((kind @ ("graph" | "graph-nodes"), size)) => {
                    let bytes =
                        bytes(size).ok_or_else(|| wrong("give bytes, or a number with KiB, MiB, GiB"))?;
                    *(if kind == "graph" { &mut graph_memory } else { &mut node_memory }) = bytes;
                    config
                }
                Some(("event-lag", kernels)) => {
                    event_lag = kernels.parse().map_err(|_| wrong("give a number of kernels"))?;
                    config
                }
                None => {
                    let absent = entry.strip_prefix("no-").and_then(family);
                    config.without(absent.ok_or_else(|| wrong("see lookalike::settings for the entries"))?)
                }
                Some(_) => return Err(wrong("see lookalike::settings for the entries")),
            };
        }
        if is_h100 {
            config = h100::with_room(config);
        }
        let personality = personality.map(str::to_owned);
        Ok(Self { config, personality, is_h100, event_lag, graph_memory, node_memory })
    }

    /// The settings that the environment asks for: those of [`VARIABLE`], and after `h100` also those that the variables of
    /// `granule estimate` stand for, `FAKE_GPU_COUNT` and the like.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn from_environment() -> Result<Self, String> {
        let text = std::env::var_os(VARIABLE).unwrap_or_default();
        let text = text.to_str().ok_or_else(|| format!("{VARIABLE} is not UTF-8"))?;
        let is_h100 = text.split(',').any(|entry| entry.trim() == "h100");
        if is_h100 { Self::parse(&format!("{text},{}", h100::from_variables()?)) } else { Self::parse(text) }
    }
}

fn parse_clock(text: &str) -> Option<Clock> {
    match text.split_once(':') {
        None if text == "workers" => Some(Clock::Workers),
        None if text == "at-once" => Some(Clock::AtOnce),
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
        let real = Settings::parse("h100,devices=3,capacity=1GiB,event-lag=4").unwrap();
        assert_eq!((real.is_h100, real.event_lag, real.config.device_count()), (true, 4, 3));
        assert!(format!("{:?}", real.config).contains("clock: AtOnce"), "{:?}", real.config);
        for wrong in [
            "event-lag=much",
            "context=some",
            "graph=large",
            "graph-nodes=few",
            "devices=65",
            "capacity=8Mb",
            "clock=wall",
            "no-luck",
            "colour=red",
            "memory=wool",
        ] {
            let message = Settings::parse(wrong).unwrap_err();
            assert!(message.contains(wrong), "{message}");
        }
        assert_eq!(Settings::parse("personality=stub").unwrap().personality.as_deref(), Some("stub"));
    }
}
