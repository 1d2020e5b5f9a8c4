use super::{ROWS, code, name, text, translate, translate_absence};
use backend_api::types::DeviceIndex;
use backend_api::{BackendError, ErrorKind, Unsupported};

/// Numbers that mean the same on both sides.
#[rustfmt::skip]
const SAME: [std::ops::RangeInclusive<i32>; 24] = [
    0..=9, 12..=13, 17..=17, 21..=21, 35..=35, 52..=53, 98..=98, 100..=101, 200..=202, 205..=219,
    300..=304, 400..=401, 500..=500, 600..=600, 700..=702, 704..=705, 708..=710, 712..=713, 719..=720,
    801..=801, 900..=908, 910..=910, 914..=915, 999..=999,
];

/// HIP's number and CUDA's, where they differ.
const DIFFERENT: [(i32, i32); 6] = [(911, 20), (912, 18), (916, 917), (1052, 999), (1053, 999), (1054, 912)];

/// Numbers that only CUDA has, the end marker of HIP's list, and nonsense: what HIP may mean is unknown.
const UNLISTED: [i32; 33] = [
    34,
    46,
    711,
    714,
    715,
    716,
    717,
    718,
    800,
    802,
    803,
    804,
    805,
    806,
    807,
    808,
    809,
    810,
    811,
    812,
    909,
    913,
    917,
    918,
    919,
    1055,
    1056,
    10,
    18,
    20,
    -1,
    i32::MIN,
    i32::MAX,
];

#[test]
fn every_number_is_translated_by_the_table() {
    let mut rows = 0;
    for number in SAME.into_iter().flatten() {
        assert_eq!(code(number), number);
        rows += 1;
    }
    for (hip, cuda) in DIFFERENT {
        assert_eq!(code(hip), cuda, "HIP's {hip}");
        rows += 1;
    }
    assert_eq!(rows, ROWS.len(), "the table has rows that this test does not know");
    for number in UNLISTED {
        assert_eq!(code(number), 999, "HIP's {number}");
    }
}

#[test]
fn every_number_that_can_be_shown_has_one_name_and_it_is_cudas() {
    for row in ROWS {
        let shown = name(code(row.hip)).unwrap();
        assert_eq!(shown, row.name, "HIP's {}", row.hip);
        assert!(shown.starts_with("CUDA_") || shown.starts_with("cudaError"), "{shown}");
        for hip in row.names {
            assert_eq!(text(hip), row.name, "the name in a text");
        }
    }
    assert_eq!(name(2), Some("CUDA_ERROR_OUT_OF_MEMORY"));
    assert_eq!(name(20), Some("cudaErrorInvalidChannelDescriptor"));
    assert_eq!(name(917), Some("CUDA_ERROR_STREAM_DETACHED"));
    assert_eq!(name(911), None);
}

#[test]
fn texts_lose_hips_identifiers_and_keep_the_names_of_things_outside() {
    let cases = [
        ("hipMalloc: hipErrorOutOfMemory", "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY"),
        ("hipErrorOfTomorrow (77)", "CUDA_ERROR_UNKNOWN (77)"),
        ("hipMemAdviseLater(hipStream_t) on hip:3", "cuMemAdviseLater(CUstream) on cuda:3"),
        ("the HIP driver, é, said no", "the CUDA driver, é, said no"),
        ("HIP 6.4 has no such thing", "the runtime 6.4 has no such thing"),
        (
            "set HIP_PATH; libamdhip64.so.6 in /opt/rocm/hip/lib",
            "set HIP_PATH; libamdhip64.so.6 in /opt/rocm/hip/lib",
        ),
        ("a chip on a ship: hips", "a chip on a ship: hips"),
        ("", ""),
    ];
    for (hip, cuda) in cases {
        assert_eq!(text(hip), cuda);
    }
}

#[test]
fn an_error_keeps_its_kind_and_device_and_the_rest_is_cudas() {
    let hip = |call| {
        BackendError::new(
            ErrorKind::OutOfMemory,
            1052,
            call,
            DeviceIndex(3),
            "hipErrorRuntimeMemory on hip:3",
        )
    };
    let shown = translate(hip("hipMalloc"), "cuMemAllocAsync");
    let detail = "CUDA_ERROR_UNKNOWN on cuda:3";
    assert_eq!(shown, BackendError::new(ErrorKind::OutOfMemory, 999, "cuMemAlloc", DeviceIndex(3), detail));
    assert_eq!(translate(hip("hipOfTomorrow"), "cuMemAllocAsync").call, "cuMemAllocAsync");
    let absent = Unsupported { family: "IPC", reason: "hipIpcGetMemHandle is missing".into() };
    assert_eq!(translate_absence(absent).to_string(), "IPC is not available: cuIpcGetMemHandle is missing");
}
