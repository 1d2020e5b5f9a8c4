//! Settings as text: PyTorch's grammar, Granule's, and all variables of an environment.

use crate::in_words;
use alloc_core::config::{ConfigError, Flavour, Settings, environment, options, pytorch, strict};

/// Reads a text in every way there is.
///
/// # Panics
/// Where a promise is broken.
pub fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for flavour in [Flavour::Cuda, Flavour::Hip] {
        match pytorch::parse(&text, &Settings::default(), flavour) {
            Ok(parsed) => {
                assert!(parsed.warnings.len() <= 64);
                parsed.warnings.iter().for_each(|warning| in_words(warning, 600));
                assert_eq!(parsed.settings.text, text);
                let again = pytorch::parse(&text, &parsed.settings, flavour).expect("it was read before");
                assert_eq!(again.settings, parsed.settings, "a second reading changes nothing");
                writes_back(&parsed.settings);
            }
            Err(error) => refused(&error, &text),
        }
        let _ = environment::backend(|_| Some(text.to_string()), flavour);
    }
    match strict::parse(&text, &Settings::default()) {
        Ok(parsed) => {
            let plain = Settings { text: String::new(), ..parsed.settings.clone() };
            assert!(plain.to_strict_text().is_ok(), "what a text says has a text");
            writes_back(&parsed.settings);
            let again = strict::parse(&text, &parsed.settings).expect("it was read before");
            assert_eq!(again.settings, parsed.settings, "a second reading changes nothing");
            assert_eq!(parsed.settings.validate(), Ok(()), "what is read is valid");
            if let Ok(lenient) = pytorch::parse(&text, &Settings::default(), Flavour::Hip) {
                assert_eq!(lenient.settings, parsed.settings, "PyTorch's grammar reads the same");
            }
        }
        Err(error) => refused(&error, &text),
    }
    environment_of(&text);
}

/// An environment: each line is the next variable's value.
fn environment_of(text: &str) {
    let own = [environment::GRANULE_VARIABLE, environment::SEGMENTS_IPC_VARIABLE];
    let names = environment::PYTORCH_VARIABLES.into_iter().chain(own).chain(environment::BYPASS_VARIABLES);
    let values: Vec<_> = names.zip(text.split('\n')).filter(|(_, value)| !value.is_empty()).collect();
    let lookup = |name: &str| {
        values.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
    };
    match environment::read(lookup, Flavour::Cuda) {
        Ok(parsed) => parsed.warnings.iter().for_each(|warning| in_words(warning, 600)),
        Err(error) => {
            in_words(&error, 1200);
            let variable = error.variable().expect("the error names its variable");
            assert!(values.iter().any(|(name, _)| *name == variable), "{variable} is not set");
        }
    }
}

/// What was read is written, and read the same.
fn writes_back(settings: &Settings) {
    // A value that no text has, such as one beyond what the grammar takes, is said to be so.
    let Ok(text) = settings.to_strict_text() else { return };
    let back = strict::parse(&text, &Settings::default()).expect("what is written is read").settings;
    let plain = |settings: &Settings| Settings { text: String::new(), caching: true, ..settings.clone() };
    assert_eq!(plain(&back), plain(settings), "{text:?}");
}

fn refused(error: &ConfigError, text: &str) {
    in_words(error, 1200);
    assert!(error.position().is_none_or(|at| at <= text.len() && text.is_char_boundary(at)), "{error}");
}

/// Each option with a value, and texts of several.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let values =
        ["True", "64", "0.5", "40GiB", "[256:1,512:2,>:4]", "native", "[a:0.5,b:20]", "wait", "granule"];
    let each = options().iter().flat_map(|o| values.iter().map(move |value| format!("{}:{value}", o.name)));
    let several = [
        "max_split_size_mb:64,garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "expandable_segments:True,pinned_use_background_threads:True\n\n\npolicy:granule,memory_limit:40GiB\n0\n1",
        "garbage_collection_threshold:0.12345678901234567,per_process_memory_fraction:0.0000001234567",
        "expandable_segments_reserve:1e-9,max_split_size_mb:17592186044415",
    ];
    each.chain(several.map(str::to_owned)).map(String::into_bytes).collect()
}
