//! Granule's own options: limits, and caching switched off by the environment.

use alloc_core::AllocError;
use alloc_core::backend::{BackendError, ErrorKind};
use alloc_core::config::{Flavour, MemoryLimit, PolicyName, Settings, Warning, environment, pytorch, strict};
use alloc_core::types::{DeviceIndex, GIB, MIB};

fn base() -> Settings {
    Settings::default()
}

fn exact(text: &str) -> Settings {
    strict::parse(text, &base()).unwrap_or_else(|e| panic!("{text}: {e}")).settings
}

fn limit(text: &str) -> MemoryLimit {
    exact(&format!("memory_limit:{text}")).memory_limit.expect(text)
}

#[test]
fn a_limit_is_bytes_with_a_unit_or_a_share() {
    use MemoryLimit::{Bytes, Fraction};
    for (text, want) in [
        ("40GiB", Bytes(40 * GIB)),
        ("40G", Bytes(40 * GIB)),
        ("512MiB", Bytes(512 * MIB)),
        ("512M", Bytes(512 * MIB)),
        ("3K", Bytes(3 << 10)),
        ("3KiB", Bytes(3 << 10)),
        ("2T", Bytes(2 << 40)),
        ("2TiB", Bytes(2 << 40)),
        ("1B", Bytes(1)),
        ("1.5GiB", Bytes(3 * GIB / 2)),
        ("0.1K", Bytes(102)),
        ("18446744073709551615B", Bytes(u64::MAX)),
        ("9007199254740993B", Bytes((1 << 53) + 1)),
        ("0.5", Fraction(0.5)),
        (".5", Fraction(0.5)),
        ("1", Fraction(1.0)),
        ("1e-3", Fraction(0.001)),
    ] {
        assert_eq!(limit(text), want, "{text}");
        let soft = exact(&format!("memory_soft_limit:{text}"));
        assert_eq!((soft.memory_soft_limit, soft.memory_limit), (Some(want), None), "{text}");
    }
}

#[test]
fn a_share_is_of_the_devices_memory_and_bytes_are_bytes() {
    assert_eq!(limit("0.5").bytes(80 * GIB), 40 * GIB);
    assert_eq!(limit("1").bytes(80 * GIB), 80 * GIB);
    assert_eq!(limit("1").bytes(u64::MAX), u64::MAX);
    assert_eq!(limit("0.3").bytes(10), 3);
    assert_eq!(limit("40G").bytes(80 * GIB), 40 * GIB);
    assert_eq!(limit("40G").bytes(8 * GIB), 40 * GIB, "more than there is stays what it is");
}

#[test]
fn wrong_limits_are_refused_with_what_to_write() {
    let allowed = "allowed: bytes with a unit B, K, M, G or T (40GiB or 40G, 512MiB), or a share of the device's \
                   memory over 0 and up to 1 (0.5), or unlimited";
    for (value, problem) in [
        ("40", "the number has no unit"),
        ("1.5", "the number has no unit"),
        ("40GB", "units are binary here; write GiB or G, not GB"),
        ("40gb", "units are binary here; write GiB or G, not GB"),
        ("40gib", "units are written with capital letters, as in GiB or G"),
        ("40g", "units are written with capital letters, as in GiB or G"),
        ("40X", "there is no such unit"),
        ("0", "nothing could be allocated; write unlimited to have no limit"),
        ("0GiB", "nothing could be allocated; write unlimited to have no limit"),
        ("0.5B", "the limit is below one byte"),
        ("16777216TiB", "the number is too large"),
        ("1e30G", "the number is too large"),
        ("-1G", "the value is not a memory limit"),
        ("+1G", "the value is not a memory limit"),
        ("GiB", "the value is not a memory limit"),
        ("nan", "the value is not a memory limit"),
        ("inf", "the value is not a memory limit"),
        ("full", "the value is not a memory limit"),
        ("0x10G", "the value is not a memory limit"),
        ("50%", "the value is not a memory limit"),
    ] {
        for option in ["memory_limit", "memory_soft_limit"] {
            let text = format!("{option}:{value}");
            let error = strict::parse(&text, &base()).map(|p| p.settings).expect_err(&text);
            let at = option.len() + 1;
            let want = format!("{option}: {problem}, got '{value}' at byte {at}; {allowed}");
            assert_eq!(error.to_string(), want);
        }
    }
    for (value, problem) in [
        ("0G", "0 has no unit"),
        ("unlimited", "the value is not a memory limit"),
        ("6", "the number has no unit"),
        ("6GB", "units are binary here; write GiB or G, not GB"),
    ] {
        let error = strict::parse(&format!("host_reserve:{value}"), &base()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("host_reserve: {problem}, got '{value}'")), "{error}");
        assert!(error.ends_with("(0.1), or 0 (off), or default"), "{error}");
    }
    let cut = strict::parse("memory_limit:40 GiB", &base()).unwrap_err();
    assert_eq!(cut.to_string(), "white space inside a word, got '40GiB' at byte 13");
}

