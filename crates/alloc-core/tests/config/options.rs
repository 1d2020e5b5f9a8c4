//! Settings: warnings, the strict grammar, the environment, the option table.

use alloc_core::config::{
    AllocatorBackend, ConfigError, CrossStream, ExceptionClass, Flavour, Grammar, MemoryLimit, PolicyName,
    PytorchRelease, ReserveSize, Settings, Warning, environment, options, pytorch, strict,
};
use alloc_core::types::{GIB, MIB};

fn base() -> Settings {
    Settings::default()
}

fn warnings(text: &str) -> Vec<Warning> {
    pytorch::parse(text, &base(), Flavour::Cuda).unwrap().warnings
}

fn lenient(text: &str) -> Settings {
    pytorch::parse(text, &base(), Flavour::Cuda).unwrap().settings
}

fn exact(text: &str) -> Settings {
    strict::parse(text, &base()).unwrap_or_else(|e| panic!("{text}: {e}")).settings
}

fn refused(text: &str) -> ConfigError {
    strict::parse(text, &base()).map(|p| p.settings).expect_err(text)
}

/// Those of pinned memory.
fn pinned_samples() -> Vec<(&'static str, &'static str, Settings)> {
    vec![
        ("pinned_use_cuda_host_register", "True", Settings { pinned_use_host_register: true, ..base() }),
        ("pinned_use_hip_host_register", "True", Settings { pinned_use_host_register: true, ..base() }),
        ("pinned_num_register_threads", "8", Settings { pinned_num_register_threads: 8, ..base() }),
        (
            "pinned_reserve_segment_size_mb",
            "256",
            Settings { pinned_reserve_segment_size: 256 * MIB, ..base() },
        ),
        ("pinned_use_background_threads", "True", Settings { pinned_use_background_threads: true, ..base() }),
        ("pinned_max_round_threshold_mb", "64", Settings { pinned_max_round_threshold: 64 * MIB, ..base() }),
        ("pinned_max_cached_size_mb", "64", Settings { pinned_max_cached_size: 64 * MIB, ..base() }),
        ("pinned_sizes", "granule", Settings { pinned_sizes: Some(PolicyName::Granule), ..base() }),
        ("pinned_spare", "0.25", Settings { pinned_spare: 0.25, ..base() }),
        ("pinned_free_catch_all", "True", Settings { pinned_free_catch_all: true, ..base() }),
    ]
}

/// Those of what processes agree on.
fn process_samples() -> Vec<(&'static str, &'static str, Settings)> {
    vec![
        ("pytorch_release", "2.11", Settings { pytorch_release: Some(PytorchRelease::V2_11), ..base() }),
        ("publish", "True", Settings { publish: true, ..base() }),
    ]
}

