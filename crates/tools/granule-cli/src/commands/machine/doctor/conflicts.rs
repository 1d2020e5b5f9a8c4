//! What in the environment contradicts something else, or is probably not meant. Of variables that are neither Granule's nor
//! PyTorch's settings only the names are told.

use granule::backends::Name;
use granule::config::{ConfigError, Flavour, Parsed, environment};
use granule::system::{Shared, System};
use serde::Serialize;
use std::collections::BTreeMap;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// No allocator starts.
    Error,
    /// Something is probably not meant.
    Warning,
    /// Worth knowing.
    Note,
}

/// Something that contradicts something else.
#[derive(Debug, Serialize)]
pub(super) struct Conflict {
    pub(super) severity: Severity,
    pub(super) text: String,
}

/// Granule's variables for those who use it, as docs/configuration.md has them.
const VARIABLES: [&str; 17] = [
    "GRANULE_BACKEND",
    "GRANULE_CAPI_INCLUDE",
    "GRANULE_CAPI_LIBRARY",
    "GRANULE_CONF",
    "GRANULE_CUDA_LIBRARY",
    "GRANULE_HIP_LIBRARY",
    "GRANULE_LOG",
    "GRANULE_NVML_LIBRARY",
    "GRANULE_NVTX_LIBRARY",
    "GRANULE_RECORD",
    "GRANULE_ROCTX_LIBRARY",
    "GRANULE_TORCH",
    "GRANULE_TORCH_ANYWAY",
    "GRANULE_TORCH_CACHE",
    "GRANULE_TORCH_MEMORY_SAVER",
    "GRANULE_TORCH_STRICT",
    "GRANULE_VLLM_BACKUP",
];

/// Variables that Granule's own programs give to programs that they start.
const INNER: [&str; 6] = [
    "GRANULE_CONFORMANCE_",
    "GRANULE_ESTIMATE_",
    "GRANULE_HOOK",
    "GRANULE_LOOKALIKE",
    "GRANULE_RECORD_",
    "GRANULE_TORCH_SELFTEST",
];

/// Allocators that programs are often started with, by a part of their library's name.
const PRELOADED: [(&str, &str); 6] = [
    ("jemalloc", "jemalloc"),
    ("tcmalloc", "tcmalloc"),
    ("mimalloc", "mimalloc"),
    ("hoard", "Hoard"),
    ("vgpu", "a limiter of device memory"),
    ("hami", "a limiter of device memory"),
];

/// Whose names settings may use beside CUDA's.
pub(in crate::commands::machine) fn flavour(backend: Option<Name>) -> Flavour {
    if backend == Some(Name::Hip) { Flavour::Hip } else { Flavour::Cuda }
}

/// The conflicts of this process's environment, whose settings read so.
pub(super) fn found(read: Result<Parsed, ConfigError>, system: &System) -> Vec<Conflict> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables: BTreeMap<_, _> =
        std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    let mut conflicts = settings(read);
    let unknown = || system.unknown_memory(Shared::Host).map(|text| conflict(Severity::Warning, text));
    conflicts.extend(system.problem().map(|text| conflict(Severity::Error, text)).or_else(unknown));
    conflicts.extend(among(&variables));
    conflicts
}

pub(super) fn conflict(severity: Severity, text: String) -> Conflict {
    Conflict { severity, text }
}

/// What is wrong or dubious about the settings.
fn settings(read: Result<Parsed, ConfigError>) -> Vec<Conflict> {
    match read {
        Err(error) => vec![conflict(Severity::Error, error.to_string())],
        Ok(parsed) => {
            parsed.warnings.iter().map(|warning| conflict(Severity::Warning, warning.to_string())).collect()
        }
    }
}

fn among(variables: &BTreeMap<String, String>) -> Vec<Conflict> {
    let is_set = |name: &&str| variables.contains_key(*name);
    let mut conflicts = Vec::new();
    let pytorch = environment::PYTORCH_VARIABLES.into_iter().find(is_set);
    if let (Some(pytorch), true) = (pytorch, is_set(&environment::GRANULE_VARIABLE)) {
        let own = environment::GRANULE_VARIABLE;
        let text = format!("{own} is read on top of {pytorch}: where both name an option, {own} counts");
        conflicts.push(conflict(Severity::Note, text));
    }
    for name in environment::BYPASS_VARIABLES {
        if variables.get(name).is_some_and(|value| value == "1") {
            conflicts
                .push(conflict(Severity::Warning, format!("{name}=1: every request goes to the driver")));
        }
    }
    conflicts.extend(variables.keys().filter_map(|name| unknown(name)));
    conflicts.extend(preloaded(variables.get("LD_PRELOAD").map_or("", String::as_str)));
    conflicts.extend(amd(is_set));
    conflicts
}

