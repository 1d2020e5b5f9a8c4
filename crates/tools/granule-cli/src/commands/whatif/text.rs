//! The answer for people.

use crate::console::{self, counted, format_time, wrapped};
use crate::failure::Failure;
use crate::table::Table;
use granule::round::size_text;
use granule_analysis::replay::whatif::{
    Answer, Choice, Effect, Kind, Nearest, NotExact, Outcome, SmallestDevice, Tried, Verdict,
};
use std::io::Write;

/// Verdicts first, then the table, then what is to be known about the figures.
pub(super) fn print(
    name: &str,
    answer: &Answer,
    not_exact: &[NotExact],
    all: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    console::doubt(answer.doubt.as_ref(), out)?;
    let said = format!(
        "{name}: {}, up to {} requested at once; {}, {}",
        counted(answer.events, "event"),
        size_text(answer.peak_requested),
        counted(answer.candidates.len(), "candidate"),
        counted(answer.replays, "replay")
    );
    writeln!(out, "{}", wrapped(&said))?;
    if let Some(said) = &answer.did_without {
        writeln!(out, "{}", wrapped(&format!("{said}.")))?;
    }
    for verdict in &answer.verdicts {
        writeln!(out, "\n{}", console::strong(&wrapped(&verdict.text)))?;
        print_verdict(verdict, out)?;
    }
    if let Some(smallest) =
        answer.smallest.as_ref().filter(|smallest| smallest.pytorch.is_some() || smallest.granule.is_some())
    {
        writeln!(out, "\nThe smallest device, to 16 MiB:")?;
        let devices = [("PyTorch", &smallest.pytorch), ("Granule", &smallest.granule)];
        for (who, device) in devices {
            if let Some(device) = device {
                writeln!(out, "  {}", smallest_line(who, device))?;
            }
        }
    }
    let shown = shown(answer, all);
    writeln!(out, "\n{}", table(answer, &shown))?;
    if shown.len() < answer.candidates.len() {
        writeln!(out, "{} more with --all.", answer.candidates.len() - shown.len())?;
    }
    print_notes(answer, not_exact, out)?;
    Ok(())
}

/// What to do for it, or what comes nearest.
fn print_verdict(verdict: &Verdict, out: &mut dyn Write) -> Result<(), Failure> {
    if let Some(choice) = &verdict.least_change {
        print_choice(choice, out)?;
    }
    if let Some(smooth) = &verdict.without_retries {
        writeln!(out, "  Without retries: {}", smooth.candidate)?;
        print_choice(smooth, out)?;
    }
    if let Some(nearest) = &verdict.nearest {
        writeln!(out, "{}", wrapped(&format!("  {}", nearest_line(nearest))))?;
    }
    if let Some(uncached) = &verdict.without_caching {
        #[allow(clippy::cast_precision_loss)]
        let time = format_time(uncached.modelled_driver_ns as f64);
        let text =
            format!("  Without any caching it fits, with {time} in the driver: {}", uncached.candidate);
        writeln!(out, "{}", wrapped(&text))?;
    }
    Ok(())
}

/// What to paste, and what it gives.
fn print_choice(choice: &Choice, out: &mut dyn Write) -> Result<(), Failure> {
    for step in &choice.steps {
        writeln!(out, "    {}", console::to_paste(step))?;
    }
    writeln!(out, "  {}", gives(choice))?;
    Ok(())
}

/// What a choice gives.
#[allow(clippy::cast_precision_loss)]
pub(in crate::commands) fn gives(choice: &Choice) -> String {
    let time = format_time(choice.modelled_driver_ns as f64);
    let retries = match choice.num_alloc_retries {
        0 => "no retries".into(),
        many => console::counted(many.unsigned_abs(), "retry"),
    };
    let held = size_text(choice.reserved_bytes_peak.unsigned_abs());
    format!("{held} reserved at most, {retries}; {time} in the driver")
}

fn nearest_line(nearest: &Nearest) -> String {
    let conf = &nearest.candidate;
    let refused = match nearest.refused {
        1 => "1 request, of".into(),
        many => format!("{many} requests, the first of"),
    };
    let place = nearest.first_refusal.map_or_else(String::new, |first| {
        let iteration = first.iteration.map_or_else(String::new, |n| format!(", in iteration {n}"));
        let size = size_text(first.requested);
        format!(" {size} at event {}{iteration}, where the program would end", first.event)
    });
    format!("The nearest is {conf}, which refuses {refused}{place}")
}

fn smallest_line(who: &str, device: &SmallestDevice) -> String {
    let retries = match device.found.retries_at_min_capacity {
        0 => "without retries".into(),
        1 => "with 1 retry".into(),
        many => format!("with {many} retries"),
    };
    // What is to be pasted has lines of its own.
    let steps = match device.steps.as_slice() {
        [] => " as it is".into(),
        steps => steps.iter().map(|step| format!("\n    {step}")).collect::<String>(),
    };
    format!("{who}: {} {retries}:{steps}", size_text(device.found.min_capacity))
}

/// Candidates of the table, unless all are asked for.
const ROWS: usize = 8;

