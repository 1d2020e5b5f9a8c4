use super::{Place, Ran};
use granule_tests::lookalike::{cuda_library, without};
use serde_json::Value;

const NOWHERE: &str = "/nonexistent/libdriver.so";

fn answer(ran: &Ran) -> Value {
    let answer = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
    super::json::fits("doctor", &answer);
    answer
}

fn texts(answer: &Value, severity: &str) -> Vec<String> {
    let all = answer["conflicts"].as_array().unwrap();
    let those = all.iter().filter(|one| one["severity"] == severity);
    those.map(|one| one["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_simulated_machine_is_healthy() {
    let place = Place::new();
    let ran = place.run(&["doctor", "--backend", "openreg", "--json"]);
    let answer = answer(&ran);
    assert_eq!((ran.code, &answer["healthy"]), (0, &true.into()), "{}", ran.out);
    assert_eq!(answer["driver"]["backend"], "openreg");
    assert_eq!(
        (answer["devices"].as_array().unwrap().len(), answer["conflicts"].as_array().unwrap().len()),
        (2, 0)
    );
    let steps = answer["selftest"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 8);
    assert!(steps.iter().all(|step| step["outcome"] == "passed"), "{steps:#?}");
    assert!(answer["selftest"]["seconds"].as_f64().unwrap() < 10.0);
    let page = rustix_page();
    assert_eq!(answer["machine"]["page_bytes"], page);
    let open = answer["limits"]["open_files"]["now"].as_u64();
    assert!(open.is_none_or(|files| files > 0));

    let said = place.run(&["doctor", "--backend", "openreg"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    for words in [
        "driver: openreg;",
        "virtual memory",
        "limits: open files",
        "environment: no conflicts",
        "\nhealthy\n",
    ] {
        assert!(said.out.contains(words), "{words} is not in: {}", said.out);
    }
}

/// As the shell has it.
fn rustix_page() -> u64 {
    let asked = std::process::Command::new("getconf").arg("PAGESIZE").output().unwrap();
    String::from_utf8(asked.stdout).unwrap().trim().parse().unwrap()
}

#[test]
fn a_machine_without_a_driver_is_not_and_says_what_is_missing() {
    let place = Place::new();
    let nowhere = [("GRANULE_CUDA_LIBRARY", NOWHERE), ("GRANULE_HIP_LIBRARY", NOWHERE)];
    let ran = place.run_with(&["doctor", "--json"], &nowhere);
    let told = answer(&ran);
    assert_eq!((ran.code, &told["healthy"], &told["selftest"]), (7, &false.into(), &Value::Null));
    assert!(told["driver"]["reason"].as_str().unwrap().contains(NOWHERE), "{told}");
    let named = place.run_with(&["doctor", "--backend", "cuda"], &nowhere);
    assert_eq!((named.code, named.err.as_str()), (7, ""));
    assert!(named.out.contains("driver: none."), "{}", named.out);
    assert!(named.out.ends_with("NOT healthy: see above\n"), "{}", named.out);
}

#[test]
fn the_driver_is_told_with_its_version_and_what_it_lacks() {
    let place = Place::new();
    let library = without(&cuda_library(), &["cuMemAddressReserve"], place.0.path());
    let ran = place.run_with(
        &["doctor", "--backend", "cuda", "--json"],
        &[("GRANULE_CUDA_LIBRARY", library.to_str().unwrap())],
    );
    let answer = answer(&ran);
    assert_eq!(ran.code, 0, "a family that is absent is no illness: {}", ran.out);
    assert!(answer["driver"]["version"].as_str().unwrap().contains('.'), "{answer}");
    let families = answer["families"].as_array().unwrap();
    let virtual_memory = families.iter().find(|family| family["name"] == "virtual memory").unwrap();
    assert!(virtual_memory["reason"].as_str().unwrap().contains("cuMemAddressReserve"), "{virtual_memory}");
    let steps = answer["selftest"]["steps"].as_array().unwrap();
    let skipped: Vec<_> = steps.iter().filter(|step| step["outcome"] == "skipped").collect();
    assert_eq!(skipped.len(), 2, "{steps:#?}");
    assert!(skipped.iter().all(|step| step["name"] == "growable segments"));
}

#[test]
fn conflicts_of_the_environment_are_told() {
    let place = Place::new();
    let asked = &["doctor", "--backend", "openreg", "--json"];
    let ran = place.run_with(
        asked,
        &[
            ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
            ("PYTORCH_ALLOC_CONF", "expandable_segments:False"),
            ("GRANULE_CONF", "early_reuse:True"),
            ("GRANULE_BACKENDS", "hunter2"),
        ],
    );
    let told = answer(&ran);
    assert_eq!(ran.code, 0, "dubious, and it works: {}", ran.out);
    let warnings = texts(&told, "warning");
    assert!(warnings.iter().any(|text| text.contains("PYTORCH_ALLOC_CONF")), "{warnings:?}");
    assert!(warnings.iter().any(|text| text.contains("did you mean GRANULE_BACKEND?")), "{warnings:?}");
    assert_eq!(texts(&told, "note").len(), 1);
    assert!(!ran.out.contains("hunter2"));

    let refused = place.run_with(asked, &[("GRANULE_CONF", "early_reus:True")]);
    let told = answer(&refused);
    assert_eq!((refused.code, &told["selftest"]["passed"]), (7, &true.into()));
    assert!(texts(&told, "error")[0].contains("did you mean 'early_reuse'?"), "{told}");
}

#[test]
fn no_home_is_shown() {
    let place = Place::new();
    let home = place.path("ada");
    let library = home.join("drivers/libcuda.so");
    for more in [&["--json"][..], &[]] {
        let ran = place.run_with(
            &[&["doctor", "--backend", "cuda"], more].concat(),
            &[("HOME", home.to_str().unwrap()), ("GRANULE_CUDA_LIBRARY", library.to_str().unwrap())],
        );
        // A table or a line may be broken within a path.
        let said = ran.out.replace(['\n', ' '], "");
        assert!(said.contains("~/drivers/libcuda.so") && !said.contains("ada/"), "{}", ran.out);
    }
}
