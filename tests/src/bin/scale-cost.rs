//! What one operation costs beside many of something: `scale-cost SHARE...` prints a line of JSON for each case, and each
//! share of the most there are: 100 is a hundredth. `ONLY` names cases by a part of their names.

use granule_tests::scale::CASES;
use serde_json::json;

fn main() {
    let shares: Vec<usize> = std::env::args().skip(1).filter_map(|share| share.parse().ok()).collect();
    let only = std::env::var("ONLY").unwrap_or_default();
    for case in CASES {
        let name = format!("{}: {}", case.many, case.operation);
        for share in shares.iter().filter(|_| name.contains(&only)) {
            let number = case.most / share.max(&1);
            let cost = (case.cost)(number);
            let steps = alloc_core::steps::COUNTED.then_some(cost.steps);
            let line = json!({
                "many": case.many, "operation": case.operation, "number": number, "ns": cost.ns, "steps": steps,
                "grown_bytes": cost.grown, "aim_ns": case.aim, "known": case.known.map(|known| known.0),
            });
            println!("{line}");
        }
    }
}