/// The candidates of the table, by outcome: what runs now and what was asked for always, and the best.
fn shown(answer: &Answer, all: bool) -> Vec<&Tried> {
    let own = |tried: &Tried| matches!(tried.candidate.kind, Kind::Current | Kind::Yours);
    let mut ranked: Vec<_> = answer.candidates.iter().enumerate().collect();
    if !all {
        ranked.sort_by_key(|(place, tried)| (*place > 0 && !own(tried), *place));
        ranked.truncate(ROWS);
        ranked.sort_by_key(|(place, _)| *place);
    }
    ranked.into_iter().map(|(_, tried)| tried).collect()
}

/// A line per candidate.
fn table(answer: &Answer, shown: &[&Tried]) -> Table {
    let unit = if shown.iter().all(|tried| tried.roomy.held() < 1 << 30) { "MiB" } else { "GiB" };
    let mut header = vec!["candidate".to_owned(), format!("reserved {unit}"), "driver ms".to_owned()];
    header.extend(answer.verdicts.iter().map(|verdict| size_text(verdict.capacity)));
    let columns = header.len();
    let mut table = Table::new(header);
    for tried in shown {
        table.row(row(tried, answer, if unit == "MiB" { 1 << 20 } else { 1 << 30 }));
    }
    table.align_right(1..columns);
    table
}

#[allow(clippy::cast_precision_loss)]
fn row(tried: &Tried, answer: &Answer, unit: u64) -> Vec<String> {
    let roomy = &tried.roomy;
    let mark = match tried.candidate.kind {
        Kind::Current => " (now)",
        Kind::Yours => " (yours)",
        Kind::Default | Kind::Advice | Kind::Combination | Kind::Granule => "",
    };
    let mut cells = vec![
        // Blanks where a line may end.
        format!("{}{mark}", tried.candidate.name.replace(',', ", ")),
        // On a device that was too small for it, it would be more.
        format!("{:.2}{}", roomy.held() as f64 / unit as f64, if was_full(roomy) { "+" } else { "" }),
        format!("{:.1}", roomy.modelled_driver_ns as f64 / 1e6),
    ];
    let known = answer.verdicts.iter().map(|verdict| verdict.known);
    cells.extend(tried.outcomes.iter().zip(known).map(|(there, known)| outcome(there, known)));
    cells
}

/// Whether more would have been taken, had there been more: the cache was flushed, or parts of it were given back where next to
/// nothing was left.
fn was_full(roomy: &Outcome) -> bool {
    let nearly_all = roomy.held() > roomy.capacity - roomy.capacity / 20;
    roomy.num_alloc_retries > 0 || (roomy.num_device_free > 0 && nearly_all)
}

fn outcome(outcome: &Outcome, known: bool) -> String {
    match (outcome.refused, outcome.num_alloc_retries) {
        (0, _) if !known => "not known".into(),
        (0, 0) => "fits".into(),
        (0, 1) => "1 retry".into(),
        (0, many) => format!("{many} retries"),
        (refused, _) => format!("{refused} refused"),
    }
}

fn print_notes(answer: &Answer, not_exact: &[NotExact], out: &mut dyn Write) -> Result<(), Failure> {
    let mut notes = vec![format!(
        "The first figures are those of a device of {} (+: it was full, more would have been taken). Driver time is that of the cost model.",
        size_text(answer.roomy_capacity)
    )];
    if answer.verdicts.iter().any(|verdict| verdict.fitting < answer.candidates.len()) {
        notes.push("Where requests are refused, the program would end at the first; how many are refused is counted as if it went on without.".into());
    }
    if not_exact.is_empty() {
        notes.push(
            "Exact: with the pytorch policy, PyTorch's own allocator gives these figures on these requests."
                .into(),
        );
    }
    for why in not_exact {
        let figures: Vec<_> = why.figures.iter().map(|figure| figure_name(figure)).collect();
        let (reason, effect, figures) = (&why.reason, effect(why.effect), figures.join(", "));
        notes.push(format!("Not exact: {reason}. {effect}: {figures}; {}.", why.meaning));
    }
    notes.extend(answer.not_tried.iter().map(|reason| format!("Not tried: {reason}.")));
    notes.iter().try_for_each(|note| writeln!(out, "{}", wrapped(note)))?;
    Ok(())
}

/// A figure's name in tables, for the one that `--json` has.
fn figure_name(key: &str) -> &str {
    match key {
        "requested_bytes_peak" => "peak requested",
        "allocated_bytes_peak" => "peak allocated",
        "active_bytes_peak" => "peak active",
        "reserved_bytes_peak" => "peak reserved",
        "driver_peak_held" => "most taken from the device",
        "num_device_alloc" => "device allocations",
        "num_device_free" => "device frees",
        "num_alloc_retries" => "retries",
        "device_calls" => "driver calls",
        "modelled_driver_ns" => "driver time",
        "refused" => "refused requests",
        "num_ooms" => "out-of-memory errors",
        "first_refusal" => "the first refusal",
        other => other,
    }
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::LowerBound => "Lower bounds",
        Effect::ProbablyTooLow => "Probably too low",
        Effect::ProbablyTooHigh => "Probably too high",
        Effect::RightUntil => "Right up to there",
        Effect::Other => "For comparison only",
    }
}
