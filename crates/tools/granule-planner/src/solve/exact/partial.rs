//! A partial placement, built from the bottom up, and how to take a step back.
//!
//! Every section has a floor: what is below it is settled. A buffer that is not placed yet can lie no lower than
//! the highest floor among its sections. A valley is a run of sections with the same floor between higher ones.

use crate::solve::sections::Sections;
use std::ops::Range;

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
    Floor { section: u32, floor: Units, solid: Units },
    Least { buffer: u32, least: Units },
    Place { buffer: u32 },
}

/// The partial placement.
#[derive(Debug)]
pub(crate) struct Partial<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) floor: Vec<Units>,
    /// The top of the highest buffer below a section's floor, or the ground. Between it and the floor is a gap that
    /// stays empty; where there is none, something may rest on the floor.
    solid: Vec<Units>,
    /// Units of a section's buffers that have no place yet.
    pub(crate) left: Vec<Units>,
    /// The lowest place a buffer can still get.
    pub(crate) least: Vec<Units>,
    pub(crate) offset: Vec<Units>,
    /// How many buffers without a place cross from the section before into this one.
    crossing: Vec<u32>,
    trail: Vec<Step>,
    /// Counts the changes of the state.
    clock: u64,
    /// For every section when something of it changed last: its floor, or a buffer of its that has no place.
    changed: Vec<u64>,
    /// The sections that the change under way has touched so far.
    touched: Range<usize>,
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
            solid: vec![0; members.len()],
            left: members.iter().map(load).collect(),
            least: vec![0; shape.sizes.len()],
            offset: vec![NONE; shape.sizes.len()],
            crossing,
            trail: Vec::new(),
            clock: 0,
            changed: vec![0; members.len()],
            touched: 0..0,
            failures: vec![0; members.len()],
        }
    }

    pub(crate) fn range(&self, buffer: usize) -> Range<usize> {
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

    /// Notes that sections differ from what they were, from [`commit`](Self::commit) on.
    pub(crate) fn touch(&mut self, sections: Range<usize>) {
        self.touched = if self.touched.is_empty() {
            sections
        } else {
            self.touched.start.min(sections.start)..self.touched.end.max(sections.end)
        };
    }

    /// A change is complete: what it touched is newer than all before.
    fn commit(&mut self) -> Range<usize> {
        self.clock += 1;
        let touched = std::mem::take(&mut self.touched);
        self.changed[touched.clone()].fill(self.clock);
        touched
    }

    /// What was found out about these sections at this time is true as long as this does not change.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// Whether nothing of these sections has changed since.
    pub(crate) fn unchanged(&self, sections: Range<usize>, since: u64) -> bool {
        self.changed[sections].iter().all(|&at| at <= since)
    }

    /// Goes back to a mark.
    pub(crate) fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            let Some(step) = self.trail.pop() else { break };
            match step {
                Step::Floor { section, floor, solid } => {
                    self.floor[section as usize] = floor;
                    self.solid[section as usize] = solid;
                    self.touch(section as usize..section as usize + 1);
                }
                Step::Least { buffer, least } => {
                    self.least[buffer as usize] = least;
                    self.touch(self.range(buffer as usize));
                }
                Step::Place { buffer } => {
                    let size = self.shape.sizes[buffer as usize];
                    let (first, beyond) = self.shape.sections.ranges[buffer as usize];
                    let (first, beyond) = (first as usize, beyond as usize);
                    self.offset[buffer as usize] = NONE;
                    self.left[first..beyond].iter_mut().for_each(|left| *left += size);
                    self.crossing[first + 1..beyond].iter_mut().for_each(|count| *count += 1);
                    self.touch(first..beyond);
                }
            }
        }
        self.commit();
    }

    fn move_floor(&mut self, section: usize, floor: Units, solid: Units) {
        let step =
            Step::Floor { section: section as u32, floor: self.floor[section], solid: self.solid[section] };
        self.trail.push(step);
        self.floor[section] = floor;
        self.solid[section] = solid;
        self.touch(section..section + 1);
    }

    /// Raises a floor, and with it what lies over it.
    fn raise(&mut self, section: usize, floor: Units, solid: Units) {
        self.move_floor(section, floor, solid);
        let shape = self.shape;
        for &buffer in &shape.sections.members[section] {
            let least = self.least[buffer as usize];
            if least < floor && self.offset[buffer as usize] == NONE {
                self.trail.push(Step::Least { buffer, least });
                self.least[buffer as usize] = floor;
                self.touch(self.range(buffer as usize));
            }
        }
    }

    /// Gives a buffer the lowest place it can have. `false` if the gap that this leaves below could hold another.
    pub(crate) fn place(&mut self, buffer: usize) -> bool {
        let (offset, size, range) = (self.least[buffer], self.shape.sizes[buffer], self.range(buffer));
        self.offset[buffer] = offset;
        self.trail.push(Step::Place { buffer: buffer as u32 });
        self.left[range.clone()].iter_mut().for_each(|left| *left -= size);
        self.crossing[range.start + 1..range.end].iter_mut().for_each(|count| *count -= 1);
        for section in range.clone() {
            if self.floor[section] < offset {
                self.move_floor(section, offset, self.solid[section]);
            }
        }
        if range.clone().any(|section| self.wastes_a_place(section)) {
            return false;
        }
        for section in range {
            self.raise(section, offset + size, offset + size);
        }
        true
    }

    /// Leaves a section's floor up to `floor` empty. `false` if the gap could hold a buffer.
    pub(crate) fn waste(&mut self, section: usize, floor: Units) -> bool {
        self.raise(section, floor, self.solid[section]);
        !self.wastes_a_place(section)
    }

    /// Whether a buffer without a place, which can only lie higher, would have room in the gap below this section's
    /// floor. The same placement with the buffer moved down there is better, so nobody misses this one.
    fn wastes_a_place(&self, section: usize) -> bool {
        let (floor, solid) = (self.floor[section], self.solid[section]);
        floor > solid
            && self.unplaced(section).any(|buffer| {
                let size = self.shape.sizes[buffer];
                size <= floor - solid && {
                    let range = self.range(buffer);
                    let (mut low, mut high) = (solid, floor);
                    for section in range {
                        low = low.max(self.solid[section]);
                        high = high.min(self.floor[section]);
                        if low + size > high {
                            return false;
                        }
                    }
                    true
                }
            })
    }

    /// Whether a buffer at `floor` would rest on another or on the ground. If none does, the same placement with
    /// the buffer pushed down is at least as good.
    pub(crate) fn supported(&self, buffer: usize, floor: Units) -> bool {
        floor == 0 || self.range(buffer).any(|section| self.solid[section] == floor)
    }

    /// Completes a change: raises the floors that it touched to the lowest place that any of their buffers can have.
    /// The sections that differ from before, or `None` if some section has too little room for what is left or room
    /// that is wasted.
    pub(crate) fn settle(&mut self) -> Option<Range<usize>> {
        let touched = self.touched.clone();
        for section in touched {
            let floor = self.floor[section];
            let least = self.unplaced(section).map(|buffer| self.least[buffer]).min().unwrap_or(NONE);
            if least > floor {
                self.move_floor(section, least, self.solid[section]);
                if self.wastes_a_place(section) {
                    return None;
                }
            }
            if least != NONE && least + self.left[section] > self.shape.capacity {
                self.failures[section] += 1;
                return None;
            }
        }
        Some(self.commit())
    }

    /// As [`settle`](Self::settle) has left it: whether each section, seen alone, can hold what is left when no
    /// buffer starts below its lowest place.
    pub(crate) fn fits_by_release(
        &mut self,
        sections: Range<usize>,
        scratch: &mut Vec<(Units, Units)>,
    ) -> bool {
        for section in sections {
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
