//! How much a file that is read may take.

/// What to do about a limit.
pub(crate) const LARGER: &str =
    "if you trust who made the file, read it with `--trust`, whatever memory that takes";

/// How much a file may take; all but [`expansion`](Self::expansion) is about pickles. The defaults hold for any file that
/// PyTorch can write and a machine can load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of the unpacked pickle.
    pub max_bytes: u64,
    /// Most bytes of memory while reading, whatever the input's length.
    pub max_memory: u64,
    /// Bytes of memory allowed for each byte of the unpacked pickle, beyond the first 64 MiB of memory.
    /// PyTorch's files take about 4.
    pub memory_per_byte: u64,
    /// Values that parts referred to several times may become when they are written out, for each byte of
    /// the unpacked pickle. Call stacks and texts stay shared and cost nothing here.
    pub copies_per_byte: u64,
    /// Deepest nesting of lists, tuples and dictionaries. PyTorch's files have 7 levels.
    pub max_depth: usize,
    /// Bytes unpacked for each byte read of a gzip'd pickle, trace or plan, beyond the first 4 MiB. Real ones
    /// reach 13; deflate's own limit is 1032, and only an archive made to fill memory comes near it.
    pub expansion: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 16 << 30,
            max_memory: 32 << 30,
            memory_per_byte: 24,
            copies_per_byte: 4,
            max_depth: 100,
            expansion: 64,
        }
    }
}

impl Limits {
    /// For files of which it is known who wrote them: as long and as large as memory allows.
    #[must_use]
    pub fn trusting() -> Self {
        Self {
            max_bytes: u64::MAX,
            max_memory: u64::MAX,
            memory_per_byte: 1 << 32,
            copies_per_byte: 1 << 32,
            expansion: u64::MAX,
            ..Self::default()
        }
    }
}
