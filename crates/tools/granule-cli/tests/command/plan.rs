use super::{BUNDLED, Place};

const TABLE: &str = "id,lower,upper,size\na,0,2,3\nb,1,3,2\nc,2,4,3\n";

#[test]
fn a_table_becomes_offsets() {
    let place = Place::new();
    place.file("t.csv", TABLE.as_bytes());
    let answer = place.run(&["plan", "t.csv", "--capacity", "5", "-o", "out.csv", "--json"]).json();
    assert_eq!((answer["height"].as_u64(), answer["max_load"].as_u64()), (Some(5), Some(5)));
    assert_eq!(answer["optimal"], true);
    let out = std::fs::read_to_string(place.path("out.csv")).unwrap();
    assert!(out == "id,offset\na,0\nb,3\nc,0\n" || out == "id,offset\na,2\nb,0\nc,2\n", "{out}");
}

#[test]
fn an_iteration_becomes_a_plan_that_can_be_read() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let args = ["plan", "t.gz", "--iteration", "2", "--solver", "greedy", "-o", "p.gz", "--json"];
    let answer = place.run(&args).json();
    let plan = granule_planner::Plan::read(std::fs::File::open(place.path("p.gz")).unwrap()).unwrap();
    assert_eq!(answer["height"], plan.height);
    assert_eq!(answer["pattern"].as_str(), Some(format!("{:016x}", plan.pattern()).as_str()));
    assert_eq!(answer["requests"], plan.steps().len());
    assert!(answer["ratio"].as_f64().unwrap() < 1.02, "{answer}");
    let again = place.run(&args).json();
    assert_eq!((&again["height"], &again["pattern"]), (&answer["height"], &answer["pattern"]));
}

#[test]
fn the_table_says_what_it_is_worth() {
    let place = Place::new();
    place.file("t.csv", TABLE.as_bytes());
    let ran = place.run(&["plan", "t.csv"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with("t.csv: 3 requests\n"), "{}", ran.out);
    assert!(ran.out.contains("no placement is lower"), "{}", ran.out);
}

#[test]
fn what_cannot_be_is_said_with_what_to_do() {
    let place = Place::new();
    place
        .file("t.csv", TABLE.as_bytes())
        .file("bad.csv", b"id,lower,upper,size\na,0,x,3\n")
        .file("t.gz", BUNDLED);
    for (args, parts) in [
        (&["plan", "t.csv", "--capacity", "4"][..], ["live at once", "--capacity 5"]),
        (&["plan", "bad.csv"], ["bad.csv: line 2", "upper"]),
        (&["plan", "t.gz", "--iteration", "999"], ["no iteration 999", "leave out --iteration"]),
        (&["plan", "none.csv"], ["none.csv: ", "check the path"]),
    ] {
        let ran = place.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "'{part}' is not in: {}", ran.err);
        }
    }
}

/// Weights, then iterations of which each asks for the same: scratch memory and 12 blocks that are given up in reverse order.
fn repeating(iterations: usize) -> String {
    let mut lines = String::from("a 0 40000000 0\n");
    let mut id = 1;
    for n in 0..iterations {
        lines += &format!("i {n}\n");
        let first = id;
        for block in 0..12 {
            lines += &format!("a {id} {} 0\n", 20_000_000 + 1_000_000 * block);
            id += 1;
        }
        for block in (first..id).rev() {
            lines += &format!("f {block}\n");
        }
    }
    lines
}

