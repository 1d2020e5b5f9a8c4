//! Both ways of reading history entries give the same, errors included.

#[path = "../../tests/common/models.rs"]
mod models;

use super::entry::Quick;
use super::heap::{Heap, Val};
use super::memo::Memo;
use super::{Limits, Protocol, machine, write};
use alloc_core::snapshot::{Snapshot, TraceEntry};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

fn read(bytes: &[u8], quick: bool) -> Result<Snapshot, String> {
    machine::run(bytes, &Limits::default(), quick)
        .and_then(|(heap, root)| heap.into_snapshot(root))
        .map_err(|error| error.to_string())
}

fn same(bytes: &[u8]) -> Result<Snapshot, String> {
    let quick = read(bytes, true);
    assert_eq!(quick, read(bytes, false), "{}", bytes.escape_ascii());
    quick
}

fn written(snapshot: &Snapshot, protocol: Protocol) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(snapshot, &mut bytes, protocol).expect("memory takes everything");
    bytes
}

/// A snapshot as Python's pickle writes it, every entry with a text and a pool of its own as PyTorch has;
/// `None` without Python.
fn by_python(bytes: &[u8], protocol: u8) -> Option<Vec<u8>> {
    let script = "import sys, pickle\n\
        snapshot = pickle.load(sys.stdin.buffer)\n\
        for entry in sum(snapshot['device_traces'], []):\n\
        \tif 'pool_id' in entry: entry['pool_id'] = tuple(list(entry['pool_id']))\n\
        \tif 'compile_context' in entry: entry['compile_context'] = ''.join(list(entry['compile_context']))\n\
        pickle.dump(snapshot, sys.stdout.buffer, int(sys.argv[1]))";
    let mut child = Command::new("python3")
        .args(["-c", script, &protocol.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(bytes).ok()?;
    let output = child.wait_with_output().ok()?;
    assert!(output.status.success());
    Some(output.stdout)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_snapshot_reads_the_same_both_ways(snapshot in models::snapshot()) {
        for protocol in [Protocol::V2, Protocol::V4] {
            prop_assert_eq!(same(&written(&snapshot, protocol)), Ok(snapshot.clone()));
        }
    }

    #[test]
    fn any_damage_reads_the_same_both_ways(
        snapshot in models::snapshot(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        cut: proptest::sample::Index,
    ) {
        let mut bytes = written(&snapshot, Protocol::V4);
        let _outcome = same(&bytes[..cut.index(bytes.len())]);
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
            let _outcome = same(&bytes);
        }
    }

    /// Memo indexes 0 to 9 hold an entry's keys and some values; everything after is chance.
    #[test]
    fn any_operations_after_an_entry_begins_read_the_same_both_ways(
        parts in proptest::collection::vec(proptest::sample::select(vec![
            &b"}"[..], b"}(h\0h\x01h\x02K\x05h\x03K\x06h\x04K\0h\x05K\x07", b"(", b"u", b"e", b"]", b"a", b"s", b"\x94",
            b"h\0", b"h\x01", b"h\x02K\x09", b"h\x06K\0K\0\x86", b"h\x07h\x08", b"h\x08", b"q\x08", b"h\x07h\x0a", b"h\x0a",
            b"q\x0a", b"r\x0b\0\0\0", b"\x8c\x03N/A", b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff", b"\x8a\x01\x80",
            b"N", b"M\x01\x01", b"J\xff\xff\xff\xff", b"0", b"h\x09",
        ]), 0..40),
    ) {
        let keys = ["action", "alloc", "addr", "size", "stream", "time_us", "pool_id", "frames"];
        let mut bytes = b"\x80\x04(".to_vec();
        for (index, key) in (0..).zip(keys) {
            bytes.extend_from_slice(&[0x8c, key.len() as u8]);
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend_from_slice(&[b'q', index]);
        }
        bytes.extend_from_slice(b"]q\x08]q\x091}\x8c\x08segments]s\x8c\x0ddevice_traces](");
        bytes.extend(parts.concat());
        let _outcome = same(&[&bytes[..], b"es."].concat());
        let _outcome = same(&[&bytes[..], b"ues."].concat());
    }
}

#[test]
fn pickles_of_python_read_the_same_both_ways() {
    // Without what Python may change: of equal keys of an open dictionary it keeps one.
    let closed = |snapshot: &Snapshot| -> Vec<TraceEntry> {
        let entries = snapshot.device_traces.iter().flatten();
        entries.map(|entry| TraceEntry { frames: None, extra: Vec::new(), ..entry.clone() }).collect()
    };
    let mut runner = TestRunner::deterministic();
    for _ in 0..6 {
        let snapshot = models::snapshot().new_tree(&mut runner).expect("a snapshot").current();
        let bytes = written(&snapshot, Protocol::V4);
        let mut read = Vec::new();
        for protocol in 2..=5 {
            let Some(bytes) = by_python(&bytes, protocol) else {
                println!("skipped: python3 does not start here");
                return;
            };
            read.push(same(&bytes).expect("a snapshot"));
        }
        assert_eq!(closed(&read[0]), closed(&snapshot));
        assert!(read.iter().all(|other| *other == read[0]));
    }
}

#[test]
fn usual_entries_take_the_quick_way() {
    let entry = b"}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94\x8a\x06\0\0\0\0\xff\x7f\x8c\x04size\x94M\0\x02\
        \x8c\x06stream\x94K\0\x8c\x07time_us\x94J\0\0\0\x01\x8c\x07pool_id\x94K\0K\0\x86\x94u.......";
    let (mut heap, mut memo) = (Heap::new(Limits::default()), Memo::default());
    let (value, length) =
        Quick { rest: &entry[1..], heap: &mut heap, memo: &mut memo }.entry().expect("a usual entry");
    assert_eq!((value, length, memo.next()), (Val::Entry(0), entry.len() - 8, 9));
    assert_eq!((heap.entries[0].addr, heap.entries[0].size), (0x7fff_0000_0000, 512));
    // A cut one changes nothing.
    let cut = Quick { rest: &entry[1..70], heap: &mut heap, memo: &mut Memo::default() };
    assert!(cut.entry().is_none());
    assert_eq!(heap.entries.len(), 1);
}

/// PyTorch's own files, in the folder that `GRANULE_SHARED` names.
#[test]
fn files_of_pytorch_read_the_same_both_ways() {
    let Some(root) = std::env::var_os("GRANULE_SHARED") else {
        println!("skipped: GRANULE_SHARED names no folder");
        return;
    };
    let Ok(files) = std::fs::read_dir(std::path::Path::new(&root).join("snapshots")) else {
        println!("skipped: there are no snapshots in it");
        return;
    };
    for path in files.map(|file| file.expect("a readable folder").path()) {
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(&path).expect("a file");
            crate::gzip::open(file).and_then(|mut input| input.read_to_end(&mut bytes)).expect("an archive");
            assert!(same(&bytes).is_ok_and(|snapshot| !snapshot.device_traces.is_empty()));
        }
    }
}
