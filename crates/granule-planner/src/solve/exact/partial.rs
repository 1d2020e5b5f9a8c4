//! A partial placement, built from the bottom up, and how to take a step back.
//!
//! Every section has a floor: what is below it is settled. A buffer that is not placed yet can lie no lower than
//! the highest floor among its sections. A valley is a run of sections with the same floor between higher ones.

use crate::solve::sections::Sections;

/// Offsets and sizes in units of the sizes' common divisor.
pub(crate) type Units = u64;

/// A section without buffers left, and a buffer without a place.
pub(crate) const NONE: Units = Units::MAX;

/// An interval problem as the search sees it.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) sections: Sections,
    pub(crate) sizes: Vec<Units>,
    pub(crate) capacity: Units,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Floor { section: u32, floor: Units, solid: bool },
    Least { buffer: u32, least: Units },
    Place { buffer: u32 },
}

/// The partial placement.
#[derive(Debug)]
pub(crate) struct Partial<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) floor: Vec<Units>,
    /// Whether a section's floor is the top of a buffer, or the ground: something may rest on it.
    solid: Vec<bool>,
    /// Units of a section's buffers that have no place yet.
    pub(crate) left: Vec<Units>,
    /// The lowest place a buffer can still get.
    pub(crate) least: Vec<Units>,
    pub(crate) offset: Vec<Units>,
    /// How many buffers without a place cross from the section before into this one.
    crossing: Vec<u32>,
    trail: Vec<Step>,
    /// How often a section had too little room left.
    pub(crate) failures: Vec<u32>,
}

impl<'a> Partial<'a> {
    pub(crate) fn new(shape: &'a Shape) -> Self {
        let members = &shape.sections.members;
        let mut crossing = vec![0; members.len() + 1];
        for &(first, beyond) in &shape.sections.ranges {
            crossing[first as usize + 1..beyond as usize].iter_mut().for_each(|count| *count += 1);
        }
        let load = |live: &Vec<u32>| live.iter().map(|&buffer| shape.sizes[buffer as usize]).sum();
        Self {
            shape,
            floor: vec![0; members.len()],
            solid: vec![true; members.len()],
            left: members.iter().map(load).collect(),
            least: vec![0; shape.sizes.len()],
            offset: vec![NONE; shape.sizes.len()],
            crossing,
            trail: Vec::new(),
            failures: vec![0; members.len()],
        }
    }

    pub(crate) fn range(&self, buffer: usize) -> std::ops::Range<usize> {
        let (first, beyond) = self.shape.sections.ranges[buffer];
        first as usize..beyond as usize
    }

    /// The buffers of a section that have no place yet.
    pub(crate) fn unplaced(&self, section: usize) -> impl Iterator<Item = usize> + use<'_, 'a> {
        let shape: &'a Shape = self.shape;
        let live = shape.sections.members[section].iter().map(|&buffer| buffer as usize);
        live.filter(|&buffer| self.offset[buffer] == NONE)
    }

    /// Where to go back to.
    pub(crate) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Goes back to a mark.
    pub(crate) fn undo(&mut self, mark: usize) {
        for step in self.trail.drain(mark..).rev() {
            match step {
                Step::Floor { section, floor, solid } => {
                    self.floor[section as usize] = floor;
                    self.solid[section as usize] = solid;
                }
                Step::Least { buffer, least } => self.least[buffer as usize] = least,
                Step::Place { buffer } => {
                    let size = self.shape.sizes[buffer as usize];
                    let (first, beyond) = self.shape.sections.ranges[buffer as usize];
                    let (first, beyond) = (first as usize, beyond as usize);
                    self.offset[buffer as usize] = NONE;
                    self.left[first..beyond].iter_mut().for_each(|left| *left += size);
                    self.crossing[first + 1..beyond].iter_mut().for_each(|count| *count += 1);
                }
            }
        }
    }

    fn move_floor(&mut self, section: usize, floor: Units, solid: bool) {
        let step =
            Step::Floor { section: section as u32, floor: self.floor[section], solid: self.solid[section] };
        self.trail.push(step);
        self.floor[section] = floor;
        self.solid[section] = solid;
    }

    /// Raises a floor, and with it what lies over it.
    fn raise(&mut self, section: usize, floor: Units, solid: bool) {
        self.move_floor(section, floor, solid);
        let shape = self.shape;
        for &buffer in &shape.sections.members[section] {
            let least = &mut self.least[buffer as usize];
            if *least < floor && self.offset[buffer as usize] == NONE {
                self.trail.push(Step::Least { buffer, least: *least });
                *least = floor;
            }
        }
    }

    /// Gives a buffer the lowest place it can have.
    pub(crate) fn place(&mut self, buffer: usize) {
        let (offset, size, range) = (self.least[buffer], self.shape.sizes[buffer], self.range(buffer));
        self.offset[buffer] = offset;
        self.trail.push(Step::Place { buffer: buffer as u32 });
        self.left[range.clone()].iter_mut().for_each(|left| *left -= size);
        self.crossing[range.start + 1..range.end].iter_mut().for_each(|count| *count -= 1);
        for section in range {
            self.raise(section, offset + size, true);
        }
    }

    /// Leaves a section's floor up to `floor` empty.
    pub(crate) fn waste(&mut self, section: usize, floor: Units) {
        self.raise(section, floor, false);
    }

    /// Whether a buffer at `floor` would rest on another or on the ground. If none does, the same placement with
    /// the buffer pushed down is at least as good.
    pub(crate) fn supported(&self, buffer: usize, floor: Units) -> bool {
        floor == 0 || self.range(buffer).any(|section| self.solid[section] && self.floor[section] == floor)
    }

    /// Raises floors to the lowest place that any of their buffers can have. `false` if some section has too
    /// little room for what is left.
    pub(crate) fn settle(&mut self, first: usize, beyond: usize) -> bool {
        for section in first..beyond {
            let floor = self.floor[section];
            let least = self.unplaced(section).map(|buffer| self.least[buffer]).min().unwrap_or(NONE);
            if least > floor {
                self.move_floor(section, least, false);
            }
            if least != NONE && least + self.left[section] > self.shape.capacity {
                self.failures[section] += 1;
                return false;
            }
        }
        true
    }

    /// As [`settle`](Self::settle) has left it: whether each section, seen alone, can hold what is left when no
    /// buffer starts below its lowest place.
    pub(crate) fn fits_by_release(
        &mut self,
        first: usize,
        beyond: usize,
        scratch: &mut Vec<(Units, Units)>,
    ) -> bool {
        for section in first..beyond {
            scratch.clear();
            scratch
                .extend(self.unplaced(section).map(|buffer| (self.least[buffer], self.shape.sizes[buffer])));
            scratch.sort_unstable();
            let top = scratch.iter().fold(0, |top: Units, &(least, size)| top.max(least) + size);
            if top > self.shape.capacity {
                self.failures[section] += 1;
                return false;
            }
        }
        true
    }

    /// Runs of sections with something left to place that share no such buffer, the one with the least room first.
    pub(crate) fn parts(&self, first: usize, beyond: usize) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        let mut start = first;
        for end in first + 1..=beyond {
            if end == beyond || self.crossing[end] == 0 {
                let room = (start..end)
                    .filter(|&section| self.left[section] > 0)
                    .map(|section| {
                        self.shape.capacity.saturating_sub(self.floor[section] + self.left[section])
                    })
                    .min();
                parts.extend(room.map(|room| (room, start, end)));
                start = end;
            }
        }
        parts.sort_unstable();
        parts.into_iter().map(|(_, start, end)| (start, end)).collect()
    }
}
