//! The answer for people.

use crate::compare::{align_right, new_table};
use crate::console::format_time;
use crate::failure::Failure;
use comfy_table::{Cell, CellAlignment, Table};
use granule::replay::whatif::{
    Answer, Choice, Effect, Kind, Nearest, NotExact, Outcome, SmallestDevice, Tried, Verdict,
};
use granule::round::format_bytes;
use std::io::Write;

/// Verdicts first, then the table, then what is to be known about the figures.
pub(super) fn print(
    name: &str,
    answer: &Answer,
    not_exact: &[NotExact],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(
        out,
        "{name}: {} events, up to {} requested at once; {} candidates, {} replays",
        answer.events,
        format_bytes(answer.peak_requested),
        answer.candidates.len(),
        answer.replays
    )?;
    let is_part = |why: &NotExact| matches!(why.effect, Effect::LowerBound | Effect::RightUntil);
    if not_exact.iter().any(is_part) {
        writeln!(
            out,
            "Only a part of the run was recorded: what fits here fits for that part (see the end)."
        )?;
    }
    for verdict in &answer.verdicts {
        writeln!(out)?;
        print_verdict(verdict, answer, out)?;
    }
    if let Some(smallest) = &answer.smallest {
        writeln!(out, "\nThe smallest device, to 16 MiB:")?;
        let devices = [("PyTorch", &smallest.pytorch), ("Granule", &smallest.granule)];
        for (who, device) in devices {
            if let Some(device) = device {
                writeln!(out, "  {}", smallest_line(who, device))?;
            }
        }
    }
    writeln!(out, "\n{}", table(answer))?;
    print_notes(answer, not_exact, out)?;
    Ok(())
}

fn print_verdict(verdict: &Verdict, answer: &Answer, out: &mut dyn Write) -> Result<(), Failure> {
    let device = format_bytes(verdict.capacity);
    if let Some(choice) = &verdict.least_change {
        writeln!(out, "On {device}: {}", headline(choice))?;
        print_choice(choice, out)?;
        if let Some(smooth) = &verdict.without_retries {
            writeln!(out, "  Without retries: {}", smooth.candidate)?;
            print_choice(smooth, out)?;
        }
        return Ok(());
    }
    if answer.peak_requested > verdict.capacity {
        let requested = format_bytes(answer.peak_requested);
        writeln!(out, "On {device}: nothing can fit: the program requests {requested} at once")?;
    } else {
        writeln!(out, "On {device}: nothing of what was tried fits")?;
    }
    if let Some(nearest) = &verdict.nearest {
        writeln!(out, "  {}", nearest_line(nearest))?;
    }
    if let Some(uncached) = &verdict.without_caching {
        #[allow(clippy::cast_precision_loss)]
        let time = format_time(uncached.modelled_driver_ns as f64);
        writeln!(out, "  Without any caching it fits, with {time} in the driver: {}", uncached.candidate)?;
    }
    Ok(())
}

fn headline(choice: &Choice) -> String {
    match (choice.policy, choice.changed_options.as_slice(), choice.steps.as_slice()) {
        (_, _, []) => "fits as it is".into(),
        ("granule", _, _) => {
            "fits with Granule's policy, and with no setting of PyTorch's that was tried".into()
        }
        (_, [], _) => format!("fits with {}, and with no setting that was tried", choice.candidate),
        (_, [one], _) => format!("fits with one change, {one}"),
        (_, several, _) => format!("fits with {} changes, {}", several.len(), several.join(" and ")),
    }
}

/// What to paste, and what it gives.
fn print_choice(choice: &Choice, out: &mut dyn Write) -> Result<(), Failure> {
    for step in &choice.steps {
        writeln!(out, "    {step}")?;
    }
    #[allow(clippy::cast_precision_loss)]
    let time = format_time(choice.modelled_driver_ns as f64);
    let retries = match choice.num_alloc_retries {
        0 => "no retries".into(),
        1 => "1 retry, which gives the whole cache back and waits for the device".into(),
        many => format!("{many} retries, each of which gives the whole cache back and waits for the device"),
    };
    writeln!(
        out,
        "  {} reserved at most, {retries}; {time} in the driver",
        format_bytes(choice.reserved_bytes_peak.unsigned_abs())
    )?;
    Ok(())
}

