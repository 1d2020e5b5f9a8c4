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
    let plan = planner::Plan::read(std::fs::File::open(place.path("p.gz")).unwrap()).unwrap();
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