/// A value other than the default for each option, and what it makes of the defaults.
fn samples() -> Vec<(&'static str, &'static str, Settings)> {
    let mut table = [0; 16];
    table[..=6].fill(4);
    table[7..].fill(2);
    let mut samples = [pinned_samples(), process_samples()].concat();
    samples.extend([
        ("backend", "cudaMallocAsync", Settings { backend: AllocatorBackend::DriverPools, ..base() }),
        (
            "large_segment_size_mb",
            "64",
            Settings { large_segment_size: 64 * MIB, max_non_split_rounding: 64 * MIB, ..base() },
        ),
        ("max_split_size_mb", "128", Settings { max_split_size: 128 * MIB, ..base() }),
        ("max_non_split_rounding_mb", "32", Settings { max_non_split_rounding: 32 * MIB, ..base() }),
        ("garbage_collection_threshold", "0.8", Settings { garbage_collection_threshold: 0.8, ..base() }),
        ("roundup_power2_divisions", "[64:4,>:2]", Settings { roundup_power2_divisions: table, ..base() }),
        ("system_root", "/mnt/host", Settings { system_root: "/mnt/host".into(), ..base() }),
        ("expandable_segments", "True", Settings { expandable_segments: true, ..base() }),
        (
            "expandable_segments_reserve",
            "40G",
            Settings { expandable_segments_reserve: Some(ReserveSize::Bytes(40 * GIB)), ..base() },
        ),
        (
            "expandable_segments_reserve_by_class",
            "[kv:0.5,act:2G]",
            Settings {
                expandable_segments_reserve_by_class: vec![
                    ("kv".into(), ReserveSize::Fraction(0.5)),
                    ("act".into(), ReserveSize::Bytes(2 * GIB)),
                ],
                ..base()
            },
        ),
        ("release_lock_on_cudamalloc", "True", Settings { release_lock_on_malloc: true, ..base() }),
        ("release_lock_on_hipmalloc", "True", Settings { release_lock_on_malloc: true, ..base() }),
        ("per_process_memory_fraction", "0.5", Settings { per_process_memory_fraction: 0.5, ..base() }),
        ("throw_on_cudamalloc_oom", "True", Settings { throw_on_oom: true, ..base() }),
        (
            "graph_capture_record_stream_reuse",
            "True",
            Settings { graph_capture_record_stream_reuse: true, ..base() },
        ),
        ("policy", "pytorch", Settings { policy: Some(PolicyName::Pytorch), ..base() }),
        ("history_max_entries", "1000", Settings { history_max_entries: 1000, ..base() }),
        ("cross_stream", "never", Settings { cross_stream: CrossStream::Never, ..base() }),
        ("segments_ipc", "False", Settings { segments_ipc: false, ..base() }),
        ("memory_limit", "40GiB", Settings { memory_limit: Some(MemoryLimit::Bytes(40 * GIB)), ..base() }),
        (
            "memory_soft_limit",
            "0.75",
            Settings { memory_soft_limit: Some(MemoryLimit::Fraction(0.75)), ..base() },
        ),
        ("host_reserve", "6GiB", Settings { host_reserve: Some(MemoryLimit::Bytes(6 * GIB)), ..base() }),
        ("granule_size_mb", "16", Settings { granule_size: 16 * MIB, ..base() }),
    ]);
    samples
}

#[test]
fn c01_every_option_and_alias_is_read_by_the_grammars_it_belongs_to() {
    let samples = samples();
    for option in options() {
        for name in std::iter::once(option.name).chain(option.alias) {
            let (_, value, want) = samples.iter().find(|(known, ..)| *known == name).expect(name);
            let text = format!("{name}:{value}");
            let want = Settings { text: text.clone(), ..want.clone() };
            assert_eq!(exact(&text), want);
            let lenient = pytorch::parse(&text, &base(), Flavour::Cuda);
            match option.grammar {
                Grammar::Pytorch => assert_eq!(lenient.unwrap().settings, want),
                Grammar::Granule => {
                    let error = lenient.unwrap_err();
                    assert!(error.to_string().contains("GRANULE_CONF"), "{error}");
                }
            }
        }
        assert!(!option.help.is_empty() && !option.range.is_empty() && !option.default.is_empty());
    }
}

#[test]
fn dubious_texts_are_taken_with_a_warning() {
    let has = |text: &str, what: fn(&Warning) -> bool| {
        let found = warnings(text);
        assert!(found.iter().any(what), "{text}: {found:?}");
    };
    has(
        "max_split_size_mb:100.7",
        |w| matches!(w, Warning::TrailingGarbage { token, read_as, .. } if token == "100.7" && read_as == "100"),
    );
    has("per_process_memory_fraction:0.5x", |w| matches!(w, Warning::TrailingGarbage { .. }));
    has("max_split_size_mb:1 00", |w| matches!(w, Warning::InnerSpace { position: 18, .. }));
    has(
        "max_split_size_mb,64",
        |w| matches!(w, Warning::Separator { expected: ":", found, position: 17 } if found == ","),
    );
    has("max_split_size_mb:64,max_split_size_mb:65", |w| {
        *w == Warning::Duplicate { option: "max_split_size_mb" }
    });
    has("expandable_segments_reserve_by_class:[a:1,a:2]", |w| matches!(w, Warning::Duplicate { .. }));
    has("max_split_size_mb:-1", |w| matches!(w, Warning::Negative { read_as: u64::MAX, .. }));
    has("large_segment_size_mb:99999999999999", |w| matches!(w, Warning::Saturated { .. }));
    has("expandable_segments_reserve:40M", |w| matches!(w, Warning::InvalidReserve { .. }));
    for (text, name) in [
        ("garbage_collection_threshold:0.8", "garbage_collection_threshold"),
        ("max_non_split_rounding_mb:64", "max_non_split_rounding_mb"),
        ("expandable_segments_reserve:0.5", "expandable_segments_reserve"),
        ("expandable_segments_reserve_by_class:[a:1]", "expandable_segments_reserve_by_class"),
        ("release_lock_on_hipmalloc:True", "release_lock_on_cudamalloc"),
        ("pinned_num_register_threads:4", "pinned_num_register_threads"),
    ] {
        let found = warnings(text);
        let idle = |w: &Warning| matches!(w, Warning::NoEffect { option, .. } if *option == name);
        assert!(found.iter().any(idle), "{text}: {found:?}");
        let found = strict::parse(text, &base()).unwrap().warnings;
        assert!(found.iter().any(idle), "strict {text}: {found:?}");
    }
}

