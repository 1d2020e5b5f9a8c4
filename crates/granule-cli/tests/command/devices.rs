use super::Place;
use granule_tests::lookalike::{cuda_library, hip_library, without};

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
