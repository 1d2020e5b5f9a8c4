//! Files of public reports, or in their shape, on which an answer was wrong and sounded sure: one row each.

use super::Place;

struct Case {
    file: &'static str,
    args: &'static str,
    code: i32,
    /// What results or messages say, and the results begin with.
    begins: &'static str,
    says: &'static [&'static str],
    never: &'static [&'static str],
}

const WINDOW: &str = "window/gpt2_train_stacks.pickle.gz";
const STATE: &str = "state/no-history.pickle.gz";
const SLABS: &str = "11/slabs.trace";

const HELD: &str = "PyTorch held 27.22 GiB: the recording is a window of the run. Do not choose by this.";
const RECORD: &str = "granule record -- python train.py, or torch.cuda.memory._record_memory_history()";
const SPLIT: &str = "warning: max_split_size_mb is no more than large_segment_size_mb";
const DIVISIONS: &str = "warning: roundup_power2_divisions has no effect: 1 division is off";

#[rustfmt::skip]
const CASES: &[Case] = &[
    // A window: what fits there says nothing of the program.
    Case { file: WINDOW, args: "whatif --capacity 17GiB,80GiB", code: 0, begins: "Replay 16.85 GiB, PyTorch held ", says: &[HELD, RECORD, "Do not choose by this", "On 80.00 GiB: not known"], never: &["fits as it is", ": fits with", "1 retry"] },
    Case { file: WINDOW, args: "whatif --capacity 10GiB", code: 0, begins: "Replay 16.85 GiB, PyTorch held ", says: &["On 10.00 GiB: nothing can fit"], never: &[": fits"] },
    Case { file: WINDOW, args: "min-capacity", code: 0, begins: "Smallest device ", says: &[HELD, RECORD], never: &[] },
    Case { file: WINDOW, args: "replay", code: 0, begins: "Replay 16.85 GiB, ", says: &[HELD], never: &[] },
    Case { file: WINDOW, args: "plan", code: 0, begins: "Plan 16.3", says: &[HELD], never: &[] },
    Case { file: WINDOW, args: "check --max-reserved 70GiB", code: 1, begins: "", says: &["not known: 27.22 GiB were reserved at most", RECORD], never: &["ok:"] },
    Case { file: WINDOW, args: "check --max-reserved 20GiB", code: 6, begins: "exceeded: ", says: &[], never: &[] },
    Case { file: WINDOW, args: "inspect", code: 0, begins: "At least ", says: &[RECORD], never: &["granule whatif"] },
    Case { file: WINDOW, args: "report --capacity 80GiB --json", code: 0, begins: "", says: &["On 80.00 GiB: not known"], never: &["fits as it is", "granule whatif"] },
    // What is complete, and held more than a replay does.
    Case { file: "01/a-cuda.pickle", args: "whatif --capacity 1GiB", code: 0, begins: "Replay 240.00 MiB, PyTorch held 260.00 MiB: what took the rest", says: &["is not in the file. Do not choose by this.", "On 1.00 GiB: not known"], never: &["a part of the run", "a window"] },
    // A moment without a history: what is there is told, and the rest names how to record it.
    Case { file: STATE, args: "inspect", code: 0, begins: "258.28 MiB are live and 604.00 MiB reserved", says: &["The snapshot has no history", RECORD, "free pieces", "segments"], never: &["granule whatif", "No request was refused", "at the peak", "most live"] },
    Case { file: STATE, args: "whatif", code: 1, begins: "", says: &["has no history", RECORD, "hint: granule inspect and granule report show what there is"], never: &[] },
    Case { file: STATE, args: "min-capacity", code: 1, begins: "", says: &["has no history", RECORD], never: &[] },
    Case { file: STATE, args: "check --max-reserved 70GiB", code: 1, begins: "", says: &["not known", RECORD], never: &["ok:"] },
    // Settings that do nothing, or harm.
    Case { file: SLABS, args: "whatif --conf max_split_size_mb:20,large_segment_size_mb:20", code: 0, begins: "", says: &["max_split_size_mb is no more than large_segment_size_mb"], never: &[] },
    Case { file: SLABS, args: "inspect --conf max_split_size_mb:20,large_segment_size_mb:20", code: 0, begins: "", says: &[SPLIT], never: &[] },
    Case { file: SLABS, args: "inspect --conf roundup_power2_divisions:1", code: 0, begins: "", says: &[DIVISIONS], never: &[] },
    Case { file: SLABS, args: "replay --conf roundup_power2_divisions:[>:1]", code: 0, begins: "", says: &[DIVISIONS], never: &[] },
    Case { file: SLABS, args: "inspect --conf max_split_size_mb:17592186044416", code: 0, begins: "", says: &[], never: &["warning"] },
    Case { file: SLABS, args: "inspect --conf expandable_segments:True,max_split_size_mb:17592186044416", code: 0, begins: "", says: &[], never: &["warning"] },
];

