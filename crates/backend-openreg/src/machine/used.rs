//! Which ranges of addresses work uses that is not done.

use crate::machine::work::Spans;
use crate::space::Span;
use backend_api::steps::step;
use std::collections::BTreeSet;
use std::num::NonZeroU64;

/// A use: its [class](class_of), its range, for whom, on which stream, and by which operation.
type Use = (u32, u64, u64, Option<NonZeroU64>, u64, u64);

/// The ranges that queued and running operations use.
#[derive(Debug, Default)]
pub(crate) struct Used(BTreeSet<Use>);

/// Ranges of a class are shorter than this power of two.
fn class_of(span: &Span) -> u32 {
    u64::BITS - (span.end - span.start).leading_zeros()
}

/// The uses of an operation.
fn each(uses: &Spans, stream: u64, sequence: u64) -> impl Iterator<Item = Use> {
    let spans = uses.iter().filter(|span| span.start < span.end);
    spans.map(move |span| (class_of(span), span.start, span.end, span.user, stream, sequence))
}

impl Used {
    /// An operation is queued on a stream.
    pub(crate) fn begin(&mut self, uses: &Spans, stream: u64, sequence: u64) {
        self.0.extend(each(uses, stream, sequence));
    }

    /// It is done.
    pub(crate) fn end(&mut self, uses: &Spans, stream: u64, sequence: u64) {
        for of in each(uses, stream, sequence) {
            self.0.remove(&of);
        }
    }

    /// Whether any of a range is used for a user that `counts`, on a stream where `is` holds of the last operation that does
    /// so. What does not count is passed over at once, however many streams it is.
    pub(crate) fn is_used(
        &self,
        span: Span,
        counts: impl Fn(Option<NonZeroU64>) -> bool,
        is: impl Fn(u64, u64) -> bool,
    ) -> bool {
        let first = |class: u32| span.start.saturating_sub(1_u64.checked_shl(class).unwrap_or(u64::MAX));
        let mut from = (0, 0, 0, None, 0, 0);
        while let Some(&(class, start, end, user, stream, _)) = self.0.range(from..).next() {
            step();
            from = if start < first(class) {
                (class, first(class), 0, None, 0, 0)
            } else if start >= span.end {
                (class + 1, 0, 0, None, 0, 0)
            } else if end <= span.start || !counts(user) {
                (class, start, end, user, u64::MAX, u64::MAX)
            } else {
                let behind = (class, start, end, user, stream, u64::MAX);
                let last = self.0.range(..behind).next_back();
                if last.is_some_and(|(.., last)| is(stream, *last)) {
                    return true;
                }
                behind
            };
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::steps;

    /// A use of one range.
    fn spans(start: u64, bytes: u64, user: u64) -> Spans {
        [Span { user: NonZeroU64::new(user), ..Span::new(start, bytes) }, Span::default()]
    }

    #[test]
    fn agrees_with_a_linear_scan() {
        let (mut used, mut all) = (Used::default(), Vec::new());
        let mut seed = 1_u64;
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        for sequence in 0..4000 {
            if below(3) == 0 && !all.is_empty() {
                let at = below(all.len() as u64) as usize;
                let (uses, stream, sequence) = all.swap_remove(at);
                used.end(&uses, stream, sequence);
            }
            let most = 1 << below(10);
            let (uses, stream) = (spans(below(2000), below(most), below(4)), below(5));
            used.begin(&uses, stream, sequence);
            all.push((uses, stream, sequence));
            let (asked, not, after) =
                (Span::new(below(2000), 1 + below(200)), NonZeroU64::new(below(4)), below(4000));
            let counts = |user: Option<NonZeroU64>| user != not;
            let is = |stream: u64, last: u64| stream != 0 && last > after;
            let expected = all.iter().any(|([used, _], stream, sequence)| {
                let overlaps = used.start < asked.end && asked.start < used.end && used.start < used.end;
                overlaps && counts(used.user) && is(*stream, *sequence)
            });
            assert_eq!(used.is_used(asked, counts, is), expected);
        }
    }

    #[test]
    fn many_streams_of_one_user_are_passed_over_at_once() {
        let mut used = Used::default();
        (0..1000).for_each(|stream| used.begin(&spans(512, 512, 7), stream, stream));
        let before = steps::taken();
        assert!(!used.is_used(Span::new(512, 512), |user| user.is_none(), |_, _| true));
        assert!(steps::taken() - before < 4, "or builds count nothing");
    }
}
