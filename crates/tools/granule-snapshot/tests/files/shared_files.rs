//! Files that PyTorch and its allocator's recordings gave, where they are on the machine: the folder
//! `shared` beside the workspace, or `GRANULE_SHARED`.

use alloc_core::snapshot::{Action, Snapshot};
use granule_snapshot::convert;
use granule_snapshot::pickle::{self, Protocol};
use granule_snapshot::trace::{Event, Trace, TraceReader};
use std::path::{Path, PathBuf};

fn shared(folder: &str) -> Vec<PathBuf> {
    let root = std::env::var_os("GRANULE_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared"), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(root.join(folder)) else {
        println!("skipped: there is no folder of shared {folder} here (GRANULE_SHARED names its parent)");
        return Vec::new();
    };
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    files.sort();
    assert!(!files.is_empty(), "{folder} has no files");
    files
}

fn named(files: &[PathBuf], name: &str) -> Option<Snapshot> {
    let path = files.iter().find(|path| path.to_string_lossy().contains(name))?;
    Some(pickle::read_file(path).expect("a file PyTorch wrote"))
}

#[test]
fn snapshots_of_pytorch_are_equal_after_rewriting() {
    for path in shared("snapshots") {
        let original = pickle::read_file(&path).unwrap();
        assert!(original.extra.is_empty(), "{}: every key of this version is known", path.display());
        for protocol in [Protocol::V2, Protocol::V4] {
            let mut bytes = Vec::new();
            pickle::write(&original, &mut bytes, protocol).unwrap();
            assert!(pickle::read(&bytes[..]).unwrap() == original, "{} {protocol:?}", path.display());
        }
    }
}

#[test]
fn snapshots_of_pytorch_hold_what_their_readme_says() {
    let files = shared("snapshots");
    if let Some(bert) = named(&files, "bert_varlen_expandable") {
        assert_eq!(bert.device_traces[0].len(), 30_000);
        assert!(bert.segments.iter().all(|segment| segment.is_expandable));
        let maps = bert.device_traces[0].iter().filter(|entry| entry.action == Action::SegmentMap);
        assert_eq!(maps.count(), 225);
        assert_eq!(bert.segments.iter().map(|segment| segment.blocks.len()).sum::<usize>(), 1220);
    }
    if let Some(gpt2) = named(&files, "gpt2_train_stacks") {
        assert_eq!((gpt2.device_traces[0].len(), gpt2.segments.len()), (6_000, 313));
        let stacks: Vec<_> = gpt2.device_traces[0].iter().filter_map(|entry| entry.frames.as_ref()).collect();
        let distinct: std::collections::HashSet<_> = stacks.iter().map(|stack| stack.as_ptr()).collect();
        assert!(distinct.len() * 2 < stacks.len(), "{} of {} stacks", distinct.len(), stacks.len());
        let frames = gpt2.segments[0].blocks[0].frames.as_ref().unwrap();
        assert_eq!((&*frames[0].name, frames[0].line), ("__torch_function__", 122));
    }
    if let Some(pools) = named(&files, "graph_pools") {
        let ids: std::collections::HashSet<_> =
            pools.segments.iter().map(|segment| segment.pool_id).collect();
        assert_eq!(ids.len(), 3, "the default pool and two of graphs");
    }
}

#[test]
fn histories_become_traces_that_read_back() {
    for path in shared("snapshots") {
        let snapshot = pickle::read_file(&path).unwrap();
        let converted = convert::to_traces(&snapshot).unwrap().remove(0);
        let mut file = Vec::new();
        converted.trace.write(&mut file).unwrap();
        assert_eq!(Trace::from_reader(&file[..]).unwrap(), converted.trace, "{}", path.display());

        let requests =
            |action| snapshot.device_traces[0].iter().filter(|entry| entry.action == action).count();
        let events = &converted.trace.events;
        let allocs = events.iter().filter(|event| matches!(event, Event::Alloc { .. })).count();
        let frees = events.iter().filter(|event| matches!(event, Event::Free { .. })).count();
        assert_eq!(allocs, requests(Action::Alloc) + converted.counts.live_before as usize);
        assert_eq!(frees, requests(Action::FreeRequested));
        assert_eq!(converted.counts.missing_frees, 0);
        let complete = path.to_string_lossy().contains("graph_pools");
        assert_eq!(converted.counts.live_before == 0, complete, "{:?}", converted.reasons);

        let at_end: u64 = snapshot
            .segments
            .iter()
            .flat_map(|segment| &segment.blocks)
            .filter(|block| block.state == alloc_core::snapshot::BlockState::ActiveAllocated)
            .map(|block| block.requested_size)
            .sum();
        assert_eq!(converted.trace.header.live_at_end, Some(at_end), "{}", path.display());
    }
}

#[test]
fn traces_read_and_their_headers_agree() {
    for path in shared("traces") {
        let trace = Trace::load(&path).unwrap();
        let header = trace.header.clone();
        let name = path.display();
        assert_eq!(header.native.iter().map(|(conf, _)| conf).collect::<Vec<_>>(), ["default", "expandable"]);
        for (_, native) in header.native.iter() {
            assert!(native.min_capacity.is_some() && native.reserved_bytes_peak.is_some(), "{name}");
            assert_eq!(native.marks.len() as u64, header.iterations.unwrap(), "{name}");
        }
        let mut counted = trace.clone();
        counted.summarise();
        assert_eq!(counted.header, header, "{name}: the sums of the header are those of the events");
        assert!(!trace.is_cut());

        let mut rewritten = Vec::new();
        trace.write(&mut rewritten).unwrap();
        let reader = TraceReader::new(&rewritten[..]).unwrap();
        assert_eq!(reader.header(), &header);
        assert!(reader.map(Result::unwrap).eq(trace.events.iter().copied()), "{name}");
    }
}