/// Texts of public reports, and others of their kind: what does nothing, and what does what is hardly meant.
#[test]
fn settings_that_do_nothing_or_harm_are_judged() {
    let judged = |text: &str| {
        let own = text.contains("policy");
        let found = if own { strict::parse(text, &base()).unwrap().warnings } else { warnings(text) };
        let judged = found.into_iter().filter_map(|warning| match warning {
            Warning::NoEffect { option, .. } => Some((option, "idle")),
            Warning::Harm { option, .. } => Some((option, "harms")),
            _ => None,
        });
        judged.collect::<Vec<_>>()
    };
    let (split, rounding) = ("max_split_size_mb", "max_non_split_rounding_mb");
    let (gc, divisions) = ("garbage_collection_threshold", "roundup_power2_divisions");
    let fraction = "per_process_memory_fraction";
    for (text, expected) in [
        ("max_split_size_mb:20,large_segment_size_mb:20", &[(split, "harms")][..]),
        ("max_split_size_mb:20", &[(split, "harms")]),
        ("max_split_size_mb:64,large_segment_size_mb:64", &[(split, "harms")]),
        ("max_split_size_mb:21", &[]),
        ("expandable_segments:True,max_split_size_mb:64", &[(split, "harms")]),
        // vLLM writes it: no limit.
        ("expandable_segments:True,max_split_size_mb:17592186044415", &[]),
        ("max_split_size_mb:17592186044415", &[]),
        ("max_split_size_mb:17592186044415,max_non_split_rounding_mb:64", &[(rounding, "idle")]),
        ("max_split_size_mb:64,max_non_split_rounding_mb:64", &[]),
        ("roundup_power2_divisions:1", &[(divisions, "idle")]),
        ("roundup_power2_divisions:[>:1]", &[(divisions, "idle")]),
        ("roundup_power2_divisions:[256:1,>:1]", &[(divisions, "idle")]),
        ("roundup_power2_divisions:[256:0,>:0]", &[]),
        ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", &[]),
        ("garbage_collection_threshold:0.8", &[(gc, "idle")]),
        ("garbage_collection_threshold:0.8,per_process_memory_fraction:0.9", &[]),
        (
            "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9,expandable_segments:True",
            &[(gc, "idle")],
        ),
        ("per_process_memory_fraction:0", &[(fraction, "harms")]),
        ("per_process_memory_fraction:1", &[]),
        (
            "pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:32",
            &[("pinned_max_round_threshold_mb", "harms")],
        ),
        ("pinned_num_register_threads:8", &[("pinned_num_register_threads", "idle")]),
        ("expandable_segments_reserve:0.5", &[("expandable_segments_reserve", "idle")]),
        ("policy:granule,max_split_size_mb:64", &[(split, "idle")]),
        ("policy:granule,roundup_power2_divisions:4", &[(divisions, "idle")]),
    ] {
        assert_eq!(judged(text), expected, "{text}");
    }
    assert_eq!(warnings("max_split_size_mb:17592186044416"), [], "2^44, over what bytes can express");
}

#[test]
fn sensible_texts_give_no_warning() {
    for text in [
        "",
        "max_split_size_mb:512",
        "max_split_size_mb:512,",
        " expandable_segments : True ",
        "expandable_segments:True,expandable_segments_reserve:0.5",
        "garbage_collection_threshold:0.8,per_process_memory_fraction:0.5",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "pinned_use_cuda_host_register:True,pinned_num_register_threads:8",
        "backend:cudaMallocAsync",
        "large_segment_size_mb:64,max_split_size_mb:128,max_non_split_rounding_mb:64",
    ] {
        assert_eq!(warnings(text), [], "{text}");
    }
}