#[test]
fn limits_are_written_with_the_largest_unit_that_fits() {
    for text in [
        "memory_limit:40GiB",
        "memory_limit:2TiB,memory_soft_limit:1536GiB",
        "memory_limit:1KiB",
        "memory_limit:1025B",
        "memory_limit:0.5",
        "memory_limit:1,memory_soft_limit:0.25",
        "segments_ipc:False,publish:True",
        "host_reserve:6GiB",
        "host_reserve:0.1",
        "host_reserve:0",
        "max_split_size_mb:64,memory_soft_limit:1GiB",
    ] {
        assert_eq!(exact(text).to_strict_text().unwrap(), text);
    }
    assert_eq!(exact("memory_limit:1536MiB").to_strict_text().unwrap(), "memory_limit:1536MiB");
    assert_eq!(exact("memory_limit:1.5G").to_strict_text().unwrap(), "memory_limit:1536MiB");
    assert_eq!(exact("memory_limit:1G,publish:True").to_text().unwrap(), "", "PyTorch has no such options");
}

#[test]
fn own_options_can_be_switched_off_again() {
    let on = exact("segments_ipc:False,memory_limit:1G,memory_soft_limit:0.5,publish:True,host_reserve:0.1");
    let off = "segments_ipc:True,memory_limit:unlimited,memory_soft_limit:unlimited,publish:False,host_reserve:default";
    let off = strict::parse(off, &on).unwrap().settings;
    assert_eq!(Settings { text: String::new(), ..off }, base());
}

#[test]
fn own_options_without_effect_are_reported() {
    let warned = |text: &str| {
        let found = strict::parse(text, &base()).unwrap().warnings;
        found.iter().find_map(|w| match w {
            Warning::NoEffect { option, .. } => Some(*option),
            _ => None,
        })
    };
    assert_eq!(warned("memory_limit:1G,memory_soft_limit:2G"), Some("memory_soft_limit"));
    assert_eq!(warned("memory_limit:0.5,memory_soft_limit:0.5"), Some("memory_soft_limit"));
    assert_eq!(warned("memory_limit:2G,memory_soft_limit:1G"), None);
    assert_eq!(warned("memory_limit:2G,memory_soft_limit:0.9"), None, "not comparable without a device");
    assert_eq!(warned("granule_size_mb:8"), Some("granule_size_mb"));
    assert_eq!(warned("granule_size_mb:8,policy:granule"), None);
    assert_eq!(warned("garbage_collection_threshold:0.5,memory_limit:0.5"), None);
    assert_eq!(warned("segments_ipc:False,publish:True,memory_limit:1"), None);
    assert_eq!(warned("expandable_segments_reserve:0.5"), Some("expandable_segments_reserve"));
    assert_eq!(warned("policy:granule,expandable_segments_reserve:0.5"), None, "its segments always grow");
}

