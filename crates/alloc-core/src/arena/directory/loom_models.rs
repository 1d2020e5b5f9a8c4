//! The stream table, read without a lock while streams come and go.

use super::*;
use crate::config::Settings;
use crate::sync::models;
use crate::types::BackendId;

fn stream(raw: u64) -> Stream {
    Stream { raw, device: DeviceIndex(0), backend: BackendId(1) }
}

fn directory() -> Directory {
    let policy = Arc::new(Policy::new(&Settings::default(), false));
    Directory::new(
        DeviceIndex(0),
        Arc::default(),
        Template { policy, ages: false, history: HistoryTemplate::default() },
    )
}

/// Number of the arena that the table names for a stream.
fn hinted(directory: &Directory, stream: Stream) -> Option<u16> {
    directory.hint(PoolSlot::DEFAULT, stream).map(|arena| arena.lock().binding().number())
}

/// One stream leaves its place, and another takes it: readers get their own arena or nothing.
#[test]
fn a_place_that_changes_hands_misleads_nobody() {
    models::check(|| {
        let directory = Arc::new(directory());
        let first = |raw| places(hash(key(PoolSlot::DEFAULT, stream(raw)))).next();
        let leaves = stream(1);
        let comes = stream((2..).find(|raw| first(*raw) == first(1)).expect("places are few"));
        directory.make(&ArenaPool::DEFAULT, leaves).expect("there is room");
        let changes = Arc::clone(&directory);
        let writer = loom::thread::spawn(move || {
            changes.retired(PoolSlot::DEFAULT, leaves, 0);
            changes.make(&ArenaPool::DEFAULT, comes).expect("there is room");
        });
        assert!(matches!(hinted(&directory, leaves), None | Some(0)));
        assert!(matches!(hinted(&directory, comes), None | Some(1)));
        writer.join().expect("the writer ends well");
        assert_eq!((hinted(&directory, leaves), hinted(&directory, comes)), (None, Some(1)));
    });
}
