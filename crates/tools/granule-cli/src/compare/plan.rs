//! What a plan did for a replay.

use crate::console::counted;
use crate::table::Table;
use granule::round::size_text;
use granule_analysis::replay::{EqualIteration, PlanFigures};

/// What became of each request, and how much memory the iterations equal to the plan needed.
pub(super) fn report(figures: &PlanFigures) -> String {
    let of = figures.iteration.map_or_else(|| "the whole run".into(), |n| format!("iteration {n}"));
    let mut text = format!(
        "Plan {} of {}, {of}: {} in {}, met as a whole {}.\n",
        figures.pattern,
        figures.workload,
        counted(figures.requests, "request"),
        size_text(figures.height),
        times(figures.passes),
    );
    let all = figures.program_requests();
    let counts = &figures.counts;
    let mut table = Table::new(["requests of the program", "", "share"]);
    for (what, count) in [
        ("all", all),
        ("served where the plan said", counts.placed),
        ("not there: bytes in use", counts.occupied),
        ("not there: plan not laid out", counts.not_laid_out),
        ("not there: small, in memory of their own", counts.small),
        ("not there: another stream's", counts.other_streams),
        ("in the plan without a place", counts.unplanned),
        ("mismatches, which left the plan", counts.mismatches),
        ("outside the plan", counts.outside),
    ] {
        #[allow(clippy::cast_precision_loss)]
        let share = format!("{:.2} %", 100.0 * count as f64 / all.max(1) as f64);
        table.row([what, &count.to_string(), &share]);
    }
    table.align_right([1, 2]);
    text.push_str(&table.to_string());
    text.push_str(&equal(figures));
    if counts.placed == 0 {
        text.push_str("\nNothing was served where the plan said: ");
        text.push_str(&why_not(figures));
    }
    if figures.height > figures.max_load + figures.max_load / 50 {
        text.push_str(&format!(
            "\nThe plan takes {} where {} are in use at once: following it may hold more than doing without.",
            size_text(figures.height),
            size_text(figures.max_load),
        ));
    }
    text
}

/// Why a plan was of no use.
fn why_not(figures: &PlanFigures) -> String {
    if figures.entries == 0 {
        return "the program does not make the plan's requests.".into();
    }
    let height = size_text(figures.height);
    if figures.region_bytes > 0 {
        return format!("what it asked for then had no place in the {height} of the plan.");
    }
    let remedy = match figures.iteration {
        Some(_) => {
            "A plan of the whole run (granule plan without --iteration) is laid out before anything is held."
        }
        None => "It takes the memory at the first request, if the device has it in one piece.",
    };
    format!(
        "the plan was not laid out. Half of its {height} was not free in one piece, or more would have been held than without \
         it; --policy granule with virtual memory joins free pieces. {remedy}"
    )
}

/// The iterations equal to the plan; of several the one that needed most, for what was asked.
fn equal(figures: &PlanFigures) -> String {
    let Some(ratio) = figures.reserved_over_requested else {
        return "\nNo iteration makes the plan's requests.".into();
    };
    let over = |equal: &EqualIteration| {
        equal.reserved_peak.saturating_mul(1 << 20) / equal.requested_peak_until.max(1)
    };
    let Some(worst) = figures.equal_iterations.iter().rev().max_by_key(|equal| over(equal)) else {
        return String::new();
    };
    let which = match (figures.equal_iterations.len(), worst.iteration) {
        (_, None) => "The run is the plan's".into(),
        (1, Some(n)) => format!("1 iteration makes the plan's requests, {n}"),
        (count, Some(n)) => format!("{count} iterations make the plan's requests; the worst of them is {n}"),
    };
    format!(
        "\n{which}: {} reserved, {ratio:.4} of the most requested up to its end, {}.",
        size_text(worst.reserved_peak),
        size_text(worst.requested_peak_until),
    )
}

fn times(count: u64) -> String {
    match count {
        1 => "once".into(),
        count => format!("{count} times"),
    }
}
