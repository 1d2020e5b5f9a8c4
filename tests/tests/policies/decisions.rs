//! Nothing that the `pytorch` policy decides differs from what it decided before.

use granule_tests::decisions::differences;

/// `cargo xtask decisions --check` is the long form.
#[test]
fn no_decision_of_the_pytorch_policy_has_changed() {
    let found = differences(include_str!("../../data/decisions.txt"), true);
    assert!(found.is_empty(), "{}", found.join("\n"));
}
