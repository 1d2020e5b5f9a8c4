//! What the allocator of a run makes of a request: the block it takes, and when a block is cut.

use alloc_core::block::Tier;
use alloc_core::config::Settings;
use alloc_core::policy::{Policy, Request};
use alloc_core::round::{EXABYTE, SMALL_SEGMENT};

/// The rules of an allocator under some settings.
#[derive(Clone, Debug)]
pub struct Rules {
    /// In fixed segments.
    fixed: Policy,
    /// In growable ones.
    growing: Policy,
    /// Whether new segments are growable ones.
    grows: bool,
    /// Whether there are growable ones at all.
    has_growing: bool,
}

impl Rules {
    /// Those of an allocator with these settings.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let fixed = Settings { expandable_segments: false, ..settings.clone() };
        let fixed = Policy::new(&fixed, false);
        Self { growing: fixed.growing(), fixed, grows: settings.expandable_segments, has_growing: true }
    }

    /// Those of a release that has no growable segments.
    #[must_use]
    pub fn without_growing(self) -> Self {
        Self { has_growing: false, ..self }
    }

    /// Whether PyTorch's own policy makes fixed segments: expandable ones are news to it.
    #[must_use]
    pub const fn could_grow(&self) -> bool {
        self.is_pytorch() && !self.grows && self.has_growing
    }

    /// Whether they are PyTorch's.
    #[must_use]
    pub const fn is_pytorch(&self) -> bool {
        matches!(self.fixed, Policy::Pytorch(_))
    }

    /// Bytes of the block that a request takes.
    #[must_use]
    pub fn block(&self, bytes: u64, growable: bool) -> u64 {
        if bytes >= EXABYTE { bytes } else { self.request(bytes, growable).size }
    }

    /// Whether a request is served by the memory for small ones.
    #[must_use]
    pub fn is_small(&self, bytes: u64, growable: bool) -> bool {
        bytes < EXABYTE && self.request(bytes, growable).tier == Tier::Small
    }

    /// Whether a free fixed segment of that size is memory for small requests.
    #[must_use]
    pub fn is_small_segment(&self, size: u64) -> bool {
        size <= SMALL_SEGMENT && self.is_small(1, false)
    }

    /// What a request asks from the device where segments are fixed.
    #[must_use]
    pub fn segment(&self, bytes: u64) -> u64 {
        if bytes >= EXABYTE { bytes } else { self.request(bytes, false).segment_bytes }
    }

    /// Whether a request that gets `room` bytes keeps all of them, because the rest is too little to be cut off.
    #[must_use]
    pub fn keeps_whole(&self, room: u64, bytes: u64, growable: bool) -> bool {
        if bytes >= EXABYTE {
            return false;
        }
        let request = self.request(bytes, growable);
        room > request.size && !self.policy(growable).splits(room, &request)
    }

    fn policy(&self, growable: bool) -> &Policy {
        if growable { &self.growing } else { &self.fixed }
    }

    fn request(&self, bytes: u64, growable: bool) -> Request {
        self.policy(growable).request(bytes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::Rules;
    use alloc_core::config::{PolicyName, Settings};

    const MIB: u64 = 1 << 20;

    #[test]
    fn pytorch_keeps_up_to_a_mebibyte_of_a_fixed_segment() {
        let rules = Rules::new(&Settings { expandable_segments: true, ..Settings::default() });
        assert_eq!(rules.block(3 * MIB + 1, false), 3 * MIB + 512);
        assert!(rules.keeps_whole(4 * MIB, 3 * MIB, false));
        assert!(!rules.keeps_whole(4 * MIB + 512, 3 * MIB, false), "cut");
        assert!(!rules.keeps_whole(3 * MIB, 3 * MIB, false), "nothing is left");
        assert!(!rules.keeps_whole(4 * MIB, 3 * MIB, true), "growable segments are always cut");
        assert!(!rules.keeps_whole(2 * MIB, 512, false), "small ones too");
        assert!(rules.is_small(MIB, false) && !rules.is_small(MIB + 1, false));
        assert_eq!(rules.segment(3 * MIB), 20 * MIB);
    }

    #[test]
    fn granule_keeps_nothing() {
        let rules = Rules::new(&Settings { policy: Some(PolicyName::Granule), ..Settings::default() });
        assert!(!rules.keeps_whole(4 * MIB, 3 * MIB, false));
        assert!(!rules.is_small(512, false) && rules.is_small(512, true));
    }

    #[test]
    fn sizes_beyond_all_memory_are_taken_as_they_are() {
        let rules = Rules::new(&Settings::default());
        for bytes in [1 << 60, u64::MAX] {
            assert_eq!((rules.block(bytes, false), rules.segment(bytes)), (bytes, bytes));
            assert!(!rules.keeps_whole(u64::MAX, bytes, false) && !rules.is_small(bytes, true));
        }
        assert_eq!(rules.block(0, false), 512);
    }
}