/// A variable that looks like one of settings, and is none.
fn unknown(name: &str) -> Option<Conflict> {
    let own = name.starts_with("GRANULE_");
    let alike = name.starts_with("PYTORCH_") && name.contains("ALLOC");
    let pytorch = environment::PYTORCH_VARIABLES;
    let mut known = VARIABLES.into_iter().chain(pytorch);
    let inner = INNER.iter().any(|inner| name.starts_with(inner));
    if !(own || alike) || inner || known.any(|known| known == name) {
        return None;
    }
    let nearest = VARIABLES
        .into_iter()
        .chain(pytorch)
        .map(|known| (strsim::jaro_winkler(name, known), known))
        .filter(|(likeness, _)| *likeness > 0.93)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let meant = nearest.map_or_else(String::new, |(_, known)| format!("; did you mean {known}?"));
    Some(conflict(Severity::Warning, format!("{name} is no variable that is read{meant}")))
}

fn preloaded(libraries: &str) -> Vec<Conflict> {
    let libraries = libraries.to_lowercase();
    let there = PRELOADED.iter().filter(|(part, _)| libraries.contains(part));
    there
        .map(|(_, what)| {
            let text = format!("LD_PRELOAD brings {what}; try without it, to see whether that is the cause");
            conflict(Severity::Warning, text)
        })
        .collect()
}

/// Variables of AMD's runtime that are known to surprise.
fn amd(is_set: impl Fn(&&str) -> bool) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    if is_set(&"ROCR_VISIBLE_DEVICES") && (is_set(&"HIP_VISIBLE_DEVICES") || is_set(&"CUDA_VISIBLE_DEVICES"))
    {
        let text = "ROCR_VISIBLE_DEVICES filters devices first, and HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES \
                    counts what is left: together they may hide every device; set one of them";
        conflicts.push(conflict(Severity::Warning, text.into()));
    }
    if is_set(&"HSA_ENABLE_IPC_MODE_LEGACY") {
        let text = "HSA_ENABLE_IPC_MODE_LEGACY is set: sharing memory with other processes fails with it on some devices";
        conflicts.push(conflict(Severity::Warning, text.into()));
    }
    conflicts
}

#[cfg(test)]
mod tests {
    use super::{Severity, VARIABLES, among};
    use granule::config::environment;
    use std::collections::{BTreeMap, BTreeSet};

    fn told(variables: &[(&str, &str)]) -> Vec<(Severity, String)> {
        let variables: BTreeMap<_, _> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        among(&variables).into_iter().map(|conflict| (conflict.severity, conflict.text)).collect()
    }

    #[test]
    fn variables_are_those_of_the_book() {
        let page = include_str!("../../../../../../../docs/configuration.md");
        let words = page.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        let there: BTreeSet<_> = words.filter(|word| word.starts_with("GRANULE_")).collect();
        assert_eq!(there, VARIABLES.into_iter().collect());
    }

    #[test]
    fn a_variable_that_nobody_reads_is_named_without_its_value() {
        let told =
            told(&[("GRANULE_CNF", "secret"), ("PYTORCH_CUDA_ALLOC_CONFIG", "secret"), ("HOME", "/x")]);
        let texts: Vec<_> = told.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "GRANULE_CNF is no variable that is read; did you mean GRANULE_CONF?",
                "PYTORCH_CUDA_ALLOC_CONFIG is no variable that is read; did you mean PYTORCH_CUDA_ALLOC_CONF?",
            ]
        );
    }

    #[test]
    fn what_is_read_is_no_conflict() {
        let mut all: Vec<_> = VARIABLES.iter().map(|name| (*name, "1")).collect();
        all.extend([("GRANULE_ESTIMATE_FOLDER", "x"), ("LD_PRELOAD", "/opt/libprofiler.so")]);
        assert!(told(&all).is_empty(), "{:?}", told(&all));
    }

    #[test]
    fn an_allocator_of_another_is_told_by_its_name_alone() {
        let told = told(&[("LD_PRELOAD", "/home/eve/libjemalloc.so.2:/usr/lib/libother.so")]);
        assert_eq!(told.len(), 1);
        assert!(told[0].1.contains("jemalloc;") && !told[0].1.contains("eve"), "{told:?}");
    }

    #[test]
    fn two_variables_of_settings_are_told_and_so_is_caching_that_is_off() {
        let [conf, bypass] = [environment::PYTORCH_VARIABLES[2], environment::BYPASS_VARIABLES[0]];
        let told = told(&[(conf, "x"), ("GRANULE_CONF", "y"), (bypass, "1")]);
        assert_eq!(told.iter().map(|one| one.0).collect::<Vec<_>>(), [Severity::Note, Severity::Warning]);
        assert!(told[0].1.contains(conf) && told[1].1.contains(bypass));
    }
}
