//! Offline placement: published instances at their capacity, and recorded programs.

use super::Options;
use crate::process::{self, command, files};
use crate::table::{Table, figure, median};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::path::Path;

/// What the published instances are to fit in.
const CAPACITY: u64 = 1_048_576;
const COLUMNS: [&str; 5] =
    ["instance", "height / most live at once", "lowest", "seconds", "processor seconds"];

/// What the command answered in a round, where it placed anything, with the seconds and processor seconds that it took.
type Round = (Option<Value>, [f64; 2]);

/// The medians of the rounds. A height is one that the command's verifier has accepted; there is none where a round placed nothing,
/// or above the capacity.
fn cells(instance: String, capacity: Option<u64>, rounds: &[Round]) -> [String; 5] {
    let placed = rounds.iter().all(|(answer, _)| answer.is_some());
    let answer = rounds.last().and_then(|(answer, _)| answer.as_ref()).filter(|_| placed);
    let height = answer.and_then(|answer| answer["height"].as_f64());
    #[allow(clippy::cast_precision_loss)]
    let height = height.filter(|height| capacity.is_none_or(|capacity| *height <= capacity as f64));
    let live = answer.and_then(|answer| answer["max_load"].as_f64());
    let ratio = height.zip(live).map(|(height, live)| format!("{:.4}", height / live.max(1.0)));
    let is_lowest = answer.is_some_and(|answer| answer["optimal"] == true);
    let [seconds, processor_seconds] = [0, 1].map(|which| {
        let times: Vec<f64> = rounds.iter().map(|(_, times)| times[which]).collect();
        figure(median(&times).unwrap_or_default())
    });
    let ratio = ratio.unwrap_or_else(|| "not placed".into());
    [instance, ratio, (if is_lowest { "yes" } else { "not known" }).into(), seconds, processor_seconds]
}

fn measure(granule: &Path, input: &Path, capacity: Option<u64>, rounds: u32) -> Result<[String; 5]> {
    let mut answers = Vec::new();
    for _ in 0..rounds.max(1) {
        let mut plan = command(granule);
        plan.arg("plan").arg(input).arg("--json");
        plan.args(capacity.iter().flat_map(|capacity| ["--capacity".to_owned(), capacity.to_string()]));
        let (answer, times) = process::timed(|| Ok(process::json(&mut plan)))?;
        let answer = answer.inspect_err(|error| println!("not placed: {error:#}"));
        answers.push((answer.ok(), times.map(|time| time.as_secs_f64())));
    }
    Ok(cells(files::stem(input), capacity, &answers))
}

pub(super) fn report(options: &Options) -> Result<String> {
    process::cargo(&["build", "--profile", "dist", "-p", "granule-cli", "--features", "full"])?;
    let granule = process::target().join("dist/granule");
    let folder = options.instances.clone().unwrap_or_else(|| files::shared("minimalloc"));
    let instances = match files::in_folder(std::path::absolute(&folder)?, "csv") {
        // Those beside the repository need not be there.
        Err(_) if options.instances.is_none() => Vec::new(),
        found => found?,
    };
    ensure!(
        options.instances.is_none() || !instances.is_empty(),
        "{} has no instances: files id,lower,upper,size that end in .csv",
        folder.display()
    );
    let mut table = Table::new(COLUMNS);
    for instance in instances {
        table.row(measure(&granule, &instance, Some(CAPACITY), options.rounds)?);
    }
    for trace in options.traces()? {
        table.row(measure(&granule, &trace, None, options.rounds)?);
    }
    Ok(format!(
        "## Planner\n\nThe command prints placements that its verifier accepts, and no others. *Lowest*: no placement needs less.\n\n{}",
        table.text()
    ))
}

#[cfg(test)]
mod tests {
    use super::cells;
    use serde_json::json;

    #[test]
    fn an_instance_counts_as_placed_where_every_round_has_placed_it() {
        let answer = Some(json!({"height": 8, "max_load": 8, "optimal": true}));
        let rounds = [(answer.clone(), [1.0, 2.0]), (answer.clone(), [3.0, 4.0]), (answer, [2.0, 3.0])];
        assert_eq!(cells("A".into(), Some(8), &rounds), ["A", "1.0000", "yes", "2.00", "3.00"]);
        let failed = [rounds[0].clone(), (None, [9.0, 9.0])];
        assert_eq!(cells("A".into(), Some(8), &failed)[1..3], ["not placed", "not known"]);
        assert_eq!(cells("A".into(), Some(7), &rounds)[1], "not placed", "above the capacity");
    }
}