#[test]
fn values_made_in_code_are_checked() {
    use MemoryLimit::{Bytes, Fraction};
    let good = [None, Some(Fraction(1.0)), Some(Fraction(1e-9)), Some(Bytes(1)), Some(Bytes(u64::MAX))];
    for limit in good {
        let settings = Settings { memory_limit: limit, memory_soft_limit: limit, ..base() };
        assert_eq!(settings.validate(), Ok(()), "{limit:?}");
    }
    for limit in [Fraction(0.0), Fraction(1.01), Fraction(-0.5), Fraction(f64::NAN), Bytes(0)] {
        let hard = Settings { memory_limit: Some(limit), ..base() };
        let soft = Settings { memory_soft_limit: Some(limit), ..base() };
        for (settings, field) in [(hard, "memory_limit"), (soft, "memory_soft_limit")] {
            let want = format!(
                "{field} is {limit:?}; it must be MemoryLimit::Fraction over 0 and up to 1, MemoryLimit::Bytes of \
                 at least 1, or None"
            );
            assert_eq!(settings.validate(), Err(want));
            assert_eq!(settings.to_strict_text().unwrap_err().option, field, "{settings:?}");
        }
    }
    for (reserve, is_sound) in
        [(Bytes(0), true), (Bytes(1), true), (Fraction(0.0), false), (Fraction(2.0), false)]
    {
        let settings = Settings { host_reserve: Some(reserve), ..base() };
        assert_eq!(settings.validate().is_ok(), is_sound, "{reserve:?}");
    }
    let odd = Settings { pinned_reserve_segment_size: MIB + 1, ..base() };
    assert_eq!(odd.validate(), Ok(()), "code is not bound to whole MiB");
    assert_eq!(odd.to_strict_text().unwrap_err().option, "pinned_reserve_segment_size_mb");
    let many = Settings { history_max_entries: 1 << 40, ..base() };
    assert_eq!(many.to_strict_text().unwrap_err().option, "history_max_entries");
}

#[test]
fn the_environment_switches_caching_off_for_all_settings() {
    let read = |own: &'static str, bypass: Option<&'static str>| {
        let lookup = |name: &str| match name {
            environment::GRANULE_VARIABLE => Some(own.to_owned()),
            "PYTORCH_NO_CUDA_MEMORY_CACHING" => bypass.map(str::to_owned),
            "PYTORCH_CUDA_ALLOC_CONF" => Some("max_split_size_mb:64".to_owned()),
            _ => None,
        };
        environment::read(lookup, Flavour::Cuda).unwrap().settings
    };
    assert!(base().caching);
    assert!(read("segments_ipc:False", None).caching);
    assert!(read("segments_ipc:False", Some("0")).caching);
    let off = read("segments_ipc:False", Some("1"));
    assert!(!off.caching && !off.segments_ipc && off.max_split_size == 64 * MIB);
    // A later text does not switch it on again, and no text can express it.
    assert!(!strict::parse("memory_limit:1G", &off).unwrap().settings.caching);
    assert!(!pytorch::parse("expandable_segments:True", &off, Flavour::Cuda).unwrap().settings.caching);
    assert_eq!(off.to_strict_text().unwrap(), "max_split_size_mb:64,segments_ipc:False");
}

#[test]
fn a_text_gives_settings_and_an_error_that_main_shows_to_people() {
    let text = "expandable_segments:True,memory_limit:40GiB,policy:granule";
    let settings = Settings::parse(text).unwrap();
    assert_eq!(settings, strict::parse(text, &base()).unwrap().settings);
    assert_eq!(text.parse(), Ok(settings.clone()));
    assert_eq!(settings.policy_name(), PolicyName::Granule);
    assert_eq!((Settings::parse("").unwrap(), base().policy_name()), (base(), PolicyName::Pytorch));

    let error = Settings::parse("expandable_segment:True").unwrap_err();
    assert!(error.to_string().contains("did you mean 'expandable_segments'?"), "{error}");
    // What `fn main() -> Result<(), ...>` prints.
    assert_eq!(format!("{error:?}"), error.to_string());
    let error = AllocError::from(error);
    assert_eq!(format!("{error:?}"), error.to_string());
    let error = BackendError::new(ErrorKind::NoDevice, 100, "cuInit", DeviceIndex(0), "no device");
    assert_eq!(format!("{error:?}"), "cuInit failed on device 0: no device (NoDevice, driver code 100)");
}
