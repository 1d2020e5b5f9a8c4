//! What a check is, and the words that checks are written in.

use crate::{Context, Verdict};
use serde::Serialize;

/// The part of the contract that a check belongs to; the first part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// Ids, kinds, counts, attributes, the current device.
    Device,
    /// Device memory, its addresses and its limits.
    Memory,
    /// Copies and fills.
    Copies,
    /// Streams, their priorities and host functions.
    Streams,
    /// Events.
    Events,
    /// What waits for what.
    Ordering,
    /// Page-locked host memory.
    Host,
    /// Kinds, codes and completeness of errors.
    Errors,
    /// Several threads at once.
    Threads,
    /// Virtual memory.
    VirtualMemory,
    /// Other processes.
    Ipc,
    /// Other devices.
    Peers,
    /// Stream capture.
    Capture,
    /// What is absent, and registered memory.
    Families,
    /// The allocator's promises over this backend.
    Engine,
}

impl Area {
    /// Whether its checks say nothing where those of the other area fail.
    pub(crate) fn builds_on(self, other: Self) -> bool {
        self.needs().iter().any(|need| *need == other || need.builds_on(other))
    }

    const fn needs(self) -> &'static [Self] {
        match self {
            Self::Device => &[],
            Self::Memory => &[Self::Device],
            Self::Copies | Self::Families => &[Self::Memory],
            Self::Streams => &[Self::Copies],
            Self::Events => &[Self::Streams],
            Self::Ordering => &[Self::Events],
            Self::Host | Self::Errors | Self::Threads | Self::VirtualMemory => &[Self::Ordering],
            Self::Ipc | Self::Peers | Self::Capture => &[Self::Ordering],
            Self::Engine => &[Self::Host, Self::Errors, Self::Threads, Self::VirtualMemory, Self::Capture],
        }
    }
}

/// One rule of the contract, and how it is checked.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// `area.what`, unique.
    pub name: &'static str,
    /// The part of the contract.
    pub area: Area,
    /// The rule in one sentence, with its number where it has one.
    pub rule: &'static str,
    /// Checks it.
    pub run: fn(&Context) -> Verdict,
}

impl Check {
    /// The area and what is checked: the parts of the name.
    fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or((self.name, self.name))
    }

    /// The area by name.
    #[must_use]
    pub fn area_name(&self) -> &'static str {
        self.parts().0
    }

    /// Whether a part of a name selects this check: its name begins with the part, or what follows the area
    /// contains it. So `memory.` is an area and does not select `virtual_memory.`.
    #[must_use]
    pub fn matches(&self, part: &str) -> bool {
        self.name.starts_with(part) || self.parts().1.contains(part)
    }
}

/// Ends the check as failed unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Stop::Failed(format!($($text)+)));
        }
    };
}

/// Ends the check as failed unless both sides are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($text:tt)+) => {
        match (&$left, &$right) {
            (left, right) => if left != right {
                let what = format!($($text)+);
                return Err($crate::Stop::Failed(format!("{what}: {left:?} where {right:?} was due")));
            },
        }
    };
}

/// Makes the table of an area's checks: `checks!(Memory; name: "rule" => function, ...)`.
macro_rules! checks {
    ($area:ident; $($name:literal: $rule:literal => $function:path,)+) => {
        /// The checks of this area.
        pub(crate) const CHECKS: &[$crate::Check] = &[$(
            $crate::Check { name: $name, area: $crate::Area::$area, rule: $rule, run: $function },
        )+];
    };
}

pub(crate) use {checks, ensure, ensure_eq};
