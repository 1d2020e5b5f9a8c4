//! Files in the shapes of public reports, and what must be said of them: one row a case.

use super::Place;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/cases/");
const ASYNC: &[(&str, &str)] = &[("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")];

/// What held most is a pool that nothing names.
const UNSAID: &[&str] = &[
    "Replay 256.00 MiB, PyTorch held 2.50 GiB: what took the rest is not in the file",
    "Record the run anew: granule record",
];

const LEFT: &str = "torch.cuda.set_per_process_memory_fraction left the process 819.20 MiB";
const NOT_TOLD: &str = "not by the device, which had 78.75 GiB free; which limit, the file does not tell";
const HALVES: &str =
    "2 requests were refused when it was recorded, of 128.00 GiB, 64.00 GiB; the program went on";

struct Case {
    file: &'static str,
    /// The command, and options behind the file.
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    code: i32,
    /// On either output.
    says: &'static [&'static str],
    never: &'static [&'static str],
}

const fn case(
    file: &'static str,
    args: &'static [&'static str],
    code: i32,
    says: &'static [&'static str],
) -> Case {
    Case { file, args, env: &[], code, says, never: &[] }
}

const ROWS: &[Case] = &[
    // A request that nothing could serve is refused all the same.
    case("04/own-beyond-all.trace", &["inspect"], 0, &["request was refused, of 8388608.00 TiB"]),
    case("04/own-beyond-addresses.trace", &["whatif"], 0, &["nothing of what was tried fits"]),
    case("04/own-beyond-addresses.trace", &["inspect"], 0, &["2 requests were refused"]),
    // Less to keep is no advice where less than that was there.
    Case {
        never: &["less to keep"],
        ..case(
            "04/own-more-than-live.pickle.gz",
            &["inspect"],
            0,
            &["924.00 MiB were missing, more than was ever"],
        )
    },
    // Settings that changed in between are none that a replay can have.
    Case {
        never: &["Exact: "],
        ..case(
            "01/es-off-at-the-end.pickle.gz",
            &["whatif"],
            0,
            &["Not exact: expandable_segments changed", "takes True"],
        )
    },
    Case {
        never: &["Exact: "],
        ..case(
            "01/es-off-then-freed.pickle.gz",
            &["whatif"],
            0,
            &["Not exact: expandable_segments changed", "takes True"],
        )
    },
    Case {
        never: &["Exact: "],
        ..case(
            "01/es-on-midway.pickle.gz",
            &["whatif"],
            0,
            &["Not exact: expandable_segments changed", "takes False"],
        )
    },
    case(
        "01/es-off-at-the-end.pickle.gz",
        &["inspect"],
        0,
        &["settings 'expandable_segments:True'", "changed during the run"],
    ),
    case("01/es-off-at-the-end.pickle.gz", &["replay"], 0, &["2.07 GiB", "changed during the run"]),
    // What was reserved before the recording began is not in it, though nothing used it later.
    case(
        "window/cached-before.pickle.gz",
        &["check", "--max-reserved", "20GiB"],
        1,
        &["not known: 18.55 GiB"],
    ),
    case("window/cached-before.pickle.gz", &["inspect"], 0, &["At least 13.67 GiB", "18.55 GiB reserved"]),
    Case {
        never: &["Exact: ", "fits as it is"],
        ..case(
            "window/cached-before.pickle.gz",
            &["whatif", "--capacity", "80GiB"],
            0,
            &[
                "PyTorch held 18.55 GiB: the recording is a window of the run",
                "Record the run from its start",
            ],
        )
    },
    case(
        "window/cached-before.pickle.gz",
        &["min-capacity"],
        0,
        &["PyTorch held 18.55 GiB: the recording is a window"],
    ),
    // A replay that is not like the program says so in every command, and what to do.
    Case {
        never: &["Exact: ", "fits as it is"],
        ..case("02/pools-unsaid.pickle.gz", &["whatif", "--capacity", "16GiB"], 0, UNSAID)
    },
    case("02/pools-unsaid.pickle.gz", &["whatif", "--json"], 0, &["\"exact\":false"]),
    Case { never: &["granule whatif"], ..case("02/pools-unsaid.pickle.gz", &["inspect"], 0, UNSAID) },
    case("02/pools-unsaid.pickle.gz", &["replay"], 0, UNSAID),
    case("02/pools-unsaid.pickle.gz", &["min-capacity"], 0, UNSAID),
    case("02/pools-unsaid.pickle.gz", &["plan"], 0, UNSAID),
    Case {
        never: &["fits as it is"],
        ..case(
            "17/retry-in-a-fraction.pickle.gz",
            &["whatif", "--capacity", "16GiB"],
            0,
            &["Replay 1.17 GiB, PyTorch held 900.00 MiB: what kept it lower is not in the file", "not known"],
        )
    },
    // What only takes has no iterations.
    Case {
        never: &["every iteration"],
        ..case("09/only-builds.pickle.gz", &["inspect"], 0, &["1.95 GiB were live"])
    },
    case("09/only-builds.pickle.gz", &["check", "--max-growth", "1%"], 1, &["too few iterations"]),
    case("09/only-builds.pickle.gz", &["inspect", "--json"], 0, &["\"per_step\":null"]),
    Case {
        never: &["every iteration"],
        ..case("09/only-tensors.pickle.gz", &["inspect"], 0, &["4.88 GiB were live"])
    },
    Case {
        never: &["every iteration"],
        ..case("09/equal-tensors.pickle.gz", &["inspect"], 0, &["120.00 MiB were live"])
    },
    // Entries that are not understood, of memory that nothing else tells of.
    case("05/unknown-segments.pickle.gz", &["inspect"], 0, &["At least 384.00 MiB", "segment_alloc_async 8"]),
    case("05/unknown-segments.pickle.gz", &["check", "--max-reserved", "1GiB"], 1, &["not known"]),
    // What contradicts itself.
    case(
        "14/own-overlap.pickle.gz",
        &["inspect"],
        0,
        &["At least 448.00 MiB", "1 of its blocks and segments contradicts"],
    ),
    Case {
        never: &["Exact: "],
        ..case("14/own-overlap.pickle.gz", &["whatif"], 0, &["Do not choose by this"])
    },
    case(
        "14/own-segments-gone.pickle.gz",
        &["inspect"],
        0,
        &["At least", "8 of its blocks and segments contradict"],
    ),
    Case {
        never: &["Exact: "],
        ..case("14/own-segments-gone.pickle.gz", &["whatif"], 0, &["Do not choose by this"])
    },
    case("14/own-freed-twice.pickle.gz", &["inspect"], 0, &["At least", "contradict"]),
    case(
        "14/own-wrap.pickle.gz",
        &["inspect"],
        1,
        &[
            "[\"device_traces\"][0][12][\"addr\"]: 8192 bytes at 0xfffffffffffff000 end behind the last address",
            "record it again",
        ],
    ),
    // Private pools hold what they hold.
    Case {
        never: &["fits as it is"],
        ..case("02/native-2.15-20-graphs.pickle", &["whatif", "--capacity", "500MiB"], 0, &["┆ 1.99 ┆"])
    },
    Case {
        never: &["fits as it is"],
        ..case("02/20-pools.trace.gz", &["whatif", "--capacity", "500MiB"], 0, &["┆ 1.99 ┆"])
    },
    case(
        "02/20-pools.trace.gz",
        &["check", "--max-reserved", "1GiB"],
        6,
        &["1.99 GiB reserved at most, exceeded"],
    ),
    // The program printed 200.0.
    case(
        "02/pools-that-end.trace.gz",
        &["check", "--max-reserved", "1GiB"],
        0,
        &["200.00 MiB reserved at most"],
    ),
    // Files that lack them.
    Case {
        never: &["fits as it is"],
        ..case(
            "02/granule-recorded.trace.gz",
            &["whatif", "--capacity", "500MiB"],
            0,
            &["not known", "at least"],
        )
    },
    case(
        "02/estimate-of-graphs2.trace.gz",
        &["inspect"],
        0,
        &["At least 101.00 MiB", "does not say what private pools served"],
    ),
    Case {
        never: &["ok: ", "a window"],
        ..case(
            "02/estimate-of-graphs2.trace.gz",
            &["check", "--max-reserved", "1GiB"],
            1,
            &["not known: graphs2", "record it anew"],
        )
    },
    case(
        "02/granule-recorded.trace.gz",
        &["check", "--max-reserved", "50MiB"],
        6,
        &["at least 104.00 MiB reserved"],
    ),
    // The device that refused, else the one that held most.
    case(
        "03/real-2.15-d1-oom.pickle",
        &["inspect"],
        0,
        &["One request was refused, of 4.00 TiB", "oom.pickle, device 1:", "│ 0      ┆ 2.00 MiB"],
    ),
    case("03/real-2.15-d1-oom.pickle", &["whatif", "--capacity", "16GiB"], 0, &["oom.pickle, device 1:"]),
    case("03/real-2.15-d1-oom.pickle", &["replay"], 0, &["oom.pickle, device 1:", "refused"]),
    case(
        "03/most-without-history.pickle.gz",
        &["inspect"],
        0,
        &["20.00 GiB are live", "device 1 has no history"],
    ),
    case(
        "03/most-without-history.pickle.gz",
        &["whatif"],
        1,
        &["no history of device 1", "--device takes another"],
    ),
    case("03/most-without-history.pickle.gz", &["replay", "--device", "0"], 0, &["2.00 MiB"]),
    case(
        "03/real-2.15-d1-oom.pickle",
        &["check", "--max-reserved", "1TiB"],
        6,
        &[
            "exceeded: real-2.15-d1-oom.pickle, device 1",
            "1 request was refused",
            "ok: real-2.15-d1-oom.pickle, device 0",
        ],
    ),
    case(
        "03/real-2.15-d1-oom.pickle",
        &["check", "--max-reserved", "1TiB", "--json"],
        6,
        &["\"ok\":false", "\"refused\":1", "\"exceeded\":[\"refused\"]"],
    ),
    case("03/real-2.15-d1-oom.pickle", &["check", "--max-reserved", "1TiB", "--device", "0"], 0, &["ok: "]),
    case(
        "03/81-small-dev0.pickle",
        &["inspect"],
        0,
        &["81-small-dev0.pickle, device 3:", "71.00 MiB were live"],
    ),
    // Refused requests are events.
    case("04/midoom.trace.gz", &["check", "--max-reserved", "1GiB"], 6, &["1 request was refused"]),
    case("04/midoom2.trace.gz", &["check", "--max-reserved", "1GiB"], 6, &["1 request was refused"]),
    case("04/midoom2.trace.gz", &["check", "--max-reserved", "1GiB", "--capacity", "2GiB"], 0, &["ok: "]),
    case("04/midoom2.trace.gz", &["inspect"], 0, &["request was refused, of 600.00 MiB", "of 512.00 MiB"]),
    case("04/midoom2.trace.gz", &["whatif"], 0, &["On 512.00 MiB: nothing can fit"]),
    case("04/frac.trace.gz", &["inspect"], 0, &["set_per_process_memory_fraction", "of 1.02 MiB"]),
    // The driver's own pools are not modelled.
    case("06/62-conf-async.pickle", &["replay"], 0, &["cudaMallocAsync is not modelled"]),
    Case {
        never: &["Exact: "],
        ..case(
            "06/62-conf-async.pickle",
            &["whatif", "--capacity", "1GiB"],
            0,
            &["cudaMallocAsync is not modelled", "Not exact: the program ran with backend:cudaMallocAsync"],
        )
    },
    case("06/62-conf-async.pickle", &["inspect"], 0, &["cudaMallocAsync is not modelled"]),
    case("06/62-conf-async.pickle", &["min-capacity"], 0, &["cudaMallocAsync is not modelled"]),
    case(
        "04/midoom2.trace.gz",
        &["replay", "--conf", "max_split_size_mb:64,backend:cudaMallocAsync"],
        0,
        &["cudaMallocAsync is not modelled"],
    ),
    Case {
        env: ASYNC,
        ..case("04/midoom2.trace.gz", &["inspect"], 0, &["cudaMallocAsync is not modelled", "refused"])
    },
    Case {
        env: &[("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync")],
        ..case("04/midoom2.trace.gz", &["whatif"], 0, &["cudaMallocAsync is not modelled"])
    },
    // A limit below the device's memory: one statement, in every command.
    Case {
        never: &["too little memory"],
        ..case(
            "04/fraction.trace.gz",
            &["inspect"],
            0,
            &["of 256.00 MiB: by a limit, not by the device", LEFT],
        )
    },
    Case {
        never: &["fits as it is", "On a card"],
        ..case(
            "04/fraction.trace.gz",
            &["whatif"],
            0,
            &["A request was refused by a limit, not by the device", LEFT, "On 819.20 MiB: nothing can fit"],
        )
    },
    case(
        "04/fraction.trace.gz",
        &["whatif", "--json"],
        0,
        &["\"set_by\":\"torch.cuda.set_per", "\"bytes\":858993459"],
    ),
    case(
        "04/fraction.trace.gz",
        &["whatif", "--capacity", "2GiB"],
        0,
        &[LEFT, "On 2.00 GiB, up to the refusal: fits as it is"],
    ),
    Case {
        never: &["memory ran out"],
        ..case(
            "04/fraction.trace.gz",
            &["check", "--max-reserved", "1GiB"],
            6,
            &["1 request was refused: by a limit, not by the device", LEFT],
        )
    },
    Case {
        never: &["fits as it is"],
        ..case(
            "04/fraction.trace.gz",
            &["show"],
            0,
            &["by a limit, not by the device", LEFT, "On 819.20 MiB"],
        )
    },
    case("04/fraction.pickle.gz", &["inspect"], 0, &[NOT_TOLD, "whatif --capacity SIZE"]),
    case(
        "04/fraction.pickle.gz",
        &["inspect", "--json"],
        0,
        &["\"limit\":{\"set_by\":null,\"bytes\":null,\"device_free\":84557168640"],
    ),
    Case {
        never: &["fits as it is"],
        ..case("04/fraction.pickle.gz", &["whatif"], 0, &[NOT_TOLD, "--capacity 8GiB", "not known"])
    },
    case(
        "04/fraction.pickle.gz",
        &["whatif", "--capacity", "900MiB"],
        0,
        &[NOT_TOLD, "On 900.00 MiB: nothing can fit"],
    ),
    case(
        "04/fraction.pickle.gz",
        &["check", "--max-reserved", "1GiB"],
        6,
        &["1 request was refused: by a limit"],
    ),
    Case { never: &["it fits"], ..case("04/fraction.pickle.gz", &["show"], 0, &[NOT_TOLD]) },
    // One that was raised later limits nothing any more.
    case(
        "04/fraction-raised.trace.gz",
        &["inspect"],
        0,
        &[
            "At most 30.25 GiB were live",
            "One request was refused, of 256.00 MiB: by a limit",
            "the limit was raised",
        ],
    ),
    case("04/fraction-raised.trace.gz", &["whatif"], 0, &["up to 30.25 GiB requested", "fits as it is"]),
    case(
        "04/fraction-raised.pickle.gz",
        &["inspect"],
        0,
        &["by a limit, not by the device", "the limit was raised"],
    ),
    case(
        "04/fraction-raised.pickle.gz",
        &["whatif"],
        0,
        &["A request was refused by a limit", "fits as it is"],
    ),
    // What a program did without is no demand.
    Case {
        never: &["nothing can fit"],
        ..case(
            "04/halves.trace.gz",
            &["whatif"],
            0,
            &[HALVES, "up to 52.00 GiB requested at once", "On 79.50 GiB: fits as it is"],
        )
    },
    Case {
        never: &["nothing can fit"],
        ..case("04/halves.pickle.gz", &["whatif"], 0, &[HALVES, "On 79.50 GiB: fits as it is"])
    },
    case(
        "04/halves.pickle.gz",
        &["whatif", "--json"],
        0,
        &["\"did_without\":\"2 requests were", "\"peak_requested\":55834574848"],
    ),
    case("04/halves.pickle.gz", &["show"], 0, &[HALVES, "On 79.50 GiB: it fits as it is"]),
    case("04/halves.trace.gz", &["inspect"], 0, &["2 requests were refused, the first of 128.00 GiB"]),
    case("04/halves.trace.gz", &["check", "--max-reserved", "70GiB"], 6, &["2 requests were refused"]),
    case("04/halves.trace.gz", &["min-capacity"], 0, &["52.00 GiB"]),
    // A device of which there is only a segment.
    case(
        "03/segment-of-device-7.pickle.gz",
        &["check", "--max-reserved", "350MiB"],
        6,
        &["device 7: at least 64.00 MiB", "exceeded: segment-of-device-7.pickle.gz, device 0"],
    ),
    case(
        "03/segment-of-device-7.pickle.gz",
        &["inspect", "--device", "3"],
        1,
        &["nothing of device 3, but of device 0, device 7"],
    ),
    // A file without anything.
    Case {
        never: &["granule inspect"],
        ..case(
            "state/empty.pickle",
            &["inspect"],
            1,
            &["the snapshot is empty", "record the run from its start"],
        )
    },
    Case {
        never: &["--max-growth"],
        ..case(
            "state/no-history.pickle.gz",
            &["check", "--max-reserved", "100GiB"],
            1,
            &["hint: Record the run"],
        )
    },
    case(
        "state/no-history.pickle.gz",
        &["check", "--max-growth", "1%"],
        1,
        &["hint: record the run from its start, and more of it"],
    ),
    // Ten of the same kinds, made for this.
    Case {
        never: &["the defaults were in force"],
        ..case(
            "01/ten-vendor-keys.pickle.gz",
            &["inspect"],
            0,
            &["no such option, got 'musa_arena_mb'", "but 'per_process_memory_fraction:0.5' was in force"],
        )
    },
    case(
        "02/ten-odd-pools.pickle.gz",
        &["inspect"],
        0,
        &["1.50 GiB reserved", "pool_id 3, segment_pool_id 3"],
    ),
    Case {
        never: &["fits as it is"],
        ..case("02/ten-refused-in-a-pool.pickle.gz", &["whatif", "--capacity", "1034MiB"], 0, &["1 refused"])
    },
    Case {
        never: &["it fits as it is"],
        ..case("02/ten-refused-in-a-pool.pickle.gz", &["show"], 0, &["it fits with Granule's policy"])
    },
    Case {
        never: &["by a limit", "expandable_segments"],
        ..case(
            "02/ten-refused-in-a-pool.pickle.gz",
            &["inspect"],
            0,
            &["enough was free, but of other streams, pools"],
        )
    },
    case(
        "03/ten-two-refusals.pickle.gz",
        &["inspect"],
        0,
        &["device 0:", "by a limit, not by the device, which had 4.00 GiB"],
    ),
    Case {
        never: &["by a limit"],
        ..case("03/ten-two-refusals.pickle.gz", &["inspect", "--device", "1"], 0, &["too little memory"])
    },
    case(
        "03/ten-two-refusals.pickle.gz",
        &["check", "--max-reserved", "1GiB", "--capacity", "3GiB"],
        6,
        &["device 0: 512.00 MiB", "device 1: 512.00 MiB", "--capacity are ignored"],
    ),
    Case {
        never: &["fits as it is", "On a card"],
        ..case(
            "04/ten-fraction-set.pickle.gz",
            &["whatif"],
            0,
            &["per_process_memory_fraction is set", "fits with one change, per_process_memory_fraction"],
        )
    },
    Case {
        never: &["0 bytes: ", "by a limit"],
        ..case(
            "04/ten-size-not-told.pickle.gz",
            &["inspect"],
            0,
            &["of a size that is not told", "At least 384.00 MiB"],
        )
    },
    Case {
        never: &["fits as it is"],
        ..case("04/ten-size-not-told.pickle.gz", &["whatif"], 0, &["Do not choose by this"])
    },
    Case {
        never: &["fits as it is"],
        ..case(
            "05/ten-unknown-in-the-middle.pickle.gz",
            &["whatif"],
            0,
            &["10 entries of unknown actions", "what they did is"],
        )
    },
    case("09/ten-overlapping-steps.pickle.gz", &["inspect"], 0, &[", 4 iterations"]),
    case("13/ten-windows.trace", &["inspect"], 0, &["At most 300.00 MiB", "of 512.00 MiB", "2 iterations"]),
    case(
        "13/ten-windows.trace",
        &["whatif"],
        0,
        &["of 1.00 GiB; the program went on", "On 512.00 MiB: fits as it is"],
    ),
    case("13/ten-gz-beside-a-text.zip", &["inspect"], 0, &["At most 384.00 MiB"]),
    case(
        "13/ten-several-gz.zip",
        &["inspect"],
        1,
        &["several files (rank0.pickle.gz, rank1.pickle.gz): unpack it"],
    ),
    case("14/ten-float-sizes.pickle.gz", &["inspect"], 0, &["At most 384.00 MiB"]),
    case(
        "14/ten-nan.pickle.gz",
        &["inspect"],
        1,
        &["expected a whole number", "found a floating-point number"],
    ),
    case(
        "state/ten-null-first.pickle.gz",
        &["inspect"],
        0,
        &["3.00 GiB are live", "device 0 has no history"],
    ),
    case(
        "state/ten-null-first.pickle.gz",
        &["check", "--max-reserved", "70GiB"],
        1,
        &["not known: ten-null-first.pickle.gz, device 0", "ok: ten-null-first.pickle.gz, device 1"],
    ),
];

#[test]
fn every_case_gets_the_right_answer() {
    let place = Place::new();
    for Case { file, args, env, code, says, never } in ROWS {
        let path = format!("{CASES}{file}");
        let words: Vec<&str> = [&args[..1], &[path.as_str()], &args[1..]].concat();
        let ran = place.run_with(&words, env);
        let all = format!("{}{}", ran.err, ran.out);
        let unwrapped = all.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(ran.code, *code, "{file} {args:?}: {all}");
        for text in *says {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(unwrapped.contains(&text), "{file} {args:?} does not say '{text}': {all}");
        }
        for text in *never {
            assert!(!ran.out.contains(text), "{file} {args:?} says '{text}': {all}");
        }
    }
}
