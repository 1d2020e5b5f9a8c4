use super::{any_run, small, source};
use alloc_core::snapshot::{Action, Frame, Snapshot, TraceEntry};
use granule_analysis::Run;
use granule_export::runs::parquet::Table;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use proptest::prelude::*;
use std::io::Write;
use std::sync::Arc;

fn read(file: Vec<u8>) -> Vec<Row> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

/// The rows of a table of the small run, as `column=value` without what is null.
fn rows(table: Table) -> Vec<String> {
    let (run, notes) = (small(), ["cut".to_owned(), "late".to_owned()]);
    let mut file = Vec::new();
    let written = table.write(&source(&run, &notes), &mut file).unwrap();
    let rows = read(file);
    assert_eq!(rows.len() as u64, written);
    let cell = |(name, value): (&String, &Field)| match value {
        Field::Null => None,
        Field::Str(text) => Some(format!("{name}={}", text.replace('\n', "|"))),
        value => Some(format!("{name}={value}")),
    };
    rows.iter().map(|row| row.get_column_iter().filter_map(cell).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn the_run() {
    let rows = rows(Table::Runs).join("\n");
    for part in [
        "run=monday name=train file=a/train.pickle source=snapshot settings=expandable_segments:True device=1",
        "capacity=17179869184 complete=false notes=cut|late entries=10 began_us=1000000 ended_us=1000090",
        "allocations=4 iterations=2 refusals=1 bytes_requested=550",
        "live_at_begin=100 live_at_end=50 peak_live=600 peak_live_at=3",
        "reserved_at_end=2000 peak_reserved=3000 peak_reserved_at=1 live_at_peak_reserved=100",
    ] {
        assert!(rows.contains(part), "{part}\n{rows}");
    }
}

#[test]
fn iterations() {
    assert_eq!(
        rows(Table::Iterations),
        [
            "run=monday iteration=0 number=5 begins_at=1 ends_at=4 begins_us=1000000 ends_us=1000030 live_at_begin=100 \
             live_at_end=400 growth=300 peak_live=600 peak_live_at=3 peak_reserved=3000 allocations=2 bytes_requested=500 \
             frees=1 bytes_never_freed=0",
            "run=monday iteration=1 number=6 begins_at=4 ends_at=10 begins_us=1000030 ends_us=1000090 live_at_begin=400 \
             live_at_end=50 growth=-350 peak_live=400 peak_live_at=4 peak_reserved=3000 allocations=1 bytes_requested=50 \
             frees=2 bytes_never_freed=50",
        ]
    );
}

#[test]
fn allocations() {
    let rows = rows(Table::Allocations);
    assert_eq!(
        rows[1],
        "run=monday allocation=1 allocated_at=2 freed_at=4 reusable_at=4 allocated_us=1000010 freed_us=1000030 \
         reusable_us=1000030 address=12288 size=200 stream=2748 pool=(0, 3) label=weights iteration=0 live_at_end=false \
         older=false"
    );
    assert!(rows[0].contains("allocated_at=0") && rows[0].ends_with("older=true"), "{}", rows[0]);
    assert!(rows[2].contains("freed_at=6 reusable_at=9"), "{}", rows[2]);
    assert!(rows[3].contains("iteration=1 live_at_end=true") && !rows[3].contains("freed_at"), "{}", rows[3]);
    assert_eq!(rows.len(), 4);
}

#[test]
fn segments() {
    assert_eq!(
        rows(Table::Segments),
        [
            "run=monday taken_at=0 returned_at=8 taken_us=1000000 returned_us=1000070 address=4096 size=1000 stream=0 \
             pool=(0, 0) growable=false older=true",
            "run=monday taken_at=1 taken_us=1000000 address=1099511627776 size=2000 stream=2748 pool=(0, 3) growable=true \
             older=false",
        ]
    );
}

#[test]
fn events() {
    let rows = rows(Table::Events);
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            let moment = row.split("moment=").nth(1).unwrap().split(' ').next().unwrap();
            format!("{moment} {}", row.split("action=").nth(1).unwrap().split(' ').next().unwrap())
        })
        .collect();
    assert_eq!(
        told,
        [
            "1 segment_map",
            "1 iteration",
            "2 alloc",
            "2 annotate",
            "3 alloc",
            "4 free_requested",
            "4 free_completed",
            "4 iteration",
            "5 free_requested",
            "5 free_completed",
            "6 free_requested",
            "6 oom",
            "7 alloc",
            "7 empty_cache",
            "8 segment_free",
            "9 free_completed",
        ]
    );
    assert!(
        rows[2].contains(
            "allocation=1 address=12288 size=200 stream=2748 pool=(0, 3) label=weights iteration=0"
        )
    );
    assert!(rows[3].contains("label=warm-up \"done\""), "{}", rows[3]);
    assert!(
        rows[11].contains(
            "size=1099511627776 device_free=77 stream=0 iteration=1 stack=refused train.py:7|main train.py:40"
        ),
        "{}",
        rows[11]
    );
}

#[test]
fn large_tables_are_written_in_groups() {
    let mut run = small();
    run.allocations = (0..300_000).map(|at| super::life(at + 1, at + 3, 512)).collect();
    let mut file = Vec::new();
    assert_eq!(Table::Allocations.write(&source(&run, &[]), &mut file).unwrap(), 300_000);
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    let groups: Vec<_> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [131_072, 131_072, 37_856]);
}

/// One allocation, asked for by a line of a program through PyTorch.
pub(super) fn asked_for_by_a_program() -> Run {
    let frame = |name: &str, filename: &str, line| Frame {
        name: name.into(),
        filename: filename.into(),
        line,
        extra: Vec::new(),
    };
    let stack = [
        frame("at::empty", "libtorch.so", 0),
        frame("linear", "/env/lib/python3.12/site-packages/torch/nn/functional.py", 10),
        frame("forward", "/home/someone/model.py", 31),
    ];
    let alloc = TraceEntry {
        action: Action::Alloc,
        addr: 4096,
        size: 512,
        stream: 0,
        time_us: 0,
        labels: Arc::default(),
        frames: Some(stack.into()),
    };
    Run::of_snapshot(&Snapshot { device_traces: vec![vec![alloc]], ..Snapshot::default() }, 0)
}

#[test]
fn a_call_site_is_the_line_of_the_program() {
    let run = asked_for_by_a_program();
    let mut file = Vec::new();
    Table::Sites.write(&source(&run, &[]), &mut file).unwrap();
    let [row] = &read(file)[..] else { panic!("one site") };
    let text =
        row.get_column_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
    assert!(
        text.contains(
            r#"function="forward" file="/home/someone/model.py" line=31 frames=3 stack="at::empty "#
        ),
        "{text}"
    );
}

#[test]
fn a_full_disk_is_an_error_as_it_was_reported() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let run = small();
    let error = Table::Events.write(&source(&run, &[]), Full).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error:?}");
}

proptest! {
    #[test]
    fn no_run_is_too_strange(run in any_run()) {
        for table in Table::ALL {
            let mut file = Vec::new();
            let written = table.write(&source(&run, &[]), &mut file).unwrap();
            prop_assert_eq!(read(file).len() as u64, written);
        }
    }
}
