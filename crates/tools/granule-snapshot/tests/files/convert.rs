//! Histories as traces.

use alloc_core::snapshot::{
    Action, BlockInfo, BlockState, HistoryStatus, Labels, SegmentInfo, Snapshot, TraceEntry,
};
use alloc_core::types::PoolId;
use granule_snapshot::convert::{self, ConvertError};
use granule_snapshot::trace::Event;
use std::sync::Arc;

fn entry(action: Action, addr: u64, size: u64, stream: u64) -> TraceEntry {
    TraceEntry {
        action,
        addr,
        size,
        stream,
        time_us: 0,
        labels: Arc::new(Labels { pool_id: Some(PoolId::DEFAULT), ..Labels::default() }),
        frames: None,
    }
}

fn block(address: u64, requested_size: u64, state: BlockState) -> BlockInfo {
    BlockInfo { address, size: 1024, requested_size, state, frames: None, extra: Vec::new() }
}

fn segment(blocks: Vec<BlockInfo>) -> SegmentInfo {
    SegmentInfo {
        device: 0,
        address: 0,
        total_size: 4096,
        allocated_size: 0,
        active_size: 0,
        requested_size: 0,
        stream: 77,
        segment_type: "small".into(),
        pool_id: PoolId::DEFAULT,
        is_expandable: false,
        registration: None,
        frames: None,
        blocks,
        extra: Vec::new(),
    }
}

#[test]
fn a_whole_history_is_exact() {
    let history = vec![
        entry(Action::SegmentAlloc, 0, 2 << 20, 0),
        entry(Action::Alloc, 0, 100, 0),
        entry(Action::Alloc, 512, 200, 9),
        entry(Action::FreeRequested, 0, 100, 0),
        entry(Action::FreeCompleted, 0, 100, 0),
        entry(Action::Alloc, 0, 300, 5),
    ];
    let status = HistoryStatus { recorded: true, complete: true, ..HistoryStatus::default() };
    let snapshot = Snapshot { device_traces: vec![history], history: Some(status), ..Snapshot::default() };
    let converted = convert::to_trace(&snapshot, 0).unwrap();
    assert!(converted.exact, "{:?}", converted.reasons);
    assert_eq!(
        converted.trace.events,
        [
            Event::Alloc { id: 0, size: 100, stream: 0 },
            Event::Alloc { id: 1, size: 200, stream: 1 },
            Event::Free { id: 0 },
            Event::Alloc { id: 2, size: 300, stream: 2 },
        ]
    );
    assert_eq!(converted.trace.header.peak_live_requested, Some(500));
}

#[test]
fn what_was_live_before_comes_first_by_address() {
    let history = vec![
        entry(Action::FreeRequested, 2048, 30, 5),
        entry(Action::Alloc, 4096, 40, 5),
        entry(Action::FreeCompleted, 2048, 30, 5),
        entry(Action::SegmentFree, 1 << 30, 2 << 20, 0),
        entry(Action::Oom, 0, 9, 0),
    ];
    let blocks = vec![
        block(0, 10, BlockState::ActiveAllocated),
        block(1024, 20, BlockState::Inactive),
        block(2048, 30, BlockState::Inactive),
        block(4096, 40, BlockState::ActiveAllocated),
    ];
    let snapshot =
        Snapshot { segments: vec![segment(blocks)], device_traces: vec![history], ..Snapshot::default() };
    let converted = convert::to_trace(&snapshot, 0).unwrap();
    assert_eq!(
        converted.trace.events,
        [
            Event::Alloc { id: 0, size: 10, stream: 1 },
            Event::Alloc { id: 1, size: 30, stream: 2 },
            Event::Free { id: 1 },
            Event::Alloc { id: 2, size: 40, stream: 2 },
            Event::Alloc { id: 3, size: 9, stream: 0 },
            Event::Refused { id: 3, limit: 0 },
        ]
    );
    let counts = converted.counts;
    assert!(!converted.exact);
    assert_eq!(
        (counts.live_before, counts.delayed_frees, counts.segments_returned, counts.refused),
        (2, 1, 1, 1)
    );
    assert_eq!(converted.reasons.len(), 5, "{:?}", converted.reasons);
}

