use super::Place;

fn help(args: &[&str]) -> String {
    let ran = Place::new().run(args);
    assert_eq!(ran.code, 0);
    assert_eq!(ran.err, "");
    ran.out
}

#[test]
fn overview() {
    insta::assert_snapshot!(help(&["--help"]));
}

#[test]
fn replay() {
    insta::assert_snapshot!(help(&["replay", "--help"]));
}

#[test]
fn min_capacity() {
    insta::assert_snapshot!(help(&["min-capacity", "--help"]));
}

#[test]
fn record() {
    insta::assert_snapshot!(help(&["record", "--help"]));
}

#[test]
fn whatif() {
    insta::assert_snapshot!(help(&["whatif", "--help"]));
}

#[test]
fn devices() {
    insta::assert_snapshot!(help(&["devices", "--help"]));
}

#[test]
fn estimate() {
    let said = help(&["estimate", "--help"]);
    for limit in ["zeros", "made up", "H100", "CUDA graphs", "NCCL", "--context"] {
        assert!(said.contains(limit), "{limit} is not in: {said}");
    }
}

#[test]
fn version() {
    assert_eq!(help(&["--version"]), concat!("granule ", env!("CARGO_PKG_VERSION"), "\n"));
}
