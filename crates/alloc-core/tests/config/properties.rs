//! Settings texts under arbitrary input: never a panic, bounded answers, and what is written reads back.

use alloc_core::config::{
    AllocatorBackend, CrossStream, Flavour, MemoryLimit, ReserveSize, Settings, environment, options,
    pytorch, strict,
};
use alloc_core::types::MIB;
use proptest::prelude::*;

/// Text made of the words and characters that the grammars know, in any order.
fn almost_a_text() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> =
        options().iter().flat_map(|o| std::iter::once(o.name).chain(o.alias)).collect();
    let part = prop_oneof![
        3 => prop::sample::select(names).prop_map(str::to_owned),
        6 => prop::sample::select(vec![":", ",", "[", "]", ":", ","]).prop_map(str::to_owned),
        4 => prop::sample::select(vec![
            "True", "False", "native", "cudaMallocAsync", "0", "1", "20", "64", "0.5", "40G", ">", "-1", "1e400",
            "0x1p-3", "nan", "99999999999999999999", " ", "é", "unlimited", "full", "pytorch", "\u{0}",
            "40GiB", "1.5T", "0.1B", "7GB", "GiB", "99999999999999999999B",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,6}",
    ];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

fn mb() -> impl Strategy<Value = u64> {
    prop_oneof![64..4096u64, Just(u64::MAX / MIB)].prop_map(|mb| mb * MIB)
}

fn or_unlimited() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), mb()]
}

fn reserve() -> impl Strategy<Value = ReserveSize> {
    prop_oneof![
        (1e-300..1e300f64).prop_map(ReserveSize::Fraction),
        (0.0001..2.0f64).prop_map(ReserveSize::Fraction),
        (1..1u64 << 53).prop_map(ReserveSize::Bytes),
        Just(ReserveSize::Bytes(u64::MAX)),
    ]
}

fn limit() -> impl Strategy<Value = Option<MemoryLimit>> {
    prop::option::of(prop_oneof![
        (1e-300..1.0f64).prop_map(MemoryLimit::Fraction),
        Just(MemoryLimit::Fraction(1.0)),
        (1..=u64::MAX).prop_map(MemoryLimit::Bytes),
        (1..1u64 << 20).prop_map(|mb| MemoryLimit::Bytes(mb * MIB)),
    ])
}

fn divisions() -> impl Strategy<Value = [u64; 16]> {
    let one = prop_oneof![Just(0), (0..5u32).prop_map(|n| 1u64 << n), Just(1u64 << 63)];
    // Runs of equal values, as people write them.
    prop::collection::vec((one, 1..9usize), 1..8).prop_map(|runs| {
        let mut all = runs.into_iter().flat_map(|(n, times)| std::iter::repeat_n(n, times)).cycle();
        std::array::from_fn(|_| all.next().unwrap())
    })
}

prop_compose! {
    fn settings()(
        sizes in (12..64u64, or_unlimited(), mb(), prop_oneof![Just(0), mb()], or_unlimited(), or_unlimited()),
        shares in (prop_oneof![Just(0.0), 1e-12..0.999f64], prop_oneof![Just(1.0), 0.0..1.0f64]),
        switches in any::<[bool; 12]>(),
        table in divisions(),
        reserve_all in prop::option::of(reserve()),
        classes in prop::collection::btree_map("[a-zA-Z0-9_.é-]{1,8}", reserve(), 0..4),
        threads in 0..8u32,
        history in 0..=u64::from(u32::MAX),
        limits in (limit(), limit()),
        granule in 0..=1024u64,
    ) -> Settings {
        Settings {
            backend: if switches[0] { AllocatorBackend::DriverPools } else { AllocatorBackend::Native },
            large_segment_size: sizes.0 * MIB,
            max_split_size: sizes.1,
            max_non_split_rounding: if switches[8] { sizes.0 * MIB } else { sizes.2 },
            garbage_collection_threshold: shares.0,
            roundup_power2_divisions: table,
            expandable_segments: switches[1],
            expandable_segments_reserve: reserve_all,
            expandable_segments_reserve_by_class: classes.into_iter().collect(),
            release_lock_on_malloc: switches[2],
            per_process_memory_fraction: shares.1,
            throw_on_oom: switches[3],
            graph_capture_record_stream_reuse: switches[4],
            pinned_use_host_register: switches[5],
            pinned_num_register_threads: 1 << threads,
            pinned_reserve_segment_size: sizes.3,
            pinned_use_background_threads: switches[6],
            pinned_max_round_threshold: sizes.4,
            pinned_max_cached_size: sizes.5,
            pinned_free_catch_all: switches[7],
            history_max_entries: history,
            cross_stream: CrossStream::ALL[usize::from(switches[7])],
            granule_size: granule * MIB,
            segments_ipc: switches[11],
            memory_limit: limits.0,
            memory_soft_limit: limits.1,
            ..Settings::default()
        }
    }
}

