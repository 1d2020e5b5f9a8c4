//! Both ways of reading history entries give the same, errors included.

#[path = "../../tests/files/models.rs"]
mod models;

use super::entry::Quick;
use super::heap::{Heap, Val};
use super::memo::Memo;
use super::shape::Shape;
use super::{Limits, Protocol, machine, write};
use alloc_core::snapshot::{Action, Labels, Snapshot, TraceEntry};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

fn read(bytes: &[u8], quick: bool) -> Result<Snapshot, String> {
    machine::run(bytes, &Limits::default(), quick)
        .and_then(|(built, root)| built.into_snapshot(root))
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

/// The first alternative, or now and then one of the others.
fn mostly(usual: &'static [u8], others: &'static [&'static [u8]]) -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![20 => Just(usual), 1 => proptest::sample::select(others)]
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

    /// As above, with whole entries, so that most have the shape of the one before, and with memo indexes
    /// that come to mean something else.
    #[test]
    fn any_entries_in_a_row_read_the_same_both_ways(
        parts in proptest::collection::vec((
            mostly(b"}(", &[b"}\x94(", b"}q\x0d("]),
            mostly(b"h\0h\x01", &[b"h\0h\x0b", b"h\0h\x02", b"h\x02h\x01"]),
            mostly(b"h\x02K\x05", &[b"h\x02M\xff\xff", b"h\x02J\xff\xff\xff\xff", b"h\x0cK\x05"]),
            mostly(b"h\x03K\x06h\x04K\0", &[
                b"h\x03\x8a\x01\x7fh\x04K\0", b"h\x04K\x03h\x03K\x01",
                b"h\x03\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xffh\x04K\0",
            ]),
            mostly(b"h\x05K\x07u", &[
                b"h\x05J\xfe\xff\xff\xffu", b"h\x05K\x01h\x06K\0K\0\x86u", b"h\x05K\x01h\x06K\0K\0\x86\x94u",
                b"h\x05K\x01h\x03K\x02u", b"h\x05K\x01h\x0ah\x01u", b"h\x05K\x01h\x0a\x8c\x03N/Aq\x0du",
                b"h\x05K\x01h\x0a\x8c\x03N/A\x94u", b"h\x05K\x01h\x07h\x08u", b"h\x05K\x01h\x0ah\x0du",
            ]),
            mostly(b"", &[
                b"h\x03q\x040", b"h\x0bq\x010", b"h\x05q\x060", b"h\x01q\x0a0", b"h\0r\x0e\0\0\0", b"e]("
            ]), 1usize..4), 1..9),
        gap in any::<bool>(),
    ) {
        let keys = ["action", "alloc", "addr", "size", "stream", "time_us", "pool_id", "frames"];
        let mut bytes = b"\x80\x04(".to_vec();
        for (index, key) in (0..).zip(keys) {
            bytes.extend_from_slice(&[0x8c, key.len() as u8]);
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend_from_slice(&[b'q', index]);
        }
        bytes.extend_from_slice(b"]q\x08\x8c\x01xq\x09\x8c\x0fcompile_contextq\x0a\x8c\x03oomq\x0b");
        bytes.extend_from_slice(if gap { b"\x8c\x0bdevice_freeq\x10" } else { b"\x8c\x0bdevice_freeq\x0c" });
        bytes.extend_from_slice(b"1}\x8c\x08segments]s\x8c\x0ddevice_traces](](");
        for (start, action, addr, sizes, rest, after, times) in parts {
            bytes.extend([start, action, addr, sizes, rest].concat().repeat(times));
            bytes.extend_from_slice(after);
        }
        // What comes after the end is only there to be looked at.
        let _outcome = same(&[&bytes[..], b"ees.", &[b'.'; 200]].concat());
    }
}

#[test]
fn pickles_of_python_read_the_same_both_ways() {
    // Without what Python may change: of equal keys of an open dictionary it keeps one.
    let closed = |snapshot: &Snapshot| -> Vec<TraceEntry> {
        let entries = snapshot.device_traces.iter().flatten();
        entries
            .map(|entry| TraceEntry {
                frames: None,
                labels: Arc::new(Labels { extra: Vec::new(), ..Labels::clone(&entry.labels) }),
                ..entry.clone()
            })
            .collect()
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
    let (mut heap, mut memo) = (Heap::new(), Memo::default());
    let mut shape = None;
    let quick = Quick { rest: &entry[1..], heap: &mut heap, memo: &mut memo, shape: &mut shape };
    let length = quick.entry().expect("a usual entry");
    assert_eq!((heap.next_entry(), length, memo.next()), (Val::Entry(1), entry.len() - 8, 9));
    assert!(shape.is_none(), "the next one refers to these keys instead");
    assert_eq!((heap.entries[0].addr, heap.entries[0].size), (0x7fff_0000_0000, 512));
    // A cut one changes nothing.
    let cut = Quick { rest: &entry[1..70], heap: &mut heap, memo: &mut Memo::default(), shape: &mut None };
    assert!(cut.entry().is_none());
    assert_eq!(heap.entries.len(), 1);
}

#[test]
fn entries_in_a_row_have_one_shape() {
    let entry = |number: u8, size: &[u8]| {
        [b"\x94(h\0h\x01h\x02K", &[number][..], b"h\x03", size, b"h\x04K\0h\x05K\x09h\x06K\0K\0\x86\x94u"]
            .concat()
    };
    let (mut heap, mut memo) = (Heap::new(), Memo::default());
    for key in ["action", "free_completed", "addr", "size", "stream", "time_us", "pool_id"] {
        let text = Val::Text(heap.text(key));
        memo.put(memo.next(), text);
    }
    let mut shape = None;
    for (number, size) in [(7, &b"K\x08"[..]), (8, b"\x8a\x06\x01\0\0\0\0\x7f"), (9, b"J\0\0\x01\0")] {
        let bytes = [&entry(number, size)[..], &[0; 200]].concat();
        let mut learned = shape.clone();
        let known = learned.as_ref().and_then(|shape: &Shape| shape.read(&bytes, &mut heap, &mut memo));
        assert_eq!(known.is_some(), number > 7, "the first one shows the shape");
        if known.is_none() {
            let quick = Quick { rest: &bytes, heap: &mut heap, memo: &mut memo, shape: &mut learned };
            assert_eq!(quick.entry(), Some(bytes.len() - 200));
        }
        shape = learned;
    }
    let read: Vec<_> = heap.entries.iter().map(|entry| (entry.action, entry.addr, entry.size)).collect();
    let freed = Action::FreeCompleted;
    assert_eq!(read, [(freed, 7, 8), (freed, 8, 0x7f00_0000_0001), (freed, 9, 1 << 16)]);
    assert_eq!(memo.next(), 7 + 3 * 2);
    assert!(heap.entries.iter().all(|entry| Arc::ptr_eq(&entry.labels, &heap.entries[0].labels)));
    // With another meaning of a key nothing has that shape any more.
    memo.put(3, Val::Text(0));
    let bytes = [&entry(7, b"K\x08")[..], &[0; 200]].concat();
    assert!(shape.expect("a shape").read(&bytes, &mut heap, &mut memo).is_none());
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
            let limits = Limits::default();
            crate::Input::new(file, &limits)
                .and_then(|mut input| input.read_to_end(&mut bytes))
                .expect("an archive");
            assert!(same(&bytes).is_ok_and(|snapshot| !snapshot.device_traces.is_empty()));
        }
    }
}
