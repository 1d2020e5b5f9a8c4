//! The machines that wheels are for.

use crate::process::targets;

/// The oldest glibc that a wheel is for: 2.28, of 2018.
pub(super) const GLIBC: (u32, u32) = (2, 28);

/// A processor, with Linux and glibc on it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    /// The one that builds, too.
    X86,
    /// 64-bit ARM: Zig's linker is a cross linker as it stands.
    Arm,
}

impl Machine {
    /// What Linux and Python call the processor.
    pub(super) fn processor(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// What Rust calls it.
    pub(super) fn target(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-gnu",
            Self::Arm => targets::AARCH64,
        }
    }

    /// What Zig calls it, with the oldest glibc.
    pub(super) fn of_zig(self) -> String {
        let (major, minor) = GLIBC;
        format!("{}-linux-gnu.{major}.{minor}", self.processor())
    }

    /// What a wheel says that it is for.
    pub(super) fn tag(self) -> String {
        format!("{}_{}", compatibility(), self.processor())
    }
}

/// The same for any processor.
pub(super) fn compatibility() -> String {
    let (major, minor) = GLIBC;
    format!("manylinux_{major}_{minor}")
}