#[test]
fn c03_a_later_text_resets_four_options_and_says_so() {
    let first = lenient(
        "max_split_size_mb:64,garbage_collection_threshold:0.5,roundup_power2_divisions:4,\
         max_non_split_rounding_mb:40,per_process_memory_fraction:0.5",
    );
    let next = pytorch::parse("expandable_segments:True", &first, Flavour::Cuda).unwrap();
    let kept = Settings { expandable_segments: true, per_process_memory_fraction: 0.5, ..base() };
    assert_eq!(next.settings, Settings { text: "expandable_segments:True".into(), ..kept });
    let options = vec![
        "max_split_size_mb",
        "max_non_split_rounding_mb",
        "garbage_collection_threshold",
        "roundup_power2_divisions",
    ];
    assert!(next.warnings.contains(&Warning::Reset { options }), "{:?}", next.warnings);

    let next = strict::parse("expandable_segments:True", &first).unwrap();
    let text = "expandable_segments:True".into();
    assert_eq!(next.settings, Settings { expandable_segments: true, text, ..first });
}

#[test]
fn errors_name_the_token_and_what_is_allowed() {
    let e = pytorch::parse("Max_Split_Size_MB:64", &base(), Flavour::Cuda).unwrap_err();
    assert_eq!(e.did_you_mean(), Some("max_split_size_mb"));
    assert_eq!(
        e.to_string(),
        "there is no such option, got 'Max_Split_Size_MB' at byte 0; did you mean 'max_split_size_mb'?"
    );
    let e =
        pytorch::parse("expandable_segments:True,max_split_size_mb:5", &base(), Flavour::Cuda).unwrap_err();
    assert_eq!(
        e.to_string(),
        "max_split_size_mb: the value is out of range, got '5' at byte 43; allowed: a whole number of MiB up to \
         17592186044415, at least large_segment_size_mb"
    );
    assert_eq!(e.class(), ExceptionClass::ValueError);
    let long = format!("{}:1", "x".repeat(1000));
    let e = pytorch::parse(&long, &base(), Flavour::Cuda).unwrap_err();
    assert!(e.to_string().len() < 200, "{e}");
}

#[test]
fn a_text_over_64_kib_is_refused_in_both_grammars() {
    let long = " ".repeat((64 << 10) + 1);
    for error in [pytorch::parse(&long, &base(), Flavour::Cuda).unwrap_err(), refused(&long)] {
        assert_eq!(error.to_string(), "the text has 65537 bytes; at most 65536 are read");
    }
    assert_eq!(lenient(&long[1..]), Settings { text: long[1..].into(), ..base() });
}

#[test]
fn c06_the_backend_is_read_and_cannot_change_under_way() {
    for (text, flavour) in [
        ("backend:cudaMallocAsync", Flavour::Cuda),
        ("backend:cudaMallocAsync", Flavour::Hip),
        ("backend:hipMallocAsync", Flavour::Hip),
    ] {
        let next = pytorch::parse(text, &base(), flavour).unwrap().settings;
        assert_eq!(next.backend, AllocatorBackend::DriverPools);
        let e = base().check_backend_change(&next).unwrap_err();
        assert_eq!(e.class(), ExceptionClass::RuntimeError);
        assert_eq!(
            e.pytorch_message(),
            "Allocator backend parsed at runtime != allocator backend parsed at load time, cudaMallocAsync != native"
        );
        assert_eq!(next.check_backend_change(&next), Ok(()));
        assert!(next.check_backend_change(&base()).is_err());
    }
    let e = pytorch::parse("backend:x", &base(), Flavour::Hip).unwrap_err();
    assert_eq!(
        e.pytorch_message(),
        "Unknown allocator backend, options are native, cudaMallocAsync, and hipMallocAsync"
    );
}

