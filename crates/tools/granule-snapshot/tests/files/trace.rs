//! The trace format: round trips, messages, damaged files.

use flate2::{Compression, write::GzEncoder};
use granule_snapshot::pickle::Limits;
use granule_snapshot::trace::{Event, Trace, TraceError, TraceHeader, TraceReader};
use granule_snapshot::{LoadError, Loaded};
use proptest::prelude::*;
use std::io::{BufReader, Write};

fn read(text: &str) -> Result<Trace, TraceError> {
    Trace::from_reader(text.as_bytes())
}

fn message(lines: &str) -> String {
    read(&format!("# {{}}\n{lines}")).expect_err("a wrong line").to_string()
}

#[test]
fn every_event_is_understood() {
    let trace =
        read("# {\"workload\": \"w\", \"new\": [1]}\na 0 40 0\nr 0 3\n\ne\r\ni 18446744073709551615\nf 0")
            .unwrap();
    assert_eq!(
        trace.events,
        [
            Event::Alloc { id: 0, size: 40, stream: 0 },
            Event::RecordStream { id: 0, stream: 3 },
            Event::EmptyCache,
            Event::Iteration { n: u64::MAX },
            Event::Free { id: 0 },
        ]
    );
    assert_eq!(trace.header.workload.as_deref(), Some("w"));
    assert_eq!(trace.header.extra["new"], serde_json::json!([1]));
}

/// Some came back as their neighbours.
#[test]
fn numbers_of_a_header_are_read_to_the_last_bit() {
    for number in ["8.739899877464286e245", "0.30000000000000004", "9007199254740993.0"] {
        let trace = read(&format!("# {{\"new\": {number}}}\n")).unwrap();
        assert_eq!(trace.header.extra["new"].as_f64(), number.parse().ok(), "{number}");
    }
}

#[test]
fn wrong_lines_are_named_with_what_to_do() {
    let cases = [
        ("y 1", "line 2: not an event; expected 'a ID SIZE STREAM'"),
        ("a 0 40", "line 2: the line ends after the size"),
        ("a 0 4k 0", "line 2: the size is not a number"),
        ("a 0 40 0 7", "line 2: the stream is not a number"),
        ("a 0 40 4294967296", "the stream number does not fit 32 bits"),
        ("a 18446744073709551616 1 0", "the id does not fit 64 bits"),
        ("a 0 0 0", "a request of 0 bytes never reaches"),
        ("f -1", "the id is not a number"),
        ("f ", "the id is missing"),
        ("e e", "the pool is not a number"),
        ("p", "not an event"),
        ("p 4294967296", "the pool number does not fit 32 bits"),
        ("x 0 1", "block 0 is given back before"),
        ("a 0 1 0\nx 0", "the line ends after the id"),
        ("a 0 1 0\na 0 1 0", "line 3: request 0 comes after request 0: ids must rise"),
        ("a 5 1 0\na 4 1 0", "line 3: request 4 comes after request 5"),
        ("a 0 1 0\nf 0\nf 0", "line 4: block 0 is given back, but it is not live"),
        ("f 3", "line 2: block 3 is given back before any line requests it"),
        ("r 3 1", "line 2: block 3 is recorded before"),
    ];
    for (lines, expected) in cases {
        let message = message(lines);
        assert!(message.contains(expected), "{lines:?}: {message}");
    }
}

#[test]
fn headers_are_checked() {
    for (text, expected) in [
        ("", "the file is empty"),
        ("a 0 1 0\n", "no header; a trace begins with '# '"),
        ("# {\"events\": \"many\"}\n", "the header is not what it should be"),
        ("# [1]\n", "the header is not what it should be"),
    ] {
        let message = read(text).unwrap_err().to_string();
        assert!(message.starts_with("line 1: ") && message.contains(expected), "{message}");
    }
    assert!(Trace::from_reader(&b"\x80\x04}."[..]).unwrap_err().to_string().contains("pickle"));
}

#[test]
fn a_cut_line_is_told_from_a_cut_trace() {
    let whole = "# {\"events\": 3}\na 0 10 0\na 1 4096 0\nf 0\n";
    let cut = read(&whole[..whole.find("96 0").unwrap()]).unwrap_err().to_string();
    assert!(cut.contains("line 3: the file ends inside this line, after"), "{cut}");
    let shorter = read(&whole[..whole.find("f 0").unwrap()]).unwrap();
    assert!(shorter.is_cut() && shorter.events.len() == 2, "cut between lines by hand is a trace");
}

