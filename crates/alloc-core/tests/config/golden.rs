//! What PyTorch 2.15 was seen to make of each of these texts, and that this parser makes the same of them.
//! `observe.py` writes the table.

use alloc_core::config::{
    ConfigError, ExceptionClass, Flavour, Parsed, ReserveSize, Settings, Warning, environment, pytorch,
};
use alloc_core::types::MIB;
use serde_json::{Value, json};

const OBSERVED: &str = include_str!("pytorch-2.15.json");
/// Device memory against which the observed reserves were resolved.
const TOTAL: f64 = (1u64 << 40) as f64;

/// As a program does that passes one text after the other, from an allocator that runs.
fn apply(texts: &[&str]) -> Result<Parsed, ConfigError> {
    let running = Settings::default();
    let mut parsed = Parsed { settings: running.clone(), warnings: Vec::new() };
    for text in texts {
        let next = pytorch::parse(text, &parsed.settings, Flavour::Cuda)?;
        running.check_backend_change(&next.settings)?;
        parsed = next;
    }
    Ok(parsed)
}

/// Without the cap that applies on a device, so that it compares with the observed figure.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn reserve_bytes(size: ReserveSize) -> u64 {
    match size {
        ReserveSize::Fraction(share) => (share * TOTAL) as u64,
        ReserveSize::Bytes(bytes) => bytes,
    }
}

fn reserves(s: &Settings) -> Value {
    let mut found = serde_json::Map::new();
    for class in ["", "a", "b", "A"] {
        let own = s
            .expandable_segments_reserve_by_class
            .iter()
            .find(|(name, _)| name == class)
            .map(|(_, size)| *size);
        if let Some(size) = own.or(s.expandable_segments_reserve) {
            found.insert(class.into(), json!([reserve_bytes(size), own.is_some()]));
        }
    }
    found.into()
}

fn seen(s: &Settings) -> Value {
    json!({
        "large_segment_size": s.large_segment_size,
        "max_split_size": s.max_split_size,
        "max_non_split_rounding": s.max_non_split_rounding,
        "garbage_collection_threshold": s.garbage_collection_threshold,
        "roundup_power2_divisions": s.roundup_power2_divisions,
        "expandable_segments": s.expandable_segments,
        "release_lock_on_malloc": s.release_lock_on_malloc,
        "per_process_memory_fraction": s.per_process_memory_fraction,
        "throw_on_oom": s.throw_on_oom,
        "graph_capture_record_stream_reuse": s.graph_capture_record_stream_reuse,
        "pinned_use_host_register": s.pinned_use_host_register,
        "pinned_num_register_threads": s.pinned_num_register_threads,
        "pinned_reserve_segment_size": s.pinned_reserve_segment_size,
        "pinned_use_background_threads": s.pinned_use_background_threads,
        "pinned_max_round_threshold": s.pinned_max_round_threshold,
        "pinned_max_cached_size": s.pinned_max_cached_size,
        "pinned_free_catch_all": s.pinned_free_catch_all,
        "reserve": reserves(s),
    })
}

/// The observed settings in this crate's terms: PyTorch keeps one size in MiB, unbounded, and prints whole
/// numbers without a point.
fn expected(observed: &Value) -> Value {
    let mut expected = observed.clone();
    let fields = expected.as_object_mut().unwrap();
    let mb = fields.remove("pinned_reserve_segment_size_mb").and_then(|mb| mb.as_u64()).unwrap();
    fields.insert("pinned_reserve_segment_size".into(), json!(mb.min(u64::MAX / MIB) * MIB));
    for name in ["garbage_collection_threshold", "per_process_memory_fraction"] {
        let number = fields[name].as_f64().unwrap();
        fields.insert(name.into(), json!(number));
    }
    expected
}

#[test]
fn c01_every_observed_text_gives_the_observed_settings_or_error() {
    let observed: Value = serde_json::from_str(OBSERVED).unwrap();
    let cases = observed["cases"].as_array().unwrap();
    assert!(cases.len() >= 340, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let texts: Vec<&str> =
            case["inputs"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let (got, want) = match apply(&texts) {
            Ok(parsed) => (seen(&parsed.settings), case.get("settings").map(expected)),
            Err(e) => {
                let got = json!({"class": e.class().name(), "message": e.pytorch_message()});
                (got, case.get("error").cloned())
            }
        };
        if Some(&got) != want.as_ref() {
            wrong.push(format!(
                "{texts:?}\n  PyTorch {}\n  here    {got}",
                want.unwrap_or_else(|| case.clone())
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn every_refused_text_is_explained() {
    let observed: Value = serde_json::from_str(OBSERVED).unwrap();
    for case in observed["cases"].as_array().unwrap().iter().filter(|c| c.get("error").is_some()) {
        let texts: Vec<&str> =
            case["inputs"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        let error = apply(&texts).unwrap_err();
        let said = error.to_string();
        assert!(said.len() > 20 && !said.starts_with("sto"), "{texts:?}: {said}");
        let unknown = error.pytorch_message().starts_with("Unrecognized");
        assert!(unknown || !error.allowed_values().is_empty(), "{texts:?}: {said}");
        assert!(error.token().is_some() || error.option().is_some(), "{texts:?}: {said}");
        if let (Some(token), Some(at)) = (error.token(), error.position()) {
            let text = texts.last().unwrap();
            let first = token.chars().next().unwrap();
            assert!(text[at..].starts_with(first), "{texts:?}: {said}");
        }
    }
}

#[test]
fn c02_an_unknown_option_is_refused_by_name() {
    let at_run_time = apply(&["max_split_size_mb:64,no_such_option:1"]).unwrap_err();
    let variable = |name: &str| (name == "PYTORCH_CUDA_ALLOC_CONF").then(|| "no_such_option:1".to_owned());
    let at_start = environment::read(variable, Flavour::Cuda).unwrap_err();
    for (error, parser) in [(at_run_time, "Accelerator"), (at_start, "CUDA")] {
        assert_eq!(error.class(), ExceptionClass::ValueError);
        let text = format!("Unrecognized key 'no_such_option' in {parser} allocator config.");
        assert_eq!(error.pytorch_message(), text);
        assert!(error.to_string().contains("there is no such option, got 'no_such_option'"), "{error}");
    }
}

#[test]
fn texts_with_other_separators_are_taken_with_a_warning() {
    for text in ["max_split_size_mb,64", "backend,native", "max_split_size_mb:64]expandable_segments[True"] {
        let warnings = apply(&[text]).unwrap().warnings;
        assert!(warnings.iter().any(|w| matches!(w, Warning::Separator { .. })), "{text}: {warnings:?}");
    }
}
