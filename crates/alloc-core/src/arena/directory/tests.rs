//! Stream table under threads of the system. Under Miri their loads see old values, too.

use super::*;
use crate::config::Settings;
use crate::types::BackendId;
use std::sync::atomic::AtomicBool;

/// Rounds. Miri takes long for each, and tries more orders.
const ROUNDS: u64 = if cfg!(miri) { 6 } else { 2_000 };

fn stream(raw: u64) -> Stream {
    Stream { raw, device: DeviceIndex(0), backend: BackendId(1) }
}

fn directory() -> Directory {
    let policy = Arc::new(Policy::new(&Settings::default(), false));
    let template = Template { policy, ages: false, history: HistoryTemplate::default() };
    Directory::new(DeviceIndex(0), Arc::default(), template)
}

/// Number of the arena that the table names for a stream.
fn hinted(directory: &Directory, stream: Stream) -> Option<u16> {
    directory.hint(PoolSlot::DEFAULT, stream).map(|arena| arena.lock().binding().number())
}

#[test]
fn readers_find_a_streams_own_arena_or_none_while_streams_come_and_go() {
    let directory = directory();
    let first = |raw| places(hash(key(PoolSlot::DEFAULT, stream(raw)))).next();
    // Two streams that want one place of the table, and take turns in it.
    let two = [stream(1), stream((2..).find(|raw| first(*raw) == first(1)).expect("places are few"))];
    for (number, comes) in (0..).zip(two) {
        let made = directory.make(&ArenaPool::DEFAULT, comes).expect("there is room");
        assert_eq!(made.lock().binding().number(), number);
        directory.retired(PoolSlot::DEFAULT, comes, number);
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    for (number, stream) in (0..).zip(two) {
                        let found = hinted(&directory, stream);
                        assert!(found.is_none_or(|found| found == number), "{found:?} is not {number}");
                    }
                }
            });
        }
        for _ in 0..ROUNDS {
            for (number, comes) in (0..).zip(two) {
                directory.adopted(PoolSlot::DEFAULT, comes, number);
                assert_eq!(hinted(&directory, comes), Some(number));
                directory.retired(PoolSlot::DEFAULT, comes, number);
                assert_eq!(hinted(&directory, comes), None);
            }
        }
        over.store(true, Ordering::Release);
    });
}

#[test]
fn arenas_that_are_made_meanwhile_are_seen_whole() {
    let directory = directory();
    let last = if cfg!(miri) { 4 } else { 600 };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while seen < last {
                if let Some(number) = hinted(&directory, stream(seen)) {
                    assert_eq!(u64::from(number), seen);
                    seen += 1;
                } else if directory.of_stream(PoolSlot::DEFAULT, stream(seen)).is_some() {
                    // The table is full around its place: the registry has it.
                    seen += 1;
                }
                std::hint::spin_loop();
            }
        });
        for raw in 0..last {
            directory.make(&ArenaPool::DEFAULT, stream(raw)).expect("there is room");
        }
        reader.join().expect("the reader ends well");
    });
    assert_eq!(directory.all().len() as u64, last);
}