fn without_text(settings: Settings) -> Settings {
    Settings { text: String::new(), ..settings }
}

/// Reads one text every way there is; the checks hold for any text.
fn read_all_ways(text: &str) -> Result<(), TestCaseError> {
    for flavour in [Flavour::Cuda, Flavour::Hip] {
        match pytorch::parse(text, &Settings::default(), flavour) {
            Ok(parsed) => {
                prop_assert!(parsed.warnings.len() <= 64);
                prop_assert!(parsed.warnings.iter().all(|w| w.to_string().len() < 600));
                prop_assert_eq!(&parsed.settings.text, text);
                // Nothing is remembered that a second reading would change.
                let again = pytorch::parse(text, &parsed.settings, flavour).unwrap();
                prop_assert_eq!(&again.settings, &parsed.settings);
            }
            Err(e) => {
                prop_assert!(e.to_string().len() < 1200);
                prop_assert!(e.position().is_none_or(|at| at <= text.len()));
            }
        }
    }
    if let Ok(parsed) = strict::parse(text, &Settings::default()) {
        prop_assert!(without_text(parsed.settings.clone()).to_strict_text().is_ok());
        // Whatever the strict grammar takes from PyTorch's options, PyTorch's reads alike.
        if let Ok(lenient) = pytorch::parse(text, &Settings::default(), Flavour::Hip) {
            prop_assert_eq!(lenient.settings, parsed.settings);
        }
    }
    let _ = environment::backend(|_| Some(text.to_owned()), Flavour::Cuda);
    let _ = environment::read(|_| Some(text.to_owned()), Flavour::Cuda);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_string_is_read_or_refused(text in any::<String>()) {
        read_all_ways(&text)?;
    }

    #[test]
    fn any_words_in_any_order_are_read_or_refused(text in almost_a_text()) {
        read_all_ways(&text)?;
    }

    #[test]
    fn what_is_written_reads_back(settings in settings()) {
        let text = settings.to_text().unwrap();
        let back = pytorch::parse(&text, &Settings::default(), Flavour::Cuda).unwrap();
        let own = Settings {
            history_max_entries: settings.history_max_entries,
            cross_stream: settings.cross_stream,
            granule_size: settings.granule_size,
            segments_ipc: settings.segments_ipc,
            memory_limit: settings.memory_limit,
            memory_soft_limit: settings.memory_soft_limit,
            ..back.settings
        };
        prop_assert_eq!(without_text(own), settings.clone());
        let dubious = back.warnings.iter().filter(|w| {
            use alloc_core::config::Warning::{Harm, NoEffect};
            !matches!(w, NoEffect { .. } | Harm { .. })
        });
        prop_assert_eq!(dubious.count(), 0);

        let text = settings.to_strict_text().unwrap();
        let back = strict::parse(&text, &Settings::default()).unwrap();
        prop_assert_eq!(without_text(back.settings), settings);
    }

    #[test]
    fn an_error_and_a_change_never_mix(first in settings(), text in almost_a_text()) {
        // A strict text changes what it names and nothing else: naming nothing changes nothing.
        let kept = strict::parse(" ", &first).unwrap().settings;
        prop_assert_eq!(without_text(kept), first.clone());
        let before = first.clone();
        let _ = pytorch::parse(&text, &first, Flavour::Cuda);
        prop_assert_eq!(first, before);
    }
}

#[test]
fn long_texts_take_bounded_time() {
    for unit in
        ["backend,native,", "[", "expandable_segments_reserve:x,", "roundup_power2_divisions:[", "a:1,"]
    {
        let text = unit.repeat((64 << 10) / unit.len());
        let _ = pytorch::parse(&text, &Settings::default(), Flavour::Cuda);
        let _ = strict::parse(&text, &Settings::default());
    }
    let classes: String = (0..8500).map(|n| format!("{n}:1,")).collect();
    let text = format!("expandable_segments_reserve_by_class:[{classes}]");
    let begin = std::time::Instant::now();
    let parsed = pytorch::parse(&text, &Settings::default(), Flavour::Cuda).unwrap();
    assert_eq!(parsed.settings.expandable_segments_reserve_by_class.len(), 8500);
    assert!(begin.elapsed().as_secs() < 5);
}
