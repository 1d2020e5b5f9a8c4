//! Requests that were refused when a trace was recorded, and what a program needs without them.

use super::{Event, Trace};
use alloc_core::round::size_text;
use rustc_hash::{FxHashMap, FxHashSet};
use std::borrow::Cow;

/// What sets a limit below the device's memory, as notes of `granule estimate` name it.
pub const FRACTION: &str = "torch.cuda.set_per_process_memory_fraction";

/// A request that was refused when it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotServed {
    /// The event that stands in its place, counted from 0: the flush that it caused.
    pub at: usize,
    /// Bytes as requested.
    pub size: u64,
    /// The stream it was for.
    pub stream: u32,
    /// The pool it was for; 0 is the common one.
    pub pool: u32,
    /// Bytes that the process could have then; 0 where that is unknown.
    pub limit: u64,
}

/// The sizes of the first of these requests, and how many more there are, for people.
#[must_use]
pub fn sizes(left: &[NotServed]) -> String {
    const SHOWN: usize = 4;
    let mut sizes: Vec<_> = left.iter().take(SHOWN).map(|one| size_text(one.size)).collect();
    sizes.extend((left.len() > SHOWN).then(|| format!("{} more", left.len() - SHOWN)));
    sizes.join(", ")
}

/// Which requests a program did without, for people; `None` if there are none.
#[must_use]
pub fn did_without(left: &[NotServed]) -> Option<String> {
    let (were, they) = match left.len() {
        0 => return None,
        1 => ("1 request was".to_owned(), "it is"),
        many => (format!("{many} requests were"), "they are"),
    };
    Some(format!(
        "{were} refused when it was recorded, of {}; the program went on, so {they} no part of what it needs",
        sizes(left)
    ))
}

impl Trace {
    /// The requests that the program needs, and those that were refused and that it did without: it was served another one
    /// later.
    #[must_use]
    pub fn demand(&self) -> (Cow<'_, Self>, Vec<NotServed>) {
        let survived = survived(&self.events);
        self.without(|id| survived.contains(&id))
    }

    /// The requests that were served when it was recorded, and the others.
    #[must_use]
    pub fn served(&self) -> (Cow<'_, Self>, Vec<NotServed>) {
        self.without(|_| true)
    }

    /// Without those of the refused requests, by their numbers, that it `leaves`. Each has had the cache flushed before that.
    #[must_use]
    pub fn without(&self, leaves: impl Fn(u64) -> bool) -> (Cow<'_, Self>, Vec<NotServed>) {
        let gone = refused(&self.events).filter(|id| leaves(*id));
        let mut gone: FxHashMap<u64, (u64, u32, u32)> = gone.map(|id| (id, (0, 0, 0))).collect();
        let (mut left, mut pool) = (Vec::new(), 0);
        if gone.is_empty() {
            return (Cow::Borrowed(self), left);
        }
        let mut events = Vec::with_capacity(self.events.len());
        for event in &self.events {
            pool = event.pool_after(pool);
            let asked = match event {
                Event::Alloc { id, .. } | Event::RecordStream { id, .. } | Event::Refused { id, .. } => {
                    gone.get_mut(id)
                }
                _ => None,
            };
            match (*event, asked) {
                (Event::Alloc { size, stream, .. }, Some(asked)) => *asked = (size, stream, pool),
                (Event::Refused { limit, .. }, Some(&mut (size, stream, pool))) => {
                    left.push(NotServed { at: events.len(), size, stream, pool, limit });
                    events.push(Event::EmptyCache);
                }
                (_, Some(_)) => {}
                (event, None) => events.push(event),
            }
        }
        let mut header = self.header.clone();
        let fewer = (self.events.len() - events.len()) as u64;
        header.events = header.events.map(|count| count.saturating_sub(fewer));
        (Cow::Owned(Self { header, events }), left)
    }
}

fn refused(events: &[Event]) -> impl Iterator<Item = u64> {
    events.iter().filter_map(|event| match event {
        Event::Refused { id, .. } => Some(*id),
        _ => None,
    })
}

/// The refused requests behind which another one was served.
pub(super) fn survived(events: &[Event]) -> FxHashSet<u64> {
    let all: FxHashSet<u64> = refused(events).collect();
    let served = |event: &Event| matches!(event, Event::Alloc { id, .. } if !all.contains(id));
    let last = if all.is_empty() { None } else { events.iter().rposition(served) };
    refused(&events[..last.unwrap_or(0)]).collect()
}

#[cfg(test)]
mod tests {
    use super::{NotServed, Trace};
    use crate::trace::Event;

    /// As a program that halves its batch until it is served, and is refused once more at the end.
    const HALVES: &str =
        "# {\"events\":8}\na 0 20 0\na 1 128 3\nx 1 80\na 2 64 0\nx 2 80\na 3 32 0\na 4 99 0\nx 4 0\n";

    #[test]
    fn what_a_program_did_without_is_no_demand() {
        let trace = Trace::from_reader(HALVES.as_bytes()).unwrap();
        let (demand, survived) = trace.demand();
        let of = |at, size, stream, limit| NotServed { at, size, stream, pool: 0, limit };
        assert_eq!(survived, [of(1, 128, 3, 80), of(2, 64, 0, 80)]);
        assert_eq!(demand.events[1..3], [Event::EmptyCache; 2]);
        assert_eq!((demand.events.len(), demand.is_cut(), demand.refusals().0), (6, false, 1));
        let (served, refused) = trace.served();
        assert_eq!((served.events.len(), served.refusals().0), (5, 0));
        assert_eq!(refused.last(), Some(&of(4, 99, 0, 0)));
        let mut trace = trace;
        trace.summarise();
        let header = &trace.header;
        assert_eq!(
            (header.peak_live_requested, header.live_at_end, header.allocs),
            (Some(151), Some(52), Some(5))
        );
    }

    #[test]
    fn what_was_refused_nothing_is_not_copied() {
        let trace = Trace::from_reader(&b"# {}\na 0 20 0\n"[..]).unwrap();
        assert!(matches!(trace.served().0, std::borrow::Cow::Borrowed(_)));
    }
}
