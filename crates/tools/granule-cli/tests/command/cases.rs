//! Files as others wrote them: what commands say of each.

use super::Place;
use std::path::Path;

/// The folder of the files.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/cases");

/// Runs a command on each file. Everything that its row names is in what it prints, what begins with `!` is not. Files that
/// are refused end in `error: `, and only they do.
#[track_caller]
fn check(command: &[&str], rows: &[(&str, &[&str])]) {
    let place = Place::new();
    for (file, says) in rows {
        let path = Path::new(CASES).join(file);
        let mut args = command.to_vec();
        args.push(path.to_str().unwrap());
        let ran = place.run(&args);
        let all = format!("{}\n{}", ran.err, ran.out);
        let refused = says.iter().any(|part| part.starts_with("error: "));
        assert_eq!(ran.code, i32::from(refused), "{file}: {all}");
        for part in *says {
            match part.strip_prefix('!') {
                Some(absent) => assert!(!all.contains(absent), "{file}: '{absent}' is in: {all}"),
                None => {
                    let part = part.strip_prefix("error: ").unwrap_or(part);
                    assert!(all.contains(part), "{file}: '{part}' is not in: {all}");
                }
            }
        }
    }
}

/// What is in most of the files.
const USUAL: &str = "At most 71.00 MiB were live at once and 84.00 MiB reserved.";

#[test]
fn settings_in_force_win_over_the_last_text() {
    const A_CUDA: &[&str] = &["\"conf\":\"expandable_segments:True\"", "\"reserved_bytes_peak\":251658240,"];
    const BUT: &[&str] = &[A_CUDA[0], A_CUDA[1], "but 'expandable_segments:True' was in force"];
    check(
        &["replay", "--json"],
        &[
            ("01/a-cuda.pickle", &[A_CUDA[0], A_CUDA[1], "!in force"]),
            ("01/b-rocm2.8.pickle", &[A_CUDA[0], A_CUDA[1], "!in force"]),
            ("01/d-vllm-scope.pickle", BUT),
            ("01/e-api-only.pickle", BUT),
            ("01/f-bad-last.pickle", BUT),
            ("01/g-mlu.pickle", &[A_CUDA[0], A_CUDA[1], "!in force"]),
            (
                "01/h-gc-last.pickle",
                &[A_CUDA[1], "but 'garbage_collection_threshold:0.8,expandable_segments:True' was"],
            ),
            ("01/real-2.15-vllm-scope.pickle", &[A_CUDA[0], "\"reserved_bytes_peak\":671088640,", BUT[2]]),
            ("01/own-segments-win.pickle", BUT),
            ("01/own-no-settings.pickle", BUT),
            ("01/own-fixed-though-text.pickle", &["\"conf\":\"\"", "but the defaults were in force"]),
            ("01/own-divisions.pickle", &["\"conf\":\"roundup_power2_divisions:8\""]),
        ],
    );
}

#[test]
fn what_is_unknown_is_counted_and_named() {
    const ONE: &str = "1 entry of an unknown action was skipped, and what it did is in no figure: ";
    check(
        &["inspect"],
        &[
            ("05/13-torch2.4-user_defined.pickle", &[USUAL, ONE, "user_defined 1"]),
            ("05/15-unknown-action.pickle", &[USUAL, ONE, "segment_prefetch 1"]),
            ("05/84-npu.pickle", &["At least 87.00 MiB were live", ONE, "workspace_snapshot 1"]),
            ("05/86-npu-plain.pickle", &["At least 87.00 MiB were live", "!unknown"]),
            (
                "05/own-none-and-number-actions.pickle",
                &[USUAL, "3 entries of unknown actions were skipped", "7 1, null 1, segment_migrate 1"],
            ),
            (
                "05/own-alloc-without-size.pickle",
                &[
                    "At least 71.00 MiB were live",
                    "entries without an address or a size were skipped: alloc 1",
                ],
            ),
            ("05/own-free-without-size.pickle", &[USUAL]),
            (
                "05/own-state-prefetched.pickle",
                &[USUAL, "unknown states count as in use: active_prefetched 1"],
            ),
        ],
    );
    check(&["whatif"], &[("05/15-unknown-action.pickle", &["1 history record of unknown actions skipped"])]);
}

#[test]
fn odd_optional_values_count_as_missing() {
    let asked = "the file does not say what the device had free";
    check(
        &["inspect"],
        &[
            ("14/19-line-neg.pickle", &[USUAL]),
            ("14/19-line-none.pickle", &[USUAL]),
            ("14/20-filename-none.pickle", &[USUAL]),
            ("14/22-frames-none.pickle", &[USUAL]),
            ("14/25-time-none.pickle", &[USUAL]),
            ("14/26-metadata-dict.pickle", &[USUAL]),
            ("14/27-metadata-none.pickle", &[USUAL]),
            ("14/28-ctx-none.pickle", &[USUAL]),
            ("14/29-stream-neg.pickle", &[USUAL]),
            ("14/29b-segstream-neg.pickle", &[USUAL]),
            ("14/30b-pool-none.pickle", &[USUAL]),
            ("14/31-expandable-int.pickle", &[USUAL]),
            ("14/34-oom-nofree.pickle", &["One request was\nrefused, of 100.00 MiB", asked]),
            ("14/34b-oom-negfree.pickle", &["One request was\nrefused, of 100.00 MiB", asked]),
            ("14/63-settings-none.pickle", &[USUAL]),
            ("14/64b-annotations-none.pickle", &[USUAL]),
            ("14/own-frames-numbers.pickle", &[USUAL, "count as missing: frames 1"]),
            ("14/own-no-segments-key.pickle", &[USUAL]),
            ("14/own-traces-none.pickle", &[USUAL]),
            ("14/own-wild-entries.pickle", &[USUAL, "frames 10, stream 10, time_us 10"]),
            ("14/own-wild-segments.pickle", &[USUAL, "allocated_size 2, allocator_settings 1, device 2"]),
            (
                "14/own-addr-text.pickle",
                &[
                    "error: snapshot[\"device_traces\"][0][1][\"addr\"]: expected a whole number",
                    "record it again",
                ],
            ),
            ("14/own-segment-size-negative.pickle", &["error: [\"total_size\"]", "found a negative number"]),
        ],
    );
}

