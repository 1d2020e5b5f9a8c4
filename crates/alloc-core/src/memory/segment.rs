//! Segments: the memory that an arena holds from the device.

use crate::base::steps::Counted;
use crate::memory::block::{BlockId, SegmentId, Tier};
use crate::memory::granules::Granules;
use crate::memory::region::RegionId;
use crate::types::DevicePtr;
use crate::watch::history::Context;

/// Origin of a segment's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// One `malloc` of the device.
    Fixed,
    /// Reserved address space, mapped on demand.
    Growable {
        /// The reservation.
        region: RegionId,
        /// The unit in which it is mapped, in bytes: granules have one or more.
        unit: u64,
    },
    /// View: aliases of other segments' granules.
    View,
}

/// One segment. Its lowest block's record never changes: splitting keeps the lower part's record, coalescing keeps the
/// lower neighbour's.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// First address.
    pub base: u64,
    /// Length in bytes; address space for growable segments.
    pub bytes: u64,
    /// The lowest block.
    pub first: BlockId,
    /// Place in creation order.
    pub registration: u32,
    /// The tier it serves.
    pub tier: Tier,
    /// Fixed or growable.
    pub origin: Origin,
    /// Bounds of its granules, if it is growable.
    pub(crate) granules: Granules,
    /// Context in which it was taken from the device.
    pub(crate) context: Option<Context>,
}

impl Segment {
    /// A segment that has no block yet; the arena gives it one.
    pub(crate) fn new(base: DevicePtr, bytes: u64, registration: u32, tier: Tier, origin: Origin) -> Self {
        let unit = match origin {
            Origin::Growable { unit, .. } => unit,
            Origin::Fixed | Origin::View => bytes,
        };
        let (granules, first) = (Granules::new(base.0, unit), BlockId::NONE);
        Self { base: base.0, bytes, first, registration, tier, origin, granules, context: None }
    }

    /// True if it is one `malloc` of the device.
    #[must_use]
    pub(crate) fn is_fixed(&self) -> bool {
        self.origin == Origin::Fixed
    }

    /// True if it is reserved address space, mapped on demand.
    #[must_use]
    pub(crate) fn is_growable(&self) -> bool {
        matches!(self.origin, Origin::Growable { .. })
    }
}

/// An [`Origin`] without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OriginKind {
    Fixed,
    Growable,
    View,
}

impl OriginKind {
    fn of(origin: Origin) -> Self {
        match origin {
            Origin::Fixed => Self::Fixed,
            Origin::Growable { .. } => Self::Growable,
            Origin::View => Self::View,
        }
    }
}

/// An arena's segments.
#[derive(Debug, Default)]
pub(crate) struct SegmentTable {
    records: Vec<Option<Segment>>,
    /// Kinds of segments: asked for with every request.
    kinds: Vec<OriginKind>,
    /// Number of fixed segments.
    fixed: usize,
    vacant: Vec<SegmentId>,
}

impl SegmentTable {
    pub(crate) fn add(&mut self, segment: Segment) -> SegmentId {
        let kind = OriginKind::of(segment.origin);
        self.fixed += usize::from(kind == OriginKind::Fixed);
        if let Some(id) = self.vacant.pop() {
            self.records[id.0 as usize] = Some(segment);
            self.kinds[id.0 as usize] = kind;
            return id;
        }
        #[allow(clippy::cast_possible_truncation)] // one per driver allocation: far fewer than 2^32
        let id = SegmentId(self.records.len() as u32);
        self.records.push(Some(segment));
        self.kinds.push(kind);
        id
    }

    /// True if any segment is one `malloc` of the device.
    #[inline(always)]
    pub(crate) fn has_fixed(&self) -> bool {
        self.fixed > 0
    }

    /// True if a segment is one `malloc` of the device, without a look at its record.
    #[inline(always)]
    pub(crate) fn is_fixed(&self, id: SegmentId) -> bool {
        self.kinds[id.0 as usize] == OriginKind::Fixed
    }

    /// True if a segment is a view of others, without a look at its record.
    #[inline(always)]
    pub(crate) fn is_view(&self, id: SegmentId) -> bool {
        self.kinds[id.0 as usize] == OriginKind::View
    }

    /// True if a segment is growable, without a look at its record.
    #[inline(always)]
    pub(crate) fn is_growable(&self, id: SegmentId) -> bool {
        self.kinds[id.0 as usize] == OriginKind::Growable
    }

    pub(crate) fn remove(&mut self, id: SegmentId) -> Option<Segment> {
        let segment = self.records[id.0 as usize].take();
        if let Some(segment) = &segment {
            self.fixed -= usize::from(segment.is_fixed());
            self.vacant.push(id);
        }
        segment
    }

    pub(crate) fn set_first(&mut self, id: SegmentId, first: BlockId) {
        if let Some(segment) = &mut self.records[id.0 as usize] {
            segment.first = first;
        }
    }

    /// A segment's granules.
    pub(crate) fn granules_mut(&mut self, id: SegmentId) -> Option<&mut Granules> {
        self.records[id.0 as usize].as_mut().map(|segment| &mut segment.granules)
    }

    pub(crate) fn find_mut(&mut self, wanted: impl Fn(&Segment) -> bool) -> Option<&mut Segment> {
        self.records.iter_mut().counted().flatten().find(|segment| wanted(segment))
    }

    /// Forgets contexts of segments. Drop them without a lock.
    pub(crate) fn take_contexts(&mut self) -> impl Iterator<Item = Context> {
        self.records.iter_mut().flatten().filter_map(|segment| segment.context.take())
    }

    /// All segments, in table order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        (0u32..)
            .map(SegmentId)
            .zip(&self.records)
            .counted()
            .filter_map(|(id, record)| Some((id, record.as_ref()?)))
    }
}

impl std::ops::Index<SegmentId> for SegmentTable {
    type Output = Segment;
    #[inline]
    fn index(&self, id: SegmentId) -> &Segment {
        match &self.records[id.0 as usize] {
            Some(segment) => segment,
            None => unreachable!("a block's segment is there as long as the block"),
        }
    }
}
