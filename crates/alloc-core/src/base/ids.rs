//! Numbers by which a layer names objects of another layer.

/// Index of a block in its arena's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(u32);

impl BlockId {
    /// No block.
    pub const NONE: Self = Self(u32::MAX);

    #[inline]
    pub(crate) const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number itself.
    #[must_use]
    #[inline]
    pub const fn index(self) -> u32 {
        self.0
    }

    /// This block, or `None` for [`BlockId::NONE`].
    #[must_use]
    pub fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// Size range of an arena that a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Tier {
    /// Rounded sizes up to 1 MiB (PyTorch: small pool).
    Small = 0,
    /// Everything larger (PyTorch: large pool).
    Large = 1,
}

impl Tier {
    /// Both, small first.
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// PyTorch's name in snapshots.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

/// A pool's place in the directory of its device; never used twice. 0 is the default pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PoolSlot(u32);

impl PoolSlot {
    pub(crate) const DEFAULT: Self = Self(0);
    /// The slot of a vacant arena.
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// Pending block, by its arena and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) arena: u16,
    pub(crate) block: BlockId,
}
