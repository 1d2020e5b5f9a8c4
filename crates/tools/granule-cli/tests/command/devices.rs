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
        let ran = run(timing, &["conformance", "--backend", backend, "--area", "events", "--json"]);
        let card: serde_json::Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
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

#[test]
fn a_backend_that_cannot_be_used_is_named_with_what_to_do() {
    let place = Place::new();
    let nowhere = [("GRANULE_CUDA_LIBRARY", NOWHERE), ("GRANULE_HIP_LIBRARY", NOWHERE)];
    let named = [&nowhere[..], &[("GRANULE_BACKEND", "hip")]].concat();
    for arguments in [&["devices"][..], &["devices", "--who"]] {
        let said = place.run_with(arguments, &named).out;
        let why = "no backend is chosen: GRANULE_BACKEND=hip asks for the backend hip, which cannot be used: AMD's HIP runtime";
        assert!(said.contains(why), "{said}");
    }
    let answer = place.run_with(&["devices", "--who", "--json"], &nowhere).json();
    super::json::fits("devices", &answer);
    let why = answer["not_chosen"].as_str().unwrap();
    assert!(why.contains("cuda: NVIDIA's driver") && why.contains("GRANULE_BACKEND=openreg"), "{why}");
}

#[test]
fn settings_that_are_refused_are_told_beside_the_devices() {
    let place = Place::new();
    for (conf, why) in [
        ("cross_strem:never", "GRANULE_CONF: "),
        ("system_root:/nosuch", "system_root:/nosuch: there is no such folder; name one"),
    ] {
        let environment = [("GRANULE_BACKEND", "openreg"), ("GRANULE_CONF", conf)];
        let ran = place.run_with(&["devices"], &environment);
        assert!(
            ran.code == 0 && ran.err.contains("no allocator starts: ") && ran.err.contains(why),
            "{}",
            ran.err
        );
        let answer = place.run_with(&["devices", "--json"], &environment).json();
        super::json::fits("devices", &answer);
        assert!(answer["settings_refused"].as_str().unwrap().contains(why), "{answer}");
        let ran = place.run_with(&["devices", "--who"], &environment);
        assert!(ran.err.contains(why), "{}", ran.err);
    }
}

/// A driver with this machine.
fn lookalike(place: &Place, machine: &str, arguments: &[&str]) -> Ran {
    let library = cuda_library();
    let environment = [
        ("GRANULE_CUDA_LIBRARY", library.to_str().unwrap()),
        ("GRANULE_BACKEND", "cuda"),
        ("GRANULE_LOOKALIKE", machine),
    ];
    place.run_with(arguments, &environment)
}

#[test]
fn addresses_that_are_refused_are_told_as_what_is_dropped() {
    let place = Place::new();
    let answer = lookalike(&place, "personality=tegra-addresses", &["devices", "--json"]).json();
    let cuda = answer["backends"].as_array().unwrap().iter().find(|one| one["name"] == "cuda").unwrap();
    let dropped = &cuda["devices"][0]["dropped"][0];
    assert_eq!(dropped["property"], "reservation of a whole device's addresses");
    let reason = dropped["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("288.00 MiB were refused and 144.00 MiB were had: cuMemAddressReserve"),
        "{reason}"
    );
    let told = answer_of(&lookalike(&place, "personality=tegra-addresses", &["doctor", "--json"]));
    assert_eq!(told["dropped"][0]["property"], dropped["property"]);
}

// What follows is of `granule doctor`.

const NOWHERE: &str = "/nonexistent/libdriver.so";