/// Entries name their pool since PyTorch 2.12; before that the segments at the end do. Where a pool's memory leaves, it has ended.
#[test]
fn private_pools_are_pools_of_the_trace() {
    let named = |action, addr, pool| TraceEntry {
        labels: Arc::new(Labels { pool_id: pool, ..Labels::default() }),
        ..entry(action, addr, 100, 0)
    };
    let pool = PoolId(3, 0);
    let history = |pool, common| {
        vec![
            named(Action::SegmentAlloc, 0, common),
            named(Action::Alloc, 8192, common),
            named(Action::Alloc, 0, pool),
            named(Action::Alloc, 100, pool),
        ]
    };
    let events = [
        Event::Alloc { id: 0, size: 100, stream: 0 },
        Event::Pool { pool: 1 },
        Event::Alloc { id: 1, size: 100, stream: 0 },
        Event::Alloc { id: 2, size: 100, stream: 0 },
    ];
    let status = HistoryStatus { recorded: true, complete: true, ..HistoryStatus::default() };
    let private = SegmentInfo { pool_id: pool, ..segment(Vec::new()) };
    let converted = |history| {
        let snapshot = Snapshot {
            segments: vec![private.clone()],
            device_traces: vec![history],
            history: Some(status.clone()),
            ..Snapshot::default()
        };
        convert::to_trace(&snapshot, 0).unwrap()
    };
    let exact = converted(history(Some(pool), Some(PoolId::DEFAULT)));
    assert_eq!((&exact.trace.events[..], exact.exact), (&events[..], true), "{:?}", exact.reasons);
    let inferred = converted(history(None, None));
    assert_eq!((&inferred.trace.events[..], inferred.counts.inferred_pool_requests), (&events[..], 2));
    assert!(inferred.reasons.iter().any(|reason| reason.contains("at least")), "{:?}", inferred.reasons);
    let ends = [named(Action::SegmentFree, 0, Some(pool)), named(Action::SegmentFree, 4096, Some(pool))];
    let ended = converted([history(Some(pool), Some(PoolId::DEFAULT)), ends.to_vec()].concat());
    assert_eq!(ended.trace.events[4..], [Event::PoolEnds { pool: 1 }, Event::EmptyPool { pool: 1 }]);
}

/// One that refused a request comes first, else the one that held most, with or without a history.
#[test]
fn the_device_that_matters_comes_first() {
    let held = |device, total_size| SegmentInfo { device, total_size, ..segment(Vec::new()) };
    let used = || vec![entry(Action::Alloc, 0, 4, 0)];
    let order = |histories: Vec<Vec<TraceEntry>>| {
        let snapshot = Snapshot {
            segments: vec![held(0, 2 << 20), held(1, 8 << 20), held(2, 4 << 20)],
            device_traces: histories,
            ..Snapshot::default()
        };
        convert::devices(&snapshot).iter().map(|one| one.device).collect::<Vec<_>>()
    };
    assert_eq!(order(vec![used(), used(), used()]), [1, 2, 0]);
    assert_eq!(order(vec![vec![entry(Action::Oom, 0, 9, 0)], used(), used()]), [0, 1, 2]);
    assert_eq!(order(vec![used(), Vec::new(), used()]), [1, 2, 0]);
    assert_eq!(order(Vec::new()), [1, 2, 0]);
}

#[test]
fn what_was_reserved_is_found_by_walking_back() {
    let history = vec![
        entry(Action::SegmentAlloc, 0, 100, 0),
        entry(Action::SegmentMap, 1000, 30, 0),
        entry(Action::Alloc, 1000, 20, 0),
        entry(Action::SegmentUnmap, 1010, 20, 0),
        entry(Action::SegmentFree, 0, 100, 0),
        entry(Action::SegmentAlloc, 0, 10, 0),
    ];
    let mut here = segment(vec![block(1000, 20, BlockState::ActiveAllocated)]);
    here.total_size = 4096 + 20;
    let elsewhere = SegmentInfo { device: 1, ..segment(Vec::new()) };
    let mut snapshot =
        Snapshot { segments: vec![here, elsewhere], device_traces: vec![history], ..Snapshot::default() };
    let converted = convert::to_trace(&snapshot, 0).unwrap();
    // 4096 were there before, less the 10 and the 10 that are left of the 30, which the history took.
    assert_eq!(converted.recorded.reserved_end, 4116);
    assert_eq!(converted.recorded.reserved_peak, 4116 - 10 + 100 + 20);
    assert!(converted.recorded.window && !converted.recorded.by_granule);

    snapshot.history =
        Some(HistoryStatus { recorded: true, complete: false, overwritten: 5, before_recording: 2 });
    let converted = convert::to_trace(&snapshot, 0).unwrap();
    assert!(converted.recorded.window && converted.recorded.by_granule && !converted.exact);
    let told = &converted.reasons[0];
    assert!(told.contains("5 entries were overwritten") && told.contains("lower bounds"), "{told}");
}

#[test]
fn a_history_that_begins_late_is_noticed_without_its_blocks() {
    let history = vec![entry(Action::Alloc, 0, 100, 0)];
    let snapshot = Snapshot { device_traces: vec![history], ..Snapshot::default() };
    assert!(!convert::to_trace(&snapshot, 0).unwrap().exact);
}

#[test]
fn snapshots_without_history_say_so() {
    let error = convert::to_traces(&Snapshot::default()).unwrap_err();
    assert_eq!(error, ConvertError::NoHistory { device: None });
    assert!(error.to_string().contains("_record_memory_history()"));
    assert_eq!(convert::to_trace(&Snapshot::default(), 1).unwrap_err(), ConvertError::Nothing);
    let history = vec![entry(Action::Oom, 0, 512, 0)];
    let snapshot = Snapshot { device_traces: vec![Vec::new(), history], ..Snapshot::default() };
    let error = convert::to_trace(&snapshot, 7).unwrap_err();
    assert_eq!(error.to_string(), "the snapshot has nothing of device 7, but of device 1");
}
