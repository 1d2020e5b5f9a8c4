//! `granule devices` and `granule doctor`.

use super::{Place, Ran};
use granule_tests::lookalike::{cuda_library, hip_library, without};
use serde_json::Value;

/// Without drivers, whatever the machine has.
fn devices(arguments: &[&str]) -> super::Ran {
    let place = Place::new();
    let nowhere = "/nonexistent/libdriver.so";
    place.run_with(arguments, &[("GRANULE_CUDA_LIBRARY", nowhere), ("GRANULE_HIP_LIBRARY", nowhere)])
}

#[test]
fn shows_what_was_chosen_and_why() {
    let ran = devices(&["devices"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    insta::assert_snapshot!(ran.out);
}

#[test]
fn the_environment_names_the_backend() {
    let place = Place::new();
    let named = |name| place.run_with(&["devices", "--json"], &[("GRANULE_BACKEND", name)]);
    assert_eq!(named("openreg").json()["chosen"], "openreg");
    let wrong = named("cude");
    assert_eq!(wrong.code, 1);
    let answer: serde_json::Value = serde_json::from_str(&wrong.out).unwrap();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("GRANULE_BACKEND: there is no backend 'cude'"), "{message}");
}

#[test]
fn json_gives_devices_and_reasons() {
    let answer = devices(&["devices", "--json"]).json();
    assert_eq!(answer["chosen"], serde_json::Value::Null, "a simulated device is never chosen in silence");
    let backends = answer["backends"].as_array().unwrap();
    let names: Vec<_> = backends.iter().map(|b| b["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cuda", "hip", "hip-as-cuda", "openreg"]);
    for missing in &backends[..2] {
        assert_eq!(missing["state"], "skipped");
        assert!(missing["reason"].as_str().unwrap().contains("/nonexistent/libdriver.so"), "{missing}");
    }
    assert_eq!((&backends[2]["state"], &backends[2]["reason"]), (&"skipped".into(), &"as hip".into()));
    let openreg = &backends[3];
    assert_eq!(openreg["state"], "available");
    assert_eq!(openreg["devices"].as_array().unwrap().len(), 2);
    assert_eq!(openreg["devices"][0]["total_bytes"], 4u64 << 30);
    for capability in openreg["capabilities"].as_array().unwrap() {
        let available = capability["available"].as_bool().unwrap();
        let reason = capability.get("reason").and_then(|reason| reason.as_str()).unwrap_or_default();
        assert_eq!(available, reason.is_empty(), "{capability}: absent with a reason, and only then");
    }
}

/// A function that every device needs takes the backend away, one that only timing needs takes timing away.
#[test]
fn a_function_that_the_driver_lacks_costs_what_needs_it() {
    for (backend, variable, library, device, timing) in [
        ("cuda", "GRANULE_CUDA_LIBRARY", cuda_library(), "cuMemAlloc_v2", "cuEventElapsedTime"),
        ("hip", "GRANULE_HIP_LIBRARY", hip_library(), "hipMalloc", "hipEventElapsedTime"),
    ] {
        let place = Place::new();
        let run = |lacking, arguments: &[&str]| {
            let driver = without(&library, &[lacking], place.0.path());
            place.run_with(arguments, &[(variable, driver.to_str().unwrap())])
        };
        let find = |ran: super::Ran| {
            let answer = ran.json();
            let found = answer["backends"].as_array().unwrap().iter().find(|one| one["name"] == backend);
            found.unwrap().clone()
        };
        let refused = find(run(device, &["devices", "--json"]));
        assert_eq!(refused["state"], "skipped");
        assert!(
            refused["reason"].as_str().unwrap().contains(&format!("lacks {device}: install")),
            "{refused}"
        );
        let found = find(run(timing, &["devices", "--json"]));
        assert_eq!(found["devices"].as_array().unwrap().len(), 2, "{found}");
        let ran = run(timing, &["conformance", "--backend", backend, "--only", "events.", "--json"]);
        let card = ran.json();
        assert_eq!((&card["failed"], &card["skipped"]), (&0.into(), &3.into()), "{}", ran.out);
    }
}

#[test]
fn who_has_what_adds_up_to_what_is_used() {
    let place = Place::new();
    let openreg = [("GRANULE_BACKEND", "openreg")];
    let answer = place.run_with(&["devices", "--who", "--json"], &openreg).json();
    super::json::fits("devices", &answer);
    let who = answer["who"].as_array().unwrap();
    assert_eq!(who.len(), 2);
    for one in who {
        let bytes = |name: &str| one[name].as_u64().unwrap();
        assert_eq!((bytes("total"), bytes("used")), (4 << 30, 0), "{one}");
        assert_eq!(bytes("process_other") + bytes("unaccounted"), 0, "{one}");
        assert_eq!(one["ours"]["live"], 0);
    }
    let said = place.run_with(&["devices", "--who"], &openreg).out;
    assert!(said.contains("nobody's that is known"), "{said}");
    assert!(devices(&["devices", "--who"]).out.contains("no backend is chosen"));
    assert!(!devices(&["devices", "--json"]).out.contains("\"who\""), "only where it is asked for");
}

// What follows is of `granule doctor`.

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