fn answer_of(ran: &Ran) -> Value {
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
    let answer = answer_of(&ran);
    assert_eq!((ran.code, &answer["healthy"]), (0, &true.into()), "{}", ran.out);
    assert_eq!(answer["driver"]["backend"], "openreg");
    assert_eq!(
        (answer["devices"].as_array().unwrap().len(), answer["conflicts"].as_array().unwrap().len()),
        (2, 0)
    );
    let steps = answer["selftest"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 10);
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
    let told = answer_of(&ran);
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
    let answer = answer_of(&ran);
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
            ("GRANULE_CONF", "segments_ipc:False"),
            ("GRANULE_BACKENDS", "hunter2"),
        ],
    );
    let told = answer_of(&ran);
    assert_eq!(ran.code, 0, "dubious, and it works: {}", ran.out);
    let warnings = texts(&told, "warning");
    assert!(warnings.iter().any(|text| text.contains("PYTORCH_ALLOC_CONF")), "{warnings:?}");
    assert!(warnings.iter().any(|text| text.contains("did you mean GRANULE_BACKEND?")), "{warnings:?}");
    assert_eq!(texts(&told, "note").len(), 1);
    assert!(!ran.out.contains("hunter2"));

    let refused = place.run_with(asked, &[("GRANULE_CONF", "cross_strem:never")]);
    let told = answer_of(&refused);
    assert_eq!((refused.code, &told["selftest"]["passed"]), (7, &true.into()));
    assert!(texts(&told, "error")[0].contains("did you mean 'cross_stream'?"), "{told}");
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

#[test]
fn drivers_pools_in_the_environment_are_a_note() {
    let asked = [("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync")];
    let ran = Place::new().run_with(&["doctor", "--backend", "openreg", "--json"], &asked);
    let told = answer_of(&ran);
    assert_eq!((ran.code, &told["healthy"]), (0, &true.into()), "{told}");
    assert!(ran.err.contains("backend:cudaMallocAsync is not served"), "{}", ran.err);
}

#[test]
fn settings_with_which_no_allocator_starts_are_an_illness() {
    let place = Place::new();
    for (variable, conf, why) in [
        ("GRANULE_CONF", "memory_limit:1KiB", "memory_limit"),
        ("GRANULE_CONF", "system_root:/nosuch", "there is no such folder; name one that has proc and sys"),
    ] {
        let ran = place.run_with(&["doctor", "--backend", "openreg", "--json"], &[(variable, conf)]);
        let told = answer_of(&ran);
        assert_eq!((ran.code, &told["healthy"]), (7, &false.into()), "{conf}: {told}");
        let steps = told["selftest"]["steps"].as_array().unwrap();
        let failed: Vec<_> = steps.iter().filter(|step| step["outcome"] == "failed").collect();
        assert_eq!(failed.len(), 2, "one for each device: {steps:#?}");
        for step in failed {
            assert_eq!(step["name"], "a request, as settings say");
            assert!(step["detail"].as_str().unwrap().contains(why), "{step}");
        }
    }
    let told =
        answer_of(&place.run_with(
            &["doctor", "--backend", "openreg", "--json"],
            &[("GRANULE_CONF", "system_root:/nosuch")],
        ));
    assert!(texts(&told, "error")[0].contains("system_root:/nosuch: there is no such folder"), "{told}");
}

#[test]
fn the_personality_of_a_simulated_driver_is_named() {
    let place = Place::new();
    let ran = lookalike(&place, "personality=wsl2,devices=1", &["doctor", "--json"]);
    let told = answer_of(&ran);
    let named = told["personality"].as_array().unwrap().iter().find(|one| one["name"] == "wsl2").unwrap();
    assert!(
        named["sign"].as_str().unwrap().contains("GRANULE_LOOKALIKE=personality=wsl2,devices=1"),
        "{named}"
    );
    let said = lookalike(&place, "personality=uma", &["doctor"]).out;
    assert!(said.contains("personality: uma (GRANULE_LOOKALIKE=personality=uma"), "{said}");
}

#[test]
fn too_little_free_memory_is_no_illness() {
    let place = Place::new();
    let ran = lookalike(&place, "devices=1,capacity=64MiB,context=63MiB", &["doctor", "--json"]);
    let told = answer_of(&ran);
    assert_eq!(ran.code, 0, "{told}");
    for step in told["selftest"]["steps"].as_array().unwrap() {
        assert_eq!(step["outcome"], "skipped", "{step}");
        let why =
            "80.00 MiB of the device should be free, and 1.00 MiB are: let other programs give memory back";
        assert!(step["detail"].as_str().unwrap().starts_with(why), "{step}");
    }
    let said = lookalike(&place, "devices=1,capacity=64MiB,context=63MiB", &["doctor"]).out;
    assert!(said.ends_with("nothing is wrong, but nothing could be tested: see above\n"), "{said}");
}

