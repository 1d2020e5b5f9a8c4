//! What was live and what was held, over time.

use crate::runs::clock::Clock;
use granule_analysis::Run;
use granule_analysis::run::{Moment, NEVER};
use std::collections::BTreeMap;

/// Streams and pools with counters of their own; a damaged file could name thousands.
const MOST: usize = 32;

/// A figure over time.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) name: String,
    /// Its values, each from a moment on.
    pub(super) points: Vec<(Moment, u64)>,
}

/// The counters of a run, and how many pairs of stream and pool have none.
pub(super) fn of(run: &Run) -> (Vec<Counter>, usize) {
    let mut counters = vec![Counter { name: "live".into(), points: live(run, None) }];
    if run.has_addresses() {
        counters.push(Counter { name: "reserved".into(), points: run.reserved() });
    }
    let places = places(run);
    if places.len() > 1 {
        for place in places.iter().take(MOST) {
            let (stream, pool) = *place;
            let stream = run.streams.get(stream as usize).copied().unwrap_or(u64::from(stream));
            let pool = run.pools.get(pool as usize).map(ToString::to_string).unwrap_or_default();
            let of = format!("stream {stream:#x}, pool {pool}");
            counters.push(Counter { name: format!("live: {of}"), points: live(run, Some(*place)) });
            if run.has_addresses() {
                counters.push(Counter { name: format!("reserved: {of}"), points: reserved(run, *place) });
            }
        }
    }
    (counters, if places.len() > 1 { places.len().saturating_sub(MOST) } else { 0 })
}

/// Pairs of stream and pool, those with most bytes first.
fn places(run: &Run) -> Vec<(u32, u32)> {
    let mut bytes: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let lives = run.allocations.iter().map(|life| (life.stream, life.pool, life.size));
    let spans = run.spans.iter().map(|span| (span.stream, span.pool, span.size));
    for (stream, pool, size) in lives.chain(spans) {
        let sum = bytes.entry((stream, pool)).or_default();
        *sum = sum.saturating_add(size);
    }
    let mut places: Vec<_> = bytes.into_iter().collect();
    places.sort_by_key(|(place, bytes)| (std::cmp::Reverse(*bytes), *place));
    places.into_iter().map(|(place, _)| place).collect()
}

/// Bytes that were live, of one place or of all.
fn live(run: &Run, place: Option<(u32, u32)>) -> Vec<(Moment, u64)> {
    let is_counted = |index: usize| {
        let life = &run.allocations[index];
        place.is_none_or(|place| place == (life.stream, life.pool))
    };
    let older = (0..run.allocations.len())
        .take_while(|index| run.allocations[*index].is_older())
        .filter(|index| run.allocations[*index].is_live(0));
    let mut live = older
        .filter(|index| is_counted(*index))
        .fold(0_u64, |sum, index| sum.saturating_add(run.allocations[index].size));
    let mut points = vec![(0, live)];
    for change in run.changes().filter(|change| is_counted(change.allocation)) {
        let size = run.allocations[change.allocation].size;
        live = if change.begins { live.saturating_add(size) } else { live.saturating_sub(size) };
        push(&mut points, change.at, live);
    }
    points
}

/// Bytes that were held from the device for one place.
fn reserved(run: &Run, place: (u32, u32)) -> Vec<(Moment, u64)> {
    let spans = run.spans.iter().filter(|span| (span.stream, span.pool) == place).copied().collect();
    let part = Run { spans, ..Run::default() };
    let mut points = part.reserved();
    points.retain(|(at, _)| *at != NEVER);
    points
}

/// The values by time, the last one of each time.
pub(super) fn on_axis(points: &[(Moment, u64)], clock: &Clock) -> Vec<(i64, u64)> {
    let mut timed = Vec::with_capacity(points.len());
    for (at, value) in points {
        push(&mut timed, clock.on_axis(*at), *value);
    }
    timed
}

fn push<T: PartialEq>(points: &mut Vec<(T, u64)>, at: T, value: u64) {
    match points.last_mut() {
        Some(last) if last.0 == at => last.1 = value,
        _ => points.push((at, value)),
    }
}

/// At most about `most` points: of each stretch the first highest and the last, so that every peak is there.
pub(super) fn thin(points: &[(i64, u64)], most: usize) -> Vec<(i64, u64)> {
    if points.len() <= most {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil((most / 2).max(1));
    let mut kept = Vec::with_capacity(most);
    for part in points.chunks(stretch) {
        let Some(last) = part.last() else { continue };
        let highest = part.iter().fold(&part[0], |best, point| if point.1 > best.1 { point } else { best });
        kept.push(*highest);
        if highest.0 != last.0 {
            kept.push(*last);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::thin;

    #[test]
    fn thinning_keeps_peaks_and_the_end() {
        let points: Vec<_> = (0..1000).map(|at| (at, if at == 777 { 5000 } else { at as u64 })).collect();
        let kept = thin(&points, 100);
        assert!(kept.len() <= 100, "{}", kept.len());
        assert!(kept.contains(&(777, 5000)));
        assert_eq!(kept.last(), points.last());
        assert!(kept.is_sorted_by_key(|(at, _)| *at));
        assert_eq!(thin(&points, 1000), points);
    }
}
