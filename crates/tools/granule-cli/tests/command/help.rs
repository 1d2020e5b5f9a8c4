use super::Place;

fn help(args: &[&str]) -> String {
    let ran = Place::new().run(args);
    assert_eq!(ran.code, 0);
    assert_eq!(ran.err, "");
    ran.out
}

#[test]
fn overview() {
    insta::assert_snapshot!(help(&["-h"]));
}

#[test]
fn replay() {
    insta::assert_snapshot!(help(&["replay", "-h"]));
}

#[test]
fn min_capacity() {
    insta::assert_snapshot!(help(&["min-capacity", "-h"]));
}

#[test]
fn record() {
    insta::assert_snapshot!(help(&["record", "-h"]));
}

#[test]
fn whatif() {
    insta::assert_snapshot!(help(&["whatif", "-h"]));
}

#[test]
fn devices() {
    insta::assert_snapshot!(help(&["devices", "-h"]));
}

#[test]
fn doctor() {
    insta::assert_snapshot!(help(&["doctor", "-h"]));
}

#[test]
fn estimate() {
    let said = help(&["estimate", "--help"]);
    for limit in ["zeros", "made up", "H100", "NCCL", "--context"] {
        assert!(said.contains(limit), "{limit} is not in: {said}");
    }
}

/// "1 requests" is a figure that nobody looked at.
#[test]
fn one_of_a_thing_is_not_many() {
    let place = crate::Place::new();
    place.trace("t.gz", "a 0 512 0\n").file("t.csv", b"id,lower,upper,size\na,0,2,3\n");
    for args in [
        &["replay", "t.gz", "--snapshot", "s.pickle", "--lag", "1"][..],
        &["replay", "s.pickle"],
        &["plan", "t.gz", "-o", "p.gz"],
        &["replay", "t.gz", "--plan", "p.gz", "--policy", "granule"],
        &["plan", "t.csv"],
        &["inspect", "t.gz"],
        &["inspect", "s.pickle"],
        &["whatif", "t.gz", "--capacity", "1GiB"],
        &["min-capacity", "t.gz"],
        &["report", "t.gz", "-o", "r.html"],
        &["check", "t.gz", "--max-reserved", "1MiB"],
        &["export", "t.gz", "--perfetto", "x.json"],
        &["replay", "t.gz", "--capacity", "1MiB"],
    ] {
        let ran = place.run(args);
        let text = ran.out + &ran.err;
        let words: Vec<&str> = text.split_whitespace().collect();
        let many = |pair: &&[&str]| {
            pair[0].trim_start_matches('(') == "1"
                && pair[1].trim_end_matches([',', ';', ':', '.', ')']).ends_with('s')
                && !matches!(pair[1], "was" | "is" | "has")
        };
        let found: Vec<_> = words.windows(2).filter(many).collect();
        assert!(found.is_empty(), "{args:?}: {found:?}");
    }
}

#[test]
fn every_help_fits_a_terminal() {
    let overview = help(&["-h"]);
    let commands = overview.split("\n\n").nth(2).unwrap();
    let names = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let mut looked_at = 0;
    for name in names.map(|line| line.split_whitespace().next().unwrap()) {
        fits(name, &help(&[name, "-h"]));
        let all = help(&[name, "--help"]);
        assert!(all.lines().all(|line| line.chars().count() <= 80), "{all}");
        assert!(all.contains("Examples:"), "{all}");
        looked_at += 1;
    }
    assert!(looked_at >= 14, "{overview}");
    fits("granule", &overview);
}

/// One screen, with the prompt below.
fn fits(name: &str, text: &str) {
    let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "{name}: {long:#?}");
    assert!(text.lines().count() <= 23, "{name}: {} lines", text.lines().count());
}

#[test]
fn version() {
    assert_eq!(help(&["--version"]), concat!("granule ", env!("CARGO_PKG_VERSION"), "\n"));
}