/// What a system of this folder says.
fn system(place: &Place, files: &[(&str, &str)]) -> String {
    let root = place.path("system");
    for (name, text) in files {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    format!("system_root:{}", root.display())
}

/// 128 GiB.
const HOST: (&str, &str) = ("proc/meminfo", "MemTotal: 134217728 kB\nMemAvailable: 104857600 kB\n");

#[test]
fn the_kernels_figures_of_an_apu_are_named() {
    let place = Place::new();
    let conf = system(
        &place,
        &[
            HOST,
            ("sys/bus/pci/devices/0000:01:00.0/mem_info_vram_total", "8388608\n"),
            ("sys/bus/pci/devices/0000:01:00.0/mem_info_gtt_total", "260046848\n"),
        ],
    );
    let library = hip_library();
    let environment = [
        ("GRANULE_HIP_LIBRARY", library.to_str().unwrap()),
        ("GRANULE_BACKEND", "hip"),
        ("GRANULE_LOOKALIKE", "personality=gfx1151"),
        ("GRANULE_CONF", &conf),
    ];
    let answer = place.run_with(&["devices", "--json"], &environment).json();
    super::json::fits("devices", &answer);
    let hip = answer["backends"].as_array().unwrap().iter().find(|one| one["name"] == "hip").unwrap();
    assert_eq!(hip["devices"][0]["total_bytes"], 248 << 20, "{hip}");
    assert_eq!(hip["devices"][0]["kernel_memory"]["driver_bytes"], 70 << 20, "{hip}");
    let told = answer_of(&place.run_with(&["doctor", "--json"], &environment));
    assert!(told["personality"].as_array().unwrap().iter().any(|one| one["name"] == "gfx1151"), "{told}");
    for command in ["devices", "doctor"] {
        let said = place.run_with(&[command], &environment).out.replace(['\n', ' '], "");
        let words = "memory of device 0: the kernel gives the larger of 8.00 MiB of VRAM and 248.00 MiB of GTT, as far as \
                     the host has it; the driver says 70.00 MiB";
        assert!(said.contains(&words.replace(' ', "")), "{command}: {said}");
    }
}

#[test]
fn a_reserve_of_the_host_is_advised_told_and_refused() {
    let place = Place::new();
    let root = system(&place, &[HOST]);
    let library = cuda_library();
    let run = |machine, more: &str, arguments: &[&str]| {
        let conf = format!("{root}{more}");
        let environment = [
            ("GRANULE_CUDA_LIBRARY", library.to_str().unwrap()),
            ("GRANULE_BACKEND", "cuda"),
            ("GRANULE_LOOKALIKE", machine),
            ("GRANULE_CONF", &conf),
        ];
        place.run_with(arguments, &environment)
    };
    let doctor = |machine, more| answer_of(&run(machine, more, &["doctor", "--json"]));
    let uma = "personality=uma";
    let told = doctor(uma, "");
    assert!(texts(&told, "note")[0].contains("100.00 GiB can be had. Set host_reserve:6553M"), "{told}");
    assert_eq!(told["healthy"], true, "{told}");
    let told = doctor(uma, ",policy:granule");
    assert_eq!(
        (texts(&told, "note").len(), &told["machine"]["host_reserve_bytes"]),
        (0, &6_871_947_673_u64.into())
    );
    let said = run(uma, ",host_reserve:8G", &["doctor"]).out.replace('\n', " ");
    assert!(said.contains("100.00 GiB available; host_reserve leaves 8.00 GiB to others"), "{said}");
    let told = doctor(uma, ",host_reserve:128G");
    assert!(texts(&told, "error")[0].contains("has 128.00 GiB in all"), "{told}");
    assert_eq!(told["healthy"], false);
    let ran = run(uma, ",host_reserve:128G", &["devices"]);
    assert!(ran.err.contains("no allocator starts: host_reserve leaves 128.00 GiB"), "{}", ran.err);
    let told = doctor("personality=one-device", ",host_reserve:128G");
    assert_eq!(
        (told["healthy"].as_bool(), texts(&told, "note").len()),
        (Some(true), 0),
        "it shares nothing: {told}"
    );
}