/// What the strict grammar refuses, and what it says.
const REFUSED: &[(&str, &str)] = &[
    ("max_split_size_mb", "max_split_size_mb: expected ':', but the text ends at byte 17"),
    (
        "max_split_size_mb:",
        "max_split_size_mb: expected a value, but the text ends at byte 18; allowed: a whole number",
    ),
    ("max_split_size_mb,64", "max_split_size_mb: expected ':', got ',' at byte 17"),
    ("expandable_segments:True,", "expected an option name, but the text ends at byte 25"),
    (",", "expected an option name, got ',' at byte 0"),
    (
        "expandable_segments:True throw_on_cudamalloc_oom:True",
        "white space inside a word, got 'Truethrow_on_cudamalloc_oom' at byte 20",
    ),
    ("expandable_segments:True:", "expected ',', got ':' at byte 24"),
    ("max_split_size_mb:1 00", "white space inside a word, got '100' at byte 18"),
    (
        "max_split_size_mb:64MB",
        "max_split_size_mb: something follows the number; write it without unit or fraction, got '64MB' at byte 18",
    ),
    ("max_split_size_mb:100.7", "something follows the number"),
    ("max_split_size_mb:-1", "the value is not a whole number, got '-1' at byte 18"),
    ("max_split_size_mb:+64", "the value is not a whole number"),
    ("max_split_size_mb:17592186044416", "the number is too large"),
    ("max_split_size_mb:99999999999999999999", "the number is too large"),
    ("max_split_size_mb:[64]", "expected a value, got '['"),
    ("max_split_size_mb:19", "at least large_segment_size_mb, or unlimited (which is 20)"),
    ("max_split_size_mb:30,large_segment_size_mb:64", "(which is 64)"),
    ("max_non_split_rounding_mb:19", "(which is 20)"),
    (
        "max_split_size_mb:64,max_split_size_mb:64",
        "max_split_size_mb: the option is given twice, got 'max_split_size_mb' at byte 21",
    ),
    ("release_lock_on_cudamalloc:True,release_lock_on_hipmalloc:True", "given twice"),
    (
        "large_segment_size_mb:10",
        "the value is out of range, got '10' at byte 22; allowed: a whole number of MiB from 11",
    ),
    (
        "expandable_segments:true",
        "booleans are written with a capital letter, got 'true' at byte 20; allowed: True or False",
    ),
    ("expandable_segments:1", "the value is not a boolean"),
    ("expandable_segment:True", "did you mean 'expandable_segments'?"),
    ("foo:1", "there is no such option, got 'foo' at byte 0; allowed: backend, large_segment_size_mb,"),
    ("garbage_collection_threshold:1", "out of range"),
    ("garbage_collection_threshold:nan", "the value is not a number"),
    ("garbage_collection_threshold:0x1p-1", "the value is not a number"),
    ("garbage_collection_threshold:0.5x", "the value is not a number"),
    ("per_process_memory_fraction:1.5", "out of range"),
    ("pinned_num_register_threads:3", "out of range"),
    ("pinned_num_register_threads:256", "out of range"),
    ("pinned_num_register_threads:5000000000", "the number is too large"),
    ("history_max_entries:4294967296", "the number is too large"),
    ("policy:granit", "there is no such policy, got 'granit' at byte 7; allowed: pytorch, granule"),
    ("backend:cuda", "there is no such backend"),
    ("roundup_power2_divisions:3", "not a power of two"),
    ("roundup_power2_divisions:[]", "the list is empty"),
    ("roundup_power2_divisions:[64:4", "the list is not closed"),
    ("roundup_power2_divisions:[64:4,]", "expected a boundary in MiB, got ']' at byte 31"),
    ("roundup_power2_divisions:[64,4]", "expected ':', got ',' at byte 28"),
    ("roundup_power2_divisions:[64:4:128:2]", "expected ',', got ':' at byte 30"),
    ("roundup_power2_divisions:[3:4]", "the boundary is not a power of two"),
    ("roundup_power2_divisions:[65536:4]", "the boundary is not a power of two"),
    ("roundup_power2_divisions:[64:3]", "not a power of two, got '3' at byte 29"),
    ("roundup_power2_divisions:[128:4,64:2]", "the boundaries do not rise, got '64' at byte 32"),
    ("roundup_power2_divisions:[>:4]", "'>' needs a boundary before it"),
    ("roundup_power2_divisions:[64:4,>:8,>:2]", "nothing may follow the entry for '>'"),
    ("roundup_power2_divisions:[64:4]]", "expected ',', got ']' at byte 31"),
    ("expandable_segments_reserve:40M", "the value is not a reserve size"),
    ("expandable_segments_reserve:0", "the value is not a reserve size"),
    ("expandable_segments_reserve:inf", "the value is not a reserve size"),
    ("expandable_segments_reserve_by_class:0.5", "the value is not a list"),
    ("expandable_segments_reserve_by_class:[a:x]", "the value is not a reserve size, got 'x' at byte 40"),
    ("expandable_segments_reserve_by_class:[a:1,a:2]", "the class is given twice, got 'a' at byte 42"),
    ("expandable_segments_reserve_by_class:[:1]", "expected a class name"),
];

