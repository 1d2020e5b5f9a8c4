//! Cached segments that PyTorch gives back for a request that misses: old ones, and oversize ones.

/// A cached segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cached<T> {
    pub(crate) id: T,
    pub(crate) bytes: u64,
    /// Searches since it was freed.
    pub(crate) age: u64,
}

/// The segments that are at least as old as the average, again and again, until they come to `target` bytes (reference
/// §3.5, `garbage_collect_cached_blocks`).
pub(crate) fn oldest<T>(mut cached: Vec<Cached<T>>, target: u64) -> Vec<Cached<T>> {
    let (mut chosen, mut sum) = (Vec::new(), 0);
    while sum < target && !cached.is_empty() {
        let total: u64 = cached.iter().map(|segment| segment.age).sum();
        #[allow(clippy::cast_precision_loss)]
        let average = total as f64 / cached.len() as f64;
        #[allow(clippy::cast_precision_loss)]
        let (old, young): (Vec<_>, Vec<_>) =
            cached.into_iter().partition(|segment| segment.age as f64 >= average);
        if old.is_empty() {
            break;
        }
        sum += old.iter().map(|segment| segment.bytes).sum::<u64>();
        chosen.extend(old);
        cached = young;
    }
    chosen
}

/// Picks of `cached`, by size ascending, the smallest that alone has `target` bytes; else the largest, down to
/// `oversize`, until the sum does. Returns their places, and true if that is enough (reference §3.5,
/// `release_available_cached_blocks`).
pub(crate) fn enough(cached: &[u64], target: u64, oversize: u64) -> (Vec<usize>, bool) {
    if let Some(one) = cached.iter().position(|bytes| *bytes >= target) {
        return (vec![one], true);
    }
    let (mut places, mut sum) = (Vec::new(), 0);
    for (place, bytes) in cached.iter().enumerate().rev() {
        if sum >= target || *bytes < oversize {
            break;
        }
        sum += bytes;
        places.push(place);
    }
    (places, sum >= target)
}

#[cfg(test)]
mod tests {
    use super::{Cached, enough, oldest};

    #[test]
    fn the_oldest_go_first_and_no_more_than_needed() {
        let cached = |ages: &[u64]| {
            ages.iter().enumerate().map(|(id, age)| Cached { id, bytes: 10, age: *age }).collect::<Vec<_>>()
        };
        let of = |ages: &[u64], target| {
            oldest(cached(ages), target).into_iter().map(|one| one.id).collect::<Vec<_>>()
        };
        assert_eq!(of(&[1, 9, 2, 8], 20), [1, 3], "those above the average of 5");
        assert_eq!(of(&[1, 9, 2, 8], 21), [1, 3, 2], "then those above the average of the others");
        assert_eq!(of(&[3, 3], 1), [0, 1], "of one age, all");
        assert_eq!(of(&[], 1), [0; 0]);
        assert_eq!(of(&[1, 9], 0), [0; 0]);
    }

    #[test]
    fn one_that_does_alone_goes_else_the_largest() {
        assert_eq!(enough(&[4, 6, 9, 20], 8, 5), (vec![2], true));
        assert_eq!(enough(&[4, 6, 9], 15, 5), (vec![2, 1], true));
        assert_eq!(enough(&[4, 6, 9], 18, 5), (vec![2, 1], false), "the smaller ones are not oversize");
        assert_eq!(enough(&[], 1, 0), (vec![], false));
    }
}
