//! Contexts of snapshots as they were gathered, trackers of one device, sizes of growable segments.

use alloc_core::config::Settings;
use alloc_core::device::GrowableSize;
use alloc_core::history::{CallContext, Context, HistoryOptions, RecordContext};
use alloc_core::snapshot::{Action, Snapshot, Stack};
use alloc_core::types::{DeviceIndex, GIB, MIB};
use backend_openreg::OpenRegConfig;
use granule_tests::rig::{DEVICE, on_each};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn two() -> OpenRegConfig {
    OpenRegConfig::default().devices(2).capacity(8 * GIB)
}

/// A context with a number, which is counted when it ends.
#[derive(Debug)]
struct Numbered {
    number: usize,
    ended: Arc<AtomicUsize>,
}

impl CallContext for Numbered {
    fn frames(&self) -> Stack {
        Stack::default()
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn number(context: Option<&Context>) -> Option<usize> {
    context.map(|context| (&**context as &dyn Any).downcast_ref::<Numbered>().unwrap().number)
}

fn recording(made: &Arc<AtomicUsize>, ended: &Arc<AtomicUsize>) -> HistoryOptions {
    let (made, ended) = (Arc::clone(made), Arc::clone(ended));
    HistoryOptions::newest(100).with_contexts(RecordContext::All, move || {
        let number = made.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(Numbered { number, ended: Arc::clone(&ended) }))
    })
}

#[test]
fn a_snapshot_has_its_contexts_place_by_place() {
    on_each(&two(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let (made, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        allocator.history().record(&recording(&made, &ended));
        let first = allocator.malloc(3 * MIB, rig.stream()).unwrap();
        let second = allocator.malloc(3 * MIB, rig.stream()).unwrap();
        allocator.free(first).unwrap();

        let (snapshot, contexts) = allocator.history().snapshot_with_contexts(None, true);
        assert_eq!((snapshot.segments.len(), contexts.segments.len()), (1, 1));
        let blocks: Vec<_> = contexts.segments[0].blocks.iter().map(|block| number(block.as_ref())).collect();
        assert_eq!(number(contexts.segments[0].segment.as_ref()), Some(0), "the first request took it");
        assert_eq!(blocks, [None, Some(1), None], "free, the second, free");
        let entries: Vec<_> = snapshot.device_traces[0]
            .iter()
            .zip(&contexts.traces[0])
            .map(|(entry, context)| (entry.action, number(context.as_ref())))
            .collect();
        let expected = [
            (Action::SegmentAlloc, Some(0)),
            (Action::Alloc, Some(0)),
            (Action::Alloc, Some(1)),
            (Action::FreeRequested, Some(2)),
            (Action::FreeCompleted, Some(2)),
        ];
        assert_eq!(entries, expected);
        assert_eq!((snapshot.device_traces.len(), contexts.traces.len()), (2, 2));

        // They live as long as somebody has them.
        allocator.history().record(&HistoryOptions::default());
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(contexts);
        assert_eq!(ended.load(Ordering::Relaxed), 3);
        allocator.free(second).unwrap();
    });
}

#[test]
fn a_snapshot_of_one_pool_or_without_traces_has_only_contexts_of_those() {
    on_each(&two(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let (made, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        allocator.history().record(&recording(&made, &ended));
        let ptr = allocator.malloc(3 * MIB, rig.stream()).unwrap();
        let (snapshot, contexts) = allocator.history().snapshot_with_contexts(None, false);
        assert_eq!((snapshot.device_traces, contexts.traces.len()), (vec![], 0));
        assert_eq!(contexts.segments.len(), 1);
        let nobodys = alloc_core::types::PoolId::fresh();
        let (Snapshot { segments, .. }, contexts) =
            allocator.history().snapshot_with_contexts(Some(nobodys), true);
        assert_eq!((segments.len(), contexts.segments.len()), (0, 0));
        assert!(!contexts.traces[0].is_empty(), "the history is that of all pools");
        allocator.free(ptr).unwrap();
    });
}

#[test]
fn a_tracker_of_one_device_sees_no_other() {
    on_each(&two(), |rig| {
        let allocator = rig.allocator(Settings::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        for device in [DEVICE, DeviceIndex(1)] {
            let seen = Arc::clone(&seen);
            let note = move |entry: &alloc_core::snapshot::TraceEntry, _: Option<&Context>| {
                seen.lock().unwrap().push((device, entry.action));
            };
            allocator.hooks().on_trace_of(device, note).unwrap();
        }
        let ptr = allocator.malloc(512, rig.stream()).unwrap();
        assert_eq!(*seen.lock().unwrap(), [(DEVICE, Action::SegmentAlloc), (DEVICE, Action::Alloc)]);
        allocator.free(ptr).unwrap();
        assert!(allocator.hooks().on_trace_of(DeviceIndex(2), |_, _| ()).is_err());
    });
}

#[test]
fn growable_sizes_are_bytes_with_memory_by_stream_and_tier() {
    on_each(&two(), |rig| {
        let growable = Settings { expandable_segments: true, ..Settings::default() };
        let allocator = rig.allocator(growable);
        assert_eq!(allocator.statistics().growable_sizes(DEVICE).unwrap(), []);
        let stream = rig.stream();
        let small = allocator.malloc(512, stream).unwrap();
        let large = allocator.malloc(30 * MIB, stream).unwrap();
        let size = |is_small, bytes| GrowableSize { stream: stream.raw, is_small, bytes };
        assert_eq!(
            allocator.statistics().growable_sizes(DEVICE).unwrap(),
            [size(false, 40 * MIB), size(true, 2 * MIB)]
        );
        allocator.free(large).unwrap();
        assert_eq!(
            allocator.statistics().growable_sizes(DEVICE).unwrap()[0],
            size(false, 40 * MIB),
            "cached"
        );
        allocator.empty_cache().unwrap();
        assert_eq!(allocator.statistics().growable_sizes(DEVICE).unwrap(), [size(true, 2 * MIB)]);
        assert_eq!(allocator.statistics().growable_sizes(DeviceIndex(1)).unwrap(), []);
        let fixed = rig.allocator(Settings::default());
        let ptr = fixed.malloc(512, stream).unwrap();
        assert_eq!(fixed.statistics().growable_sizes(DEVICE).unwrap(), [], "fixed segments do not grow");
        fixed.free(ptr).unwrap();
        allocator.free(small).unwrap();
    });
}