#[test]
fn the_strict_grammar_refuses_what_is_not_meant() {
    for (text, said) in REFUSED {
        let error = refused(text);
        assert!(error.to_string().contains(said), "{text}\n  {error}\n  {said}");
        assert_eq!(error.class(), ExceptionClass::ValueError);
    }
}

#[test]
fn the_strict_grammar_can_switch_everything_off_again() {
    let on = exact(
        "max_split_size_mb:64,pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:64,\
         garbage_collection_threshold:0.5,pinned_reserve_segment_size_mb:8,roundup_power2_divisions:4,\
         expandable_segments_reserve:0.5,expandable_segments_reserve_by_class:[a:1],history_max_entries:9",
    );
    let off = "max_split_size_mb:unlimited,pinned_max_round_threshold_mb:unlimited,\
               pinned_max_cached_size_mb:unlimited,garbage_collection_threshold:0,\
               pinned_reserve_segment_size_mb:0,roundup_power2_divisions:0,expandable_segments_reserve:full,\
               expandable_segments_reserve_by_class:[],history_max_entries:0";
    let off = strict::parse(off, &on).unwrap().settings;
    assert_eq!(Settings { text: String::new(), ..off }, base());
}

#[test]
fn the_strict_grammar_keeps_limits_consistent_with_the_large_segment_size() {
    let limited = exact("max_split_size_mb:30");
    let e = strict::parse("large_segment_size_mb:64", &limited).unwrap_err();
    assert!(e.to_string().contains("above max_split_size_mb, which is 30"), "{e}");
    let both = strict::parse("large_segment_size_mb:64,max_split_size_mb:64", &limited).unwrap().settings;
    assert_eq!((both.max_split_size, both.max_non_split_rounding), (64 * MIB, 64 * MIB));
    let own = exact("max_non_split_rounding_mb:40");
    assert_eq!(
        strict::parse("large_segment_size_mb:30", &own).unwrap().settings.max_non_split_rounding,
        40 * MIB
    );
}

type Variables = &'static [(&'static str, &'static str)];

fn lookup(variables: Variables) -> impl Fn(&str) -> Option<String> {
    |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
}

const CUDA: &str = "PYTORCH_CUDA_ALLOC_CONF";
const HIP: &str = "PYTORCH_HIP_ALLOC_CONF";
const ALLOC: &str = "PYTORCH_ALLOC_CONF";
const OWN: &str = "GRANULE_CONF";

