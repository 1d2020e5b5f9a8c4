//! One event of a trace.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

/// What the viewer shows beside an event.
pub(super) type Args = Map<String, Value>;

/// What kind of event it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Metadata,
    Counter,
    Complete,
    Instant,
    AsyncBegin,
    AsyncEnd,
}

impl Phase {
    const fn letter(self) -> &'static str {
        match self {
            Self::Metadata => "M",
            Self::Counter => "C",
            Self::Complete => "X",
            Self::Instant => "i",
            Self::AsyncBegin => "b",
            Self::AsyncEnd => "e",
        }
    }
}

/// Where it is shown. The format calls them threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Track {
    #[default]
    Process = 0,
    Iterations = 1,
    Happenings = 2,
}

/// An event.
#[derive(Clone, Debug, Default)]
pub(super) struct Packet<'a> {
    pub(super) phase: Phase,
    pub(super) name: &'a str,
    pub(super) category: &'a str,
    /// Microseconds.
    pub(super) time: i64,
    pub(super) duration: Option<i64>,
    /// What the two ends of an asynchronous slice have in common.
    pub(super) id: Option<usize>,
    /// How far an instant reaches: `p` over the process, `t` over its track.
    pub(super) scope: Option<&'static str>,
    pub(super) track: Track,
    pub(super) args: Args,
}

impl<'a> Packet<'a> {
    /// A counter's value from that time on.
    pub(super) fn counter(name: &'a str, time: i64, value: u64) -> Self {
        let args = Args::from_iter([("bytes".to_owned(), value.into())]);
        Self { phase: Phase::Counter, name, time, args, ..Self::default() }
    }
}

impl Serialize for Packet<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("ph", self.phase.letter())?;
        map.serialize_entry("name", self.name)?;
        if !self.category.is_empty() {
            map.serialize_entry("cat", self.category)?;
        }
        map.serialize_entry("ts", &self.time)?;
        if let Some(duration) = self.duration {
            map.serialize_entry("dur", &duration)?;
        }
        // There is one process; 0 would be the idle one.
        map.serialize_entry("pid", &1)?;
        map.serialize_entry("tid", &(self.track as u32))?;
        if let Some(id) = self.id {
            map.serialize_entry("id", &format!("{id:#x}"))?;
        }
        if let Some(scope) = self.scope {
            map.serialize_entry("s", scope)?;
        }
        if !self.args.is_empty() {
            map.serialize_entry("args", &self.args)?;
        }
        map.end()
    }
}
