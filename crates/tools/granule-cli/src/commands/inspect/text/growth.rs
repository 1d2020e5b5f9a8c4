//! Growth from iteration to iteration.

use super::super::Inspected;
use super::{caller_text, figures, share};
use crate::console::{counted, wrapped};
use granule::round::size_text;
use granule_analysis::inspect::{Growth, Marks, Place, Step, Suspect};
use std::fmt::Write as _;

/// What is live at each mark, and what grows.
pub(super) fn write(inspected: &Inspected, top: usize, text: &mut String) {
    let growth = &inspected.inspection.growth;
    let steps = &growth.steps;
    if steps.len() < 2 {
        return;
    }
    let _ = writeln!(text, "\n{}\n", wrapped(&format!("Growth: {}", summary(growth))));
    let mut rows: Vec<_>;
    if steps.len() <= top + 1 {
        rows = steps.iter().map(row).collect();
    } else {
        // The first ones and the last ones say what there is to see.
        let (first, last) = (top.div_ceil(2), top / 2);
        rows = steps[..first].iter().map(row).collect();
        let mut between = <[String; 6]>::default();
        between[0] = format!("({} more)", steps.len() - first - last);
        rows.push(between);
        rows.extend(steps[steps.len() - last..].iter().map(row));
    }
    let what = if growth.marks == Marks::Slices { "part" } else { "iteration" };
    let header = [what, "from entry", "live then", "most live", "most reserved", "requests"];
    let _ = writeln!(text, "{}", figures(header, rows, &[0, 1, 2, 3, 4, 5]));
    suspects(growth, top, text);
}

fn summary(growth: &Growth) -> String {
    let marks = match growth.marks {
        Marks::Iterations => String::new(),
        Marks::Repetition => format!(
            "there are no iteration marks; its {} repeat, which is taken for an iteration. ",
            counted(growth.period.unwrap_or_default(), "request")
        ),
        Marks::Slices => {
            // Where they begin within an iteration is chance: neither growth nor its absence follows.
            return "there are no iteration marks and the requests do not repeat; these are equal parts, from which nothing follows about leaks."
                .into();
        }
    };
    let change = match growth.per_step {
        None => return format!("{marks}There are too few to tell growth from the beginning."),
        Some(0) => "What is live stays the same from one iteration to the next".into(),
        Some(by) => format!(
            "What is live {} by {} from one iteration to the next, on average",
            if by > 0 { "grows" } else { "shrinks" },
            size_text(by.unsigned_abs())
        ),
    };
    let leak = match (growth.suspects.is_empty(), growth.per_step) {
        (false, _) => "",
        (true, Some(1..)) => {
            "; no call site or size grows steadily, so that the average says nothing of a leak"
        }
        (true, _) => ", and no call site or size grows steadily: no sign of a leak",
    };
    format!("{marks}{change}{leak}.")
}

fn row(step: &Step) -> [String; 6] {
    [
        step.number.to_string(),
        step.at.to_string(),
        size_text(step.live),
        size_text(step.peak_live),
        size_text(step.peak_reserved),
        step.allocations.to_string(),
    ]
}

fn suspects(growth: &Growth, top: usize, text: &mut String) {
    if growth.suspects.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nWhat grows (a leak, or something kept on purpose)\n");
    let sum = |suspects: &[Suspect]| suspects.iter().map(Suspect::grown).fold(0u64, u64::saturating_add);
    let all = sum(&growth.suspects);
    let rows = growth.suspects.iter().take(top).map(|suspect| {
        [
            format!("+{}", size_text(suspect.grown())),
            share(suspect.grown(), all),
            format!("{} to {}", suspect.count[0], suspect.count[1]),
            format!("{} of {}", suspect.grew_in, suspect.steps),
            name(suspect),
        ]
    });
    let mut rows: Vec<_> = rows.collect();
    if growth.suspects.len() > top {
        let others = &growth.suspects[top..];
        let grown = sum(others);
        let name = format!("({})", counted(others.len(), "other"));
        rows.push([format!("+{}", size_text(grown)), share(grown, all), String::new(), String::new(), name]);
    }
    let header = ["grew by", "share", "blocks", "in steps", "what"];
    let _ = writeln!(text, "{}", figures(header, rows, &[0, 1, 2, 3]));
}

fn name(suspect: &Suspect) -> String {
    let mut name = match (&suspect.caller, suspect.size) {
        (Some(caller), _) if caller.place != Place::default() => caller_text(caller),
        (_, Some(size)) => format!("requests of {}", size_text(size)),
        _ => "requests".into(),
    };
    if !suspect.label.is_empty() {
        let _ = write!(name, " '{}'", suspect.label);
    }
    name
}