#[test]
fn c04_the_first_variable_that_is_set_counts_whole_and_granules_comes_on_top() {
    let (a, b, c) = ("max_split_size_mb:30", "max_split_size_mb:40", "max_split_size_mb:50");
    let table: [(Variables, Option<u64>, &str); 11] = [
        (&[], None, ""),
        (&[(ALLOC, "max_split_size_mb:50")], Some(50), c),
        (&[(HIP, "max_split_size_mb:40")], Some(40), b),
        (&[(HIP, "max_split_size_mb:40"), (ALLOC, "max_split_size_mb:50")], Some(40), b),
        (&[(CUDA, "max_split_size_mb:30"), (ALLOC, "max_split_size_mb:50")], Some(30), a),
        (&[(CUDA, "max_split_size_mb:30"), (HIP, "max_split_size_mb:40")], Some(30), a),
        (&[(CUDA, ""), (ALLOC, "max_split_size_mb:50")], None, ""),
        (
            &[(CUDA, "expandable_segments:True"), (ALLOC, "max_split_size_mb:50")],
            None,
            "expandable_segments:True",
        ),
        (&[(OWN, "max_split_size_mb:60")], Some(60), "max_split_size_mb:60"),
        (
            &[(CUDA, "max_split_size_mb:30"), (OWN, "max_split_size_mb:60")],
            Some(60),
            "max_split_size_mb:30,max_split_size_mb:60",
        ),
        (
            &[(CUDA, "max_split_size_mb:30"), (OWN, "policy:pytorch")],
            Some(30),
            "max_split_size_mb:30,policy:pytorch",
        ),
    ];
    for (variables, mb, text) in table {
        for flavour in [Flavour::Cuda, Flavour::Hip] {
            let settings = environment::read(lookup(variables), flavour).unwrap().settings;
            assert_eq!(settings.max_split_size, mb.map_or(u64::MAX, |mb| mb * MIB), "{variables:?}");
            assert_eq!(settings.text, text, "{variables:?}");
        }
    }
}

#[test]
fn several_variables_are_reported_and_errors_name_theirs() {
    let read = |variables| environment::read(lookup(variables), Flavour::Cuda);
    let found = read(&[(CUDA, "max_split_size_mb:30"), (ALLOC, "max_split_size_mb:50")]).unwrap().warnings;
    assert_eq!(found, [Warning::SeveralVariables { used: CUDA, ignored: vec![ALLOC] }]);
    assert_eq!(
        read(&[(CUDA, "max_split_size_mb:30"), (ALLOC, "max_split_size_mb:30")]).unwrap().warnings,
        []
    );
    let e = read(&[(CUDA, "foo:1")]).unwrap_err();
    assert_eq!(e.variable(), Some(CUDA));
    assert_eq!(e.pytorch_message(), "Unrecognized key 'foo' in CUDA allocator config.");
    let e = read(&[(CUDA, "max_split_size_mb:30"), (OWN, "foo:1")]).unwrap_err();
    assert!(e.to_string().starts_with("GRANULE_CONF: there is no such option"), "{e}");
    // What one text leaves idle, the other may put to use.
    let found = read(&[(CUDA, "garbage_collection_threshold:0.5"), (OWN, "per_process_memory_fraction:0.5")]);
    assert_eq!(found.unwrap().warnings, []);
    let found = read(&[(CUDA, "garbage_collection_threshold:0.5"), (OWN, "history_max_entries:5")]);
    assert!(matches!(found.unwrap().warnings[..], [Warning::NoEffect { .. }]));
}

#[test]
fn c05_the_backend_is_found_in_a_text_that_is_bad_elsewhere() {
    use AllocatorBackend::{DriverPools, Native};
    for (text, flavour, want) in [
        ("foo:1,backend:cudaMallocAsync", Flavour::Cuda, DriverPools),
        ("foo:[a:b],backend:cudaMallocAsync,max_split_size_mb:1", Flavour::Cuda, DriverPools),
        ("backend:cudaMallocAsync,backend:native", Flavour::Cuda, Native),
        ("backend:hipMallocAsync", Flavour::Cuda, Native),
        ("backend:hipMallocAsync", Flavour::Hip, DriverPools),
        ("foo:backend,x:cudaMallocAsync", Flavour::Cuda, Native),
        ("foo:[backend:cudaMallocAsync", Flavour::Cuda, Native),
        ("backend", Flavour::Cuda, Native),
    ] {
        let find = |name: &str| (name == ALLOC).then(|| text.to_owned());
        assert_eq!(environment::backend(find, flavour), want, "{text}");
    }
    let own = lookup(&[(CUDA, "backend:cudaMallocAsync"), (OWN, "backend:native")]);
    assert_eq!(environment::backend(own, Flavour::Cuda), Native);
}

#[test]
fn caching_is_disabled_by_exactly_1() {
    for (variables, want) in [
        (&[][..], false),
        (&[("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")], true),
        (&[("PYTORCH_NO_HIP_MEMORY_CACHING", "1")], true),
        (&[("PYTORCH_NO_CUDA_MEMORY_CACHING", "0")], false),
        (&[("PYTORCH_NO_CUDA_MEMORY_CACHING", "True")], false),
        (&[("PYTORCH_NO_CUDA_MEMORY_CACHING", "")], false),
    ] as [(Variables, bool); 6]
    {
        assert_eq!(environment::caching_disabled(lookup(variables)), want, "{variables:?}");
    }
}

