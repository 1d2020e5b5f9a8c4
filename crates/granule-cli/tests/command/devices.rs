use super::Place;

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
    assert_eq!((wrong.code, wrong.out.as_str()), (1, ""));
    assert!(wrong.err.contains("GRANULE_BACKEND: there is no backend 'cude'"), "{}", wrong.err);
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
