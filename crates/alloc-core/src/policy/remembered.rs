//! What the policy of an arena remembers of it, whichever policy that is.

use super::granule::{self, Device, Memory};
use super::ground::Ground;
use super::hooks::Hooks;
use super::supply::Supply;
use crate::memory::block::BlockPhase;
use crate::memory::region::Regions;
use crate::memory::segment::Origin;

/// What a policy remembers of each arena, as [`Policy::Memory`](super::Policy::Memory) says: `()` for nothing, or what the
/// `granule` policy remembers, for one that decides as that does.
pub trait ArenaMemory: sealed::Sealed {}

impl ArenaMemory for () {}
impl ArenaMemory for Memory {}

pub(super) mod sealed {
    use super::{Remembered, Supply};

    /// No program has one of its own.
    pub trait Sealed: Send + Sync + 'static {
        /// Nothing is remembered of an arena yet.
        #[doc(hidden)]
        fn remembered() -> Remembered;
        /// How memory is got for a miss, on a device.
        #[doc(hidden)]
        fn supply() -> Supply;
    }
}

impl sealed::Sealed for () {
    fn remembered() -> Remembered {
        Remembered::Nothing(())
    }

    fn supply() -> Supply {
        Supply::Plain
    }
}

impl sealed::Sealed for Memory {
    fn remembered() -> Remembered {
        Remembered::Granule(Self::default())
    }

    fn supply() -> Supply {
        Supply::Granule(Device::default())
    }
}

/// It lies in the arena itself, which is one load less on a hit.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Remembered {
    Nothing(()),
    Granule(Memory),
}

impl Remembered {
    /// For hooks that no request which is served comes by.
    pub(crate) fn hooks(&self) -> &dyn Hooks {
        match self {
            Self::Nothing(nothing) => nothing,
            Self::Granule(memory) => memory,
        }
    }

    pub(crate) fn hooks_mut(&mut self) -> &mut (dyn Hooks + 'static) {
        match self {
            Self::Nothing(nothing) => nothing,
            Self::Granule(memory) => memory,
        }
    }

    /// Panics where what is remembered and the arena, of which it is, contradict each other.
    pub(crate) fn check(&self, arena: &impl Ground<Memory>) {
        match self {
            Self::Nothing(()) => {
                let mut segments = arena.layout().segments().iter();
                assert!(segments.all(|(_, segment)| segment.origin != Origin::View), "nobody shows memory");
                let mut blocks = arena.layout().blocks().iter();
                assert!(blocks.all(|(_, block)| block.state != BlockPhase::Lent), "nobody lends memory");
            }
            Self::Granule(_) => granule::invariants::check_views(arena),
        }
    }

    /// The same with what the device knows of mappings in a second place. Returns how many there are. Only while nothing is in
    /// transit.
    pub(crate) fn check_shown(&self, arena: &impl Ground<Memory>, regions: &Regions) -> usize {
        match self {
            Self::Nothing(()) => 0,
            Self::Granule(_) => granule::invariants::check_shown(arena, regions),
        }
    }
}