#[test]
fn settings_that_no_text_gives_are_named() {
    for (settings, option) in [
        (Settings { max_split_size: 64 * MIB + 1, ..base() }, "max_split_size_mb"),
        (Settings { max_split_size: MIB, ..base() }, "max_split_size_mb"),
        (Settings { large_segment_size: 0, ..base() }, "large_segment_size_mb"),
        (Settings { garbage_collection_threshold: f64::NAN, ..base() }, "garbage_collection_threshold"),
        (Settings { per_process_memory_fraction: 2.0, ..base() }, "per_process_memory_fraction"),
        (Settings { roundup_power2_divisions: [3; 16], ..base() }, "roundup_power2_divisions"),
        (Settings { pinned_num_register_threads: 3, ..base() }, "pinned_num_register_threads"),
        (Settings { pinned_max_cached_size: 5, ..base() }, "pinned_max_cached_size_mb"),
        (
            Settings { expandable_segments_reserve: Some(ReserveSize::Fraction(-1.0)), ..base() },
            "expandable_segments_reserve",
        ),
        (
            Settings { expandable_segments_reserve: Some(ReserveSize::Bytes((1 << 60) + 1)), ..base() },
            "expandable_segments_reserve",
        ),
        (
            Settings {
                expandable_segments_reserve_by_class: vec![("a b".into(), ReserveSize::Fraction(1.0))],
                ..base()
            },
            "expandable_segments_reserve_by_class",
        ),
    ] {
        assert_eq!(settings.to_text().unwrap_err().option, option, "{settings:?}");
    }
}

#[test]
fn texts_written_are_short() {
    assert_eq!(base().to_text().unwrap(), "");
    for text in [
        "max_split_size_mb:64",
        "large_segment_size_mb:64",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "roundup_power2_divisions:[1:0,>:4]",
        "roundup_power2_divisions:[1:4,64:2]",
        "roundup_power2_divisions:[16384:4,32768:8]",
        "expandable_segments:True,expandable_segments_reserve:1.5G",
        "expandable_segments_reserve:1e-20",
    ] {
        assert_eq!(exact(text).to_text().unwrap(), text);
    }
    let own = "max_split_size_mb:64,history_max_entries:7";
    assert_eq!(exact(own).to_strict_text().unwrap(), own);
}

/// A value of each option that is not its default.
fn changed(option: &str) -> &'static str {
    match option {
        "backend" => "cudaMallocAsync",
        "large_segment_size_mb" | "max_split_size_mb" | "max_non_split_rounding_mb" => "64",
        "garbage_collection_threshold" | "per_process_memory_fraction" => "0.5",
        "expandable_segments_reserve" => "40G",
        "expandable_segments_reserve_by_class" => "[a:0.5]",
        "roundup_power2_divisions"
        | "pinned_num_register_threads"
        | "pinned_reserve_segment_size_mb"
        | "pinned_max_round_threshold_mb"
        | "pinned_max_cached_size_mb" => "8",
        _ => "True",
    }
}

#[test]
fn every_option_of_pytorch_is_told_apart() {
    let usual = Settings::default();
    for option in options().iter().filter(|option| option.grammar == Grammar::Pytorch) {
        let text = format!("{}:{}", option.name, changed(option.name));
        let other = pytorch::parse(&text, &usual, Flavour::Cuda).unwrap().settings;
        assert_eq!(usual.differences(&other), [option.name], "{text}");
        assert_eq!(other.differences(&usual), [option.name], "{text}");
        assert!(other.differences(&other).is_empty());
    }
}

#[test]
fn several_are_named_in_order() {
    let read = |text: &str| pytorch::parse(text, &Settings::default(), Flavour::Cuda).unwrap().settings;
    let (one, other) = (
        read("expandable_segments:True,garbage_collection_threshold:0.8"),
        read("max_split_size_mb:128,expandable_segments:True"),
    );
    assert_eq!(one.differences(&other), ["max_split_size_mb", "garbage_collection_threshold"]);
}
