//! Arbitrary snapshots, for the tests of this folder.

use alloc_core::snapshot::{
    Action, BlockInfo, BlockState, Frame, HistoryStatus, Labels, SegmentInfo, Snapshot, Stack, TraceEntry,
    Value,
};
use alloc_core::types::PoolId;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;

/// Texts, with those that files are full of.
fn text() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![
        Just("".into()),
        Just("N/A".into()),
        Just("alloc".into()),
        "\\PC{0,12}".prop_map(Arc::from),
        "[a-z]{250,260}".prop_map(Arc::from),
    ]
}

fn unsigned() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u8>().prop_map(u64::from),
        any::<u32>().prop_map(u64::from),
        any::<u64>(),
        Just(1 << 63)
    ]
}

fn signed() -> impl Strategy<Value = i64> {
    prop_oneof![
        any::<i8>().prop_map(i64::from),
        any::<i32>().prop_map(i64::from),
        any::<i64>(),
        Just(i64::MIN)
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::Bool),
        signed().prop_map(Value::Int),
        // A file tells the two kinds of whole numbers apart by size only.
        ((1u64 << 63)..).prop_map(Value::Unsigned),
        (-1e300..1e300).prop_map(Value::Float),
        text().prop_map(Value::Str),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::List),
            vec(inner.clone(), 0..6).prop_map(Value::Tuple),
            vec((signed().prop_map(Value::Int), inner), 0..4).prop_map(Value::Dict),
        ]
    })
}

/// Unknown keys: different from each other and from the known ones.
fn extra() -> impl Strategy<Value = Vec<(Arc<str>, Value)>> {
    vec(value(), 0..3).prop_map(|values| {
        values
            .into_iter()
            .enumerate()
            .map(|(index, value)| (format!("extra {index}").into(), value))
            .collect()
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    let plain = (text(), text(), unsigned(), Just(Vec::new()));
    let augmented = (text(), text(), unsigned(), extra());
    prop_oneof![4 => plain, 1 => augmented.boxed()].prop_map(|(name, filename, line, extra)| Frame {
        name,
        filename,
        line,
        extra,
    })
}

fn pool() -> impl Strategy<Value = PoolId> {
    prop_oneof![
        Just(PoolId::DEFAULT),
        (unsigned(), unsigned()).prop_map(|(first, second)| PoolId(first, second))
    ]
}

fn entry(stacks: Vec<Stack>) -> impl Strategy<Value = TraceEntry> {
    (
        proptest::sample::select(Action::ALL.to_vec()),
        (unsigned(), unsigned(), unsigned(), signed()),
        (option::of(text()), option::of(text()), option::of(pool())),
        option::of(proptest::sample::select(stacks)),
        prop_oneof![3 => Just(Vec::new()), 1 => extra()],
    )
        .prop_map(
            |(
                action,
                (addr, size, stream, time_us),
                (compile_context, user_metadata, pool_id),
                frames,
                extra,
            )| {
                TraceEntry {
                    action,
                    addr,
                    size: size.min(u64::MAX - addr),
                    stream,
                    time_us,
                    labels: Arc::new(Labels { compile_context, user_metadata, pool_id, extra }),
                    frames,
                }
            },
        )
}

fn segment(stacks: Vec<Stack>) -> impl Strategy<Value = SegmentInfo> {
    // An empty stack of a block is the same as none.
    let stacks: Vec<_> =
        stacks.into_iter().map(|stack| Some(stack).filter(|stack| !stack.is_empty())).collect();
    let state = proptest::sample::select(vec![
        BlockState::ActiveAllocated,
        BlockState::ActivePendingFree,
        BlockState::Inactive,
    ]);
    let frames = proptest::sample::select(stacks);
    let block = (unsigned(), unsigned(), unsigned(), state, frames.clone(), extra()).prop_map(
        |(address, size, requested_size, state, frames, extra)| BlockInfo {
            address,
            size: size.min(u64::MAX - address),
            requested_size,
            state,
            frames,
            extra,
        },
    );
    let sizes = (unsigned(), unsigned(), unsigned(), unsigned(), unsigned(), unsigned());
    (signed(), sizes, (text(), pool(), any::<bool>()), frames, vec(block, 0..5), extra()).prop_map(
        |(device, sizes, (segment_type, pool_id, is_expandable), frames, blocks, extra)| SegmentInfo {
            device,
            address: sizes.0,
            total_size: sizes.1.min(u64::MAX - sizes.0),
            allocated_size: sizes.2,
            active_size: sizes.3,
            requested_size: sizes.4,
            stream: sizes.5,
            segment_type,
            pool_id,
            is_expandable,
            registration: None,
            frames,
            blocks,
            extra,
        },
    )
}

/// Any snapshot that a file can hold.
pub(crate) fn snapshot() -> impl Strategy<Value = Snapshot> {
    vec(vec(frame(), 0..4).prop_map(Stack::from), 1..4).prop_flat_map(|stacks| {
        let history = option::of((any::<bool>(), any::<bool>(), unsigned(), unsigned()));
        (
            vec(segment(stacks.clone()), 0..4),
            vec(vec(entry(stacks.clone()), 0..8), 0..3),
            (extra(), vec(value(), 0..3)),
            vec(segment(stacks.clone()), 0..2),
            vec(entry(stacks), 0..4),
            history,
            extra(),
        )
            .prop_map(
                |(segments, device_traces, open, host_segments, host_traces, history, extra)| Snapshot {
                    segments,
                    device_traces,
                    allocator_settings: open.0,
                    external_annotations: open.1,
                    host_segments,
                    host_traces,
                    history: history.map(|(recorded, complete, overwritten, before_recording)| {
                        HistoryStatus { recorded, complete, overwritten, before_recording }
                    }),
                    extra,
                    ..Snapshot::default()
                },
            )
    })
}