#[test]
fn damaged_archives_are_told_apart() {
    let lines: String = (0..5000).map(|id| format!("a {id} {} 0\n", id * 977 % 65536 + 1)).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(format!("# {{}}\n{lines}").as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    assert_eq!(Trace::from_reader(&packed[..]).unwrap().events.len(), 5000);
    let cut = Trace::from_reader(&packed[..packed.len() / 2]).unwrap_err();
    assert!(matches!(cut, TraceError::TruncatedGzip { line } if line > 1), "{cut}");
    let mut damaged = packed;
    let middle = damaged.len() - 5;
    damaged[middle] ^= 0x55;
    let damaged = Trace::from_reader(&damaged[..]).unwrap_err();
    assert!(matches!(damaged, TraceError::CorruptGzip { .. }), "{damaged}");
}

#[test]
fn an_archive_of_few_bytes_and_many_events_is_refused_unless_it_is_trusted() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(b"# {}\n").unwrap();
    let events = 2_600_000;
    encoder.write_all(&b"e\n".repeat(events)).unwrap();
    let packed = encoder.finish().unwrap();
    assert!(packed.len() < 10_000);
    let read = Trace::from_reader(&packed[..]).map(|trace| trace.events.len());
    let TraceError::Io { line, source } = read.unwrap_err() else { panic!("another error") };
    assert_eq!(source.kind(), std::io::ErrorKind::FileTooLarge);
    assert!(source.to_string().contains("--trust") && line < 2_400_000, "line {line}: {source}");
    let count = TraceReader::new(&packed[..]).unwrap().filter_map(Result::ok).count();
    assert!(count < 2_400_000, "event by event, too: {count}");
    let trusted = granule_snapshot::load_from_with(&packed[..], "x", &Limits::trusting()).unwrap();
    assert!(matches!(trusted, Loaded::Trace(trace) if trace.events.len() == events));
}

#[test]
fn a_line_without_end_takes_no_memory() {
    let endless =
        b"# {}\na 0 "[..].iter().copied().chain(std::iter::repeat_n(b'1', 1 << 22)).collect::<Vec<_>>();
    assert!(matches!(Trace::from_reader(&endless[..]), Err(TraceError::LineTooLong { line: 2, .. })));
}

#[test]
fn an_error_ends_the_stream() {
    let mut reader = TraceReader::new(&b"# {}\nq\na 0 1 0\n"[..]).unwrap();
    assert!(matches!(reader.next(), Some(Err(TraceError::BadLine { line: 2, .. }))));
    assert!(reader.next().is_none());
}

#[test]
fn load_tells_the_kinds_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert!(matches!(granule_snapshot::load(file("t", b"# {}\ni 1\n")), Ok(Loaded::Trace(_))));
    assert!(matches!(granule_snapshot::load(file("s", b"\x80\x04].")), Ok(Loaded::Snapshot(_))));
    assert!(matches!(granule_snapshot::load(file("p", b"plain text")), Err(LoadError::Unrecognised { .. })));
    assert!(matches!(granule_snapshot::load(file("e", b"")), Err(LoadError::Empty { .. })));
    let missing = granule_snapshot::load(folder.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("none") && missing.contains("check the path"), "{missing}");
    let bad = granule_snapshot::load(file("b", b"# {}\nzzz\n")).unwrap_err().to_string();
    assert!(bad.contains("/b: line 2: not an event"), "{bad}");
}

#[test]
fn an_archive_of_several_recordings_is_refused_wherever_it_comes_from() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/cases/13/ten-several-gz.zip");
    let zip = std::fs::read(path).unwrap();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&zip).unwrap();
    let loaded = [
        granule_snapshot::load(path),
        granule_snapshot::load_from(&zip[..], "a.zip"),
        granule_snapshot::load_from(&encoder.finish().unwrap()[..], "a.zip.gz"),
    ];
    for one in loaded {
        let said = one.expect_err("two recordings").to_string();
        assert!(said.contains(": this zip archive has several files (rank0.pickle.gz, rank1"), "{said}");
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    proptest::collection::vec((0u8..6, any::<u64>(), any::<u32>()), 0..200).prop_map(|steps| {
        let (mut events, mut live, mut next) = (Vec::new(), Vec::new(), 0u64);
        for (kind, number, stream) in steps {
            let chosen = (!live.is_empty()).then(|| number as usize % live.len());
            events.push(match (kind, chosen) {
                (0 | 1, _) => {
                    live.push(next);
                    next += 1 + number % 3;
                    Event::Alloc { id: live[live.len() - 1], size: number.max(1), stream }
                }
                (2, Some(index)) => Event::Free { id: live.swap_remove(index) },
                (3, Some(index)) => Event::RecordStream { id: live[index], stream },
                (4, _) => Event::EmptyCache,
                _ => Event::Iteration { n: number },
            });
        }
        events
    })
}

proptest! {
    #[test]
    fn any_trace_comes_back(events in events(), chunk in 1usize..40) {
        let mut trace = Trace { header: TraceHeader::default(), events };
        trace.summarise();
        let mut file = Vec::new();
        trace.write(&mut file).unwrap();
        prop_assert_eq!(&Trace::from_reader(&file[..]).unwrap(), &trace);
        // Lines that lie across fills of a small buffer.
        let mut text = Vec::new();
        std::io::copy(&mut flate2::read::GzDecoder::new(&file[..]), &mut text).unwrap();
        let reader = TraceReader::from_plain(BufReader::with_capacity(chunk, &text[..])).unwrap();
        prop_assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap(), trace.events);
    }

    #[test]
    fn any_text_ends_well(lines in "([afriex]?[ 0-9\\-]{0,12}\n?){0,20}", bytes: Vec<u8>) {
        let _outcome = read(&format!("# {{}}\n{lines}"));
        let _outcome = Trace::from_reader(&[&b"# {}\n"[..], &bytes].concat()[..]);
        let _outcome = Trace::from_reader(&bytes[..]);
    }
}
