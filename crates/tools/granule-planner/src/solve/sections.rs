//! An interval problem cut along time: sections, the moments at which as many buffers as possible are live at once,
//! and components, runs of time that share no buffer with the rest.

use crate::problem::Buffer;

/// The sections of a problem. Every set of buffers that are live together is inside one section's.
#[derive(Debug)]
pub(crate) struct Sections {
    /// For every buffer its first section and the one after its last.
    pub(crate) ranges: Vec<(u32, u32)>,
    /// For every section the buffers that are live in it.
    pub(crate) members: Vec<Vec<u32>>,
}

impl Sections {
    /// Only moments between a start and the next end count: all others see a subset of their neighbours' buffers.
    pub(crate) fn new(buffers: &[Buffer]) -> Self {
        let mut moments: Vec<_> =
            buffers.iter().flat_map(|buffer| [(buffer.upper, false), (buffer.lower, true)]).collect();
        moments.sort_unstable();
        let mut kept: Vec<u64> = Vec::new();
        let mut last_start = None;
        for (at, starts) in moments {
            if starts {
                last_start = Some(at);
            } else {
                kept.extend(last_start.take());
            }
        }
        let section = |at: u64| kept.partition_point(|&moment| moment < at);
        let mut members = vec![Vec::new(); kept.len()];
        let mut ranges = Vec::with_capacity(buffers.len());
        for (buffer, shape) in (0u32..).zip(buffers) {
            let (first, beyond) = (section(shape.lower), section(shape.upper));
            members[first..beyond].iter_mut().for_each(|live| live.push(buffer));
            ranges.push((first as u32, beyond as u32));
        }
        Self { ranges, members }
    }
}

/// Groups of buffers (by index) that no moment joins, each in order of time.
pub(crate) fn components(buffers: &[Buffer]) -> Vec<Vec<u32>> {
    let mut order: Vec<u32> = (0u32..).take(buffers.len()).collect();
    order.sort_by_key(|&index| buffers[index as usize].lower);
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut end = 0;
    for index in order {
        let buffer = &buffers[index as usize];
        match groups.last_mut() {
            Some(group) if buffer.lower < end => group.push(index),
            _ => groups.push(vec![index]),
        }
        end = end.max(buffer.upper);
    }
    groups
}