/// Lines end where the terminal's do.
pub(super) fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn answers_are_none_where_nothing_is_known() {
    let place = Place::new();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/data/cases/");
    for Case { file, args, code, begins, says, never } in CASES {
        let path = format!("{data}{file}");
        let mut words: Vec<&str> = args.split(' ').collect();
        words.insert(1, &path);
        let ran = place.run(&words);
        let what = format!("{args} of {file}: {}\n{}", ran.err, ran.out);
        assert_eq!(ran.code, *code, "{what}");
        assert!(ran.out.starts_with(begins), "{what}");
        let all = unwrapped(&format!("{}\n{}", ran.err, ran.out));
        for part in *says {
            assert!(all.contains(part), "'{part}' is not said by {what}");
        }
        for part in *never {
            assert!(!all.contains(part), "'{part}' is said by {what}");
        }
    }
}

/// The page advised a setting that its own table showed refused.
#[test]
fn the_page_says_what_was_computed() {
    let place = Place::new();
    place.file("t.gz", super::BUNDLED);
    let answer = place.run(&["report", "t.gz", "--capacity", "11GiB", "--json"]).json();
    let text = answer["summary"]["text"].as_str().unwrap();
    assert!(
        text.ends_with(
            "On 11.00 GiB: fits with Granule's policy, and with no setting of PyTorch's that was tried."
        ),
        "{text}"
    );
    assert!(!text.contains("expandable_segments"), "{text}");
}

/// 8.14 MiB an iteration were said to grow, above "no sign of a leak": of parts that are no iterations, and of an average.
#[test]
fn growth_is_said_once_and_only_of_steps() {
    let place = Place::new();
    let lines: String =
        (0..400_u64).map(|id| format!("a {id} {} 0\n", 4096 + id * id * 512 % 99_991)).collect();
    place.trace("parts.gz", &lines);
    let answer = place.run(&["inspect", "parts.gz", "--json"]).json();
    assert_eq!(
        (&answer["growth"]["marks"], &answer["growth"]["per_step"]),
        (&"slices".into(), &serde_json::Value::Null)
    );
    // What is live differs from mark to mark, in other sizes each time.
    let mut lines = String::new();
    for n in 0..8_u64 {
        lines += &format!("i {n}\na {n} {} 0\n", 1 << 20);
        lines += &n.checked_sub(1).map_or(String::new(), |last| format!("f {last}\n"));
        lines = lines.replace(&format!("a {n} 1048576 0"), &format!("a {n} {} 0", (n + 1) << 20));
    }
    place.trace("average.gz", &lines);
    let ran = place.run(&["inspect", "average.gz", "--all"]);
    let text = unwrapped(&ran.out);
    assert!(
        text.contains(
            "on average; no call site or size grows steadily, so that the average says nothing of a leak."
        ),
        "{}",
        ran.out
    );
    assert!(!text.contains("no sign of a leak"), "{}", ran.out);
}