#[test]
fn a_plan_is_followed() {
    let place = Place::new();
    place.trace("t.gz", &repeating(6));
    let made = place.run(&["plan", "t.gz", "--iteration", "2", "-o", "p.gz", "--json"]).json();
    let replay = ["replay", "t.gz", "--plan", "p.gz", "--policy", "granule"];
    let answer = place.run(&[&replay[..], &["--json"]].concat()).json();
    let plan = &answer["plan"];
    assert_eq!((&plan["pattern"], &plan["height"]), (&made["pattern"], &made["height"]));
    let counts = [
        "placed",
        "occupied",
        "not_laid_out",
        "small",
        "other_streams",
        "unplanned",
        "mismatches",
        "outside",
    ];
    let counted: u64 = counts.iter().map(|name| plan[name].as_u64().unwrap()).sum();
    assert_eq!(counted, 1 + 6 * 12, "{plan}");
    assert!(plan["placed"].as_u64().unwrap() >= 3 * 12, "{plan}");
    assert_eq!((plan["mismatches"].as_u64(), plan["occupied"].as_u64()), (Some(0), Some(0)), "{plan}");
    assert_eq!(plan["equal_iterations"].as_array().unwrap().len(), 6);
    let without = place.run(&["replay", "t.gz", "--policy", "granule", "--json"]).json();
    assert!(without.get("plan").is_none());
    assert!(answer["reserved_bytes_peak"].as_i64() <= without["reserved_bytes_peak"].as_i64());
    for peak in ["requested_bytes_peak", "allocated_bytes_peak", "active_bytes_peak"] {
        assert_eq!(answer[peak], without[peak], "laying out is nothing that the program asked for");
    }
    let text = place.run(&replay).out;
    for part in [
        &format!("Plan {} of t.gz, iteration 2: 12 requests", made["pattern"].as_str().unwrap()),
        "served where the plan said",
        "6 iterations make the plan's requests; the worst of them is 0",
    ] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    for more in [&["--lag", "20"][..], &["--policy", "pytorch"], &["--no-virtual-memory"]] {
        let ran = place.run(&[&["replay", "t.gz", "--plan", "p.gz", "--json"], more].concat());
        assert_eq!(ran.json()["traps"], 0, "{more:?}");
    }
}

#[test]
fn a_plan_of_another_workload_is_followed_nowhere() {
    let place = Place::new();
    place.trace("t.gz", &repeating(4)).file("b.gz", BUNDLED);
    place.run(&["plan", "t.gz", "--iteration", "2", "-o", "p.gz"]);
    let ran = place.run(&["replay", "b.gz", "--plan", "p.gz"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("No iteration makes the plan's requests."), "{}", ran.out);
    let why = "Nothing was served where the plan said: the program does not make the plan's requests.";
    assert!(ran.out.contains(why), "{}", ran.out);
    let plan = &place.run(&["replay", "b.gz", "--plan", "p.gz", "--json"]).json()["plan"];
    assert_eq!((plan["placed"].as_u64(), plan["layouts"].as_u64()), (Some(0), Some(0)));
}

/// As docs/tools.md has it.
#[test]
fn the_bundled_trace_follows_a_plan_of_the_whole_run_and_says_why_not_one_of_an_iteration() {
    let place = Place::new();
    place.file("t.gz", BUNDLED);
    let replay = |plan: &[&str]| {
        let made = place.run(&[&["plan", "t.gz", "--solver", "greedy", "-o", "p.gz"], plan].concat());
        assert_eq!(made.code, 0, "{}", made.err);
        place.run(&["replay", "t.gz", "--plan", "p.gz", "--policy", "granule"]).out
    };
    let whole = replay(&[]);
    assert!(whole.contains("56.33 %") && !whole.contains("Nothing was served"), "{whole}");
    let part = replay(&["--iteration", "2"]);
    for says in ["Nothing was served where the plan said: the plan was not laid out.", "without --iteration"]
    {
        assert!(part.contains(says), "{part}");
    }
}

#[test]
fn a_file_that_is_no_plan_is_refused() {
    let place = Place::new();
    place.trace("t.gz", &repeating(4));
    place.run(&["plan", "t.gz", "--iteration", "2", "-o", "p.json"]);
    let plan = std::fs::read_to_string(place.path("p.json")).unwrap();
    place
        .file("cut.json", &plan.as_bytes()[..plan.len() / 2])
        .file("newer.json", plan.replace("\"version\":1", "\"version\":7").as_bytes())
        .file("edited.json", plan.replacen("20000000", "20000512", 1).as_bytes());
    for (file, parts) in [
        ("none.json", &["none.json: ", "check the path"][..]),
        ("t.gz", &["t.gz: ", "no plan", "granule plan TRACE"]),
        ("cut.json", &["cut.json: ", "damaged", "granule plan TRACE"]),
        ("newer.json", &["version 7", "make it again"]),
        ("edited.json", &["edited.json: ", "were changed", "make it again"]),
    ] {
        let ran = place.run(&["replay", "t.gz", "--plan", file]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{file}: {}", ran.err);
        for part in parts {
            assert!(ran.err.contains(part), "'{part}' is not in: {}", ran.err);
        }
    }
}