#[test]
fn files_are_opened_as_people_attach_them_or_named() {
    check(
        &["inspect"],
        &[
            ("13/03-bz2.pickle.bz2", &["error: bunzip2"]),
            ("13/04-xz.pickle.xz", &["error: unxz"]),
            ("13/05-zip.zip", &[USUAL]),
            ("13/06-torchsave.pt", &[USUAL]),
            ("13/own-legacy.pt", &[USUAL]),
            ("13/07-json.json", &["error: this is JSON", "_dump_snapshot"]),
            ("13/55-gz-twice.pickle.gz", &[USUAL]),
            ("13/56-html.pickle", &["error: web page", "download the raw file"]),
            ("13/57-lfs.pickle", &["error: git lfs pull"]),
            ("13/59-bom-trace.trace", &["At most 512 bytes were live"]),
            ("13/own-folder.zip", &[USUAL]),
            ("13/own-gz-in-zip.zip", &[USUAL]),
            ("13/own-streamed.zip", &[USUAL]),
            ("13/own-trace.zip", &["At most 512 bytes were live"]),
            ("13/own-bzip2.zip", &["error: unpack the zip archive first"]),
            ("13/own-cut.zip", &["error: was cut"]),
            ("13/own-gz6.gz", &["error: archives in archives"]),
            ("13/own-html.pickle.gz", &["error: web page"]),
            ("13/own-t.tar.gz", &["error: tar xf"]),
            ("13/own-text.pickle", &["error: neither a trace"]),
            ("13/zstd.pickle", &["error: unzstd"]),
            ("13/lzma.pickle", &["error: unlzma"]),
            ("13/windows.pickle", &["error: line ends", "'wb'"]),
            ("13/only-a-text.zip", &["error: neither a trace nor a snapshot: it has README.txt"]),
            ("13", &["error: this is a folder"]),
        ],
    );
}

#[test]
fn a_capacity_that_less_was_held_by_is_none() {
    check(
        &["inspect", "--all"],
        &[
            ("07/82-expandable.pickle", &["most reserved: 40.00 MiB at entry 3\n"]),
            (
                "07/real-2.15-capacity-moves.pickle",
                &["most reserved: 21.00 GiB at entry 47\n", "!of 3.00 GiB"],
            ),
            ("07/own-only-the-early.pickle", &["most reserved: 6.00 GiB at entry 12\n"]),
            ("07/own-two-refusals.pickle", &["6.00 GiB reserved, of 8.00 GiB"]),
        ],
    );
    check(&["whatif"], &[("07/real-2.15-capacity-moves.pickle", &["On a card of 24 GiB", "!of 3.00 GiB"])]);
}

#[test]
fn steps_that_pytorch_marked_are_iterations() {
    check(
        &["inspect"],
        &[
            ("09/64-annotations.pickle", &[", 2 iterations"]),
            ("09/real-2.15-profiler-steps.pickle", &[", 5 iterations"]),
            ("09/own-metadata-steps.pickle", &[", 3 iterations"]),
            ("09/own-two-devices.pickle", &[", 2 iterations"]),
        ],
    );
    check(&["replay", "--json"], &[("09/real-2.15-profiler-steps.pickle", &["\"iteration\":4"])]);
}

#[test]
fn only_options_that_the_release_has_are_advised() {
    const AS: &str = "the replay decides as 2.11";
    const GROW: &str = "expandable_segments:True";
    const FRACTION: &str = "per_process_memory_fraction: it came with PyTorch 2.10";
    check(
        &["whatif", "--json"],
        &[
            (
                "10/11-torch2.0.pickle",
                &["about 2.0 at most: it has no settings", AS, "!expandable_segments:True", FRACTION],
            ),
            (
                "10/pools20.pickle",
                &[
                    "about 2.0 at most",
                    AS,
                    "!expandable_segments:True",
                    "expandable_segments: it came with PyTorch 2.1,",
                ],
            ),
            (
                "10/pools25.pickle",
                &["about 2.6 at most", AS, GROW, FRACTION, "!per_process_memory_fraction:0"],
            ),
            ("10/pools.pickle", &[GROW, "per_process_memory_fraction:0.99", "!at most"]),
        ],
    );
}

#[test]
fn a_flush_that_nothing_else_explains_is_inferred() {
    const MIB: &str = "\"reserved_bytes_peak\":";
    let peak = |mib: u64| format!("{MIB}{},", mib << 20);
    check(
        &["replay", "--json"],
        &[
            ("12/a-empty-cache.pickle", &[&peak(1280), "3 calls of empty_cache were inferred"]),
            ("12/own-then-reuse.pickle", &[&peak(210), "1 empty_cache was inferred"]),
            ("12/own-retry.pickle", &["!inferred", "whether by empty_cache is not recorded"]),
            ("12/own-refused.pickle", &["!inferred", "whether by empty_cache is not recorded"]),
        ],
    );
}