fn nearest_line(nearest: &Nearest) -> String {
    let conf = &nearest.candidate;
    let refused = match nearest.refused {
        1 => "1 request, of".into(),
        many => format!("{many} requests, the first of"),
    };
    let place = nearest.first_refusal.map_or_else(String::new, |first| {
        let iteration = first.iteration.map_or_else(String::new, |n| format!(", in iteration {n}"));
        let size = format_bytes(first.requested);
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
    let steps = match device.steps.as_slice() {
        [] => "as it is".into(),
        steps => steps.join("; "),
    };
    format!("{who}: {} {retries}: {steps}", format_bytes(device.found.min_capacity))
}

/// A line per candidate.
fn table(answer: &Answer) -> Table {
    let mut header: Vec<String> =
        ["candidate", "reserved", "of default", "of requested", "driver calls", "driver time"]
            .map(ToOwned::to_owned)
            .to_vec();
    header.extend(answer.verdicts.iter().map(|verdict| format_bytes(verdict.capacity)));
    let mut table = new_table(header);
    let default = answer.candidates.iter().find(|tried| tried.candidate.conf.is_empty());
    let default = default.or(answer.candidates.first()).map_or(0, |tried| tried.roomy.held());
    for tried in &answer.candidates {
        table.add_row(row(tried, default, answer.peak_requested));
    }
    align_right(&mut table, [1, 2, 3, 4, 5]);
    for column in table.column_iter_mut().skip(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(tried: &Tried, default: u64, requested: u64) -> Vec<Cell> {
    let roomy = &tried.roomy;
    let mark = match tried.candidate.kind {
        Kind::Current => " (now)",
        Kind::Yours => " (yours)",
        Kind::Default | Kind::Advice | Kind::Combination | Kind::Granule => "",
    };
    #[allow(clippy::cast_precision_loss)]
    let time = format_time(roomy.modelled_driver_ns as f64);
    let mut cells = vec![
        format!("{}{mark}", tried.candidate.name),
        // On a device that was too small for it, it would be more.
        format!("{}{}", format_bytes(roomy.held()), if was_full(roomy) { " +" } else { "" }),
        ratio(roomy.held(), default),
        ratio(roomy.held(), requested),
        roomy.memory_calls().to_string(),
        time,
    ];
    cells.extend(tried.outcomes.iter().map(outcome));
    cells.into_iter().map(Cell::new).collect()
}

/// Whether more would have been taken, had there been more: the cache was flushed, or parts of it were given back where next to
/// nothing was left.
fn was_full(roomy: &Outcome) -> bool {
    let nearly_all = roomy.held() > roomy.capacity - roomy.capacity / 20;
    roomy.num_alloc_retries > 0 || (roomy.num_device_free > 0 && nearly_all)
}

fn outcome(outcome: &Outcome) -> String {
    match (outcome.refused, outcome.num_alloc_retries) {
        (0, 0) => "fits".into(),
        (0, 1) => "1 retry".into(),
        (0, many) => format!("{many} retries"),
        (refused, _) => format!("{refused} refused"),
    }
}

fn ratio(part: u64, whole: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let ratio = part as f64 / whole as f64;
    if whole == 0 { String::new() } else { format!("{ratio:.3}") }
}

fn print_notes(answer: &Answer, not_exact: &[NotExact], out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "The first figures are those of a device of {} (+: it was full, more would have been taken). Driver time is that of the cost model.",
        format_bytes(answer.roomy_capacity)
    )?;
    if answer.verdicts.iter().any(|verdict| verdict.fitting < answer.candidates.len()) {
        writeln!(
            out,
            "Where requests are refused, the program would end at the first; how many are refused is counted as if it went on without."
        )?;
    }
    if not_exact.is_empty() {
        writeln!(
            out,
            "Exact: with the pytorch policy, PyTorch's own allocator gives these figures on these requests."
        )?;
    }
    for why in not_exact {
        writeln!(
            out,
            "Not exact: {}. {}: {}; {}.",
            why.reason,
            effect(why.effect),
            why.figures.join(", "),
            why.meaning
        )?;
    }
    for reason in &answer.not_tried {
        writeln!(out, "Not tried: {reason}.")?;
    }
    Ok(())
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
