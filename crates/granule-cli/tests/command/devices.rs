use super::Place;

#[test]
fn shows_what_was_chosen_and_why() {
    let ran = Place::new().run(&["devices"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    insta::assert_snapshot!(ran.out);
}

#[test]
fn json_gives_devices_and_reasons() {
    let answer = Place::new().run(&["devices", "--json"]).json();
    assert_eq!(answer["chosen"], "openreg");
    let backends = answer["backends"].as_array().unwrap();
    let names: Vec<_> = backends.iter().map(|b| b["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cuda", "hip", "openreg"]);
    assert_eq!(backends[0]["state"], "skipped");
    assert_eq!(backends[0]["reason"], "not available yet");
    let openreg = &backends[2];
    assert_eq!(openreg["state"], "chosen");
    assert_eq!(openreg["devices"].as_array().unwrap().len(), 2);
    assert_eq!(openreg["devices"][0]["total_bytes"], 80u64 << 30);
    for capability in openreg["capabilities"].as_array().unwrap() {
        let available = capability["available"].as_bool().unwrap();
        let reason = capability.get("reason").and_then(|reason| reason.as_str()).unwrap_or_default();
        assert_eq!(available, reason.is_empty(), "{capability}: absent with a reason, and only then");
    }
}
