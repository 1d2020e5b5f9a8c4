//! Offline placement: published instances at their capacity, and recorded programs.

use super::Options;
use crate::process::{self, command, files};
use crate::table::{Table, figure, median};
use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// What the published instances are to fit in.
const CAPACITY: u64 = 1_048_576;

/// Seconds that google/minimalloc takes for the instances A to F, one core each, on the project's first machine: for the
/// order of magnitude, not for ratios.
const REFERENCE: [(&str, f64); 6] = [("A", 9.2), ("B", 6.8), ("C", 1.4), ("D", 6.2), ("E", 7.3), ("F", 10.3)];

/// What placing one instance took, in the medians of the rounds. A peak is one that the command's verifier has accepted; there is
/// none where a round placed nothing, or above the capacity.
#[derive(Debug, Serialize)]
struct Figures {
    instance: String,
    /// Null where as low as possible is wanted.
    capacity: Option<u64>,
    peak: Option<u64>,
    /// The most live at once.
    max_load: Option<u64>,
    /// Of the command by the clock, reading included.
    seconds: f64,
    /// Of all processors together, in ticks of the system's clock.
    processor_seconds: f64,
    /// Whether no placement is lower.
    optimal: bool,
}

impl Figures {
    /// Of the command's answers, one a round, with the seconds and processor seconds they took.
    fn of(instance: String, capacity: Option<u64>, rounds: &[(Option<Value>, [f64; 2])]) -> Self {
        let placed = rounds.iter().all(|(answer, _)| answer.is_some());
        let answer = rounds.last().and_then(|(answer, _)| answer.as_ref()).filter(|_| placed);
        let whole = |field: &str| answer?[field].as_u64();
        let [seconds, processor_seconds] = [0, 1].map(|which| {
            median(&rounds.iter().map(|(_, times)| times[which]).collect::<Vec<_>>()).unwrap_or_default()
        });
        let peak = whole("height").filter(|peak| capacity.is_none_or(|capacity| *peak <= capacity));
        let optimal = answer.is_some_and(|answer| answer["optimal"] == true);
        Self { instance, capacity, peak, max_load: whole("max_load"), seconds, processor_seconds, optimal }
    }

    fn cells(&self) -> [String; 6] {
        #[allow(clippy::cast_precision_loss)]
        let ratio = self.peak.zip(self.max_load).map(|(peak, load)| peak as f64 / load.max(1) as f64);
        let reference = REFERENCE.iter().find(|(known, _)| *known == self.instance);
        [
            self.instance.clone(),
            ratio.map_or_else(|| "not placed".into(), |ratio| format!("{ratio:.4}")),
            (if self.optimal { "yes" } else { "not known" }).to_owned(),
            figure(self.seconds),
            figure(self.processor_seconds),
            reference.map_or_else(String::new, |(_, seconds)| seconds.to_string()),
        ]
    }
}

fn measure(granule: &Path, input: &Path, capacity: Option<u64>, rounds: u32) -> Result<Figures> {
    let mut answers = Vec::new();
    for _ in 0..rounds.max(1) {
        let mut plan = command(granule);
        plan.arg("plan").arg(input).arg("--json");
        plan.args(capacity.iter().flat_map(|capacity| ["--capacity".to_owned(), capacity.to_string()]));
        let (answer, times) = process::timed(|| Ok(process::json(&mut plan)))?;
        let answer = answer.inspect_err(|error| println!("not placed: {error:#}"));
        answers.push((answer.ok(), times.map(|time| time.as_secs_f64())));
    }
    Ok(Figures::of(files::stem(input), capacity, &answers))
}

pub(super) fn report(options: &Options) -> Result<String> {
    process::cargo(&["build", "--profile", "dist", "-p", "granule-cli", "--features", "full"])?;
    let granule = process::target().join("dist/granule");
    let mut all = Vec::new();
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
    for instance in instances {
        all.push(measure(&granule, &instance, Some(CAPACITY), options.rounds)?);
    }
    for trace in options.traces()? {
        all.push(measure(&granule, &trace, None, options.rounds)?);
    }
    if let Some(path) = &options.json {
        process::write_json(path, &all)?;
    }
    let mut table = Table::new([
        "instance",
        "height / most live at once",
        "lowest",
        "seconds",
        "processor seconds",
        "minimalloc, seconds",
    ]);
    all.iter().for_each(|figures| table.row(figures.cells()));
    Ok(format!(
        "## Planner\n\nThe command prints placements that its verifier accepts, and no others. *Lowest*: no placement needs less.\n\n{}",
        table.text()
    ))
}

#[cfg(test)]
mod tests {
    use super::Figures;
    use serde_json::json;

    #[test]
    fn an_instance_counts_as_placed_where_every_round_has_placed_it() {
        let answer = Some(json!({"height": 8, "max_load": 8, "optimal": true}));
        let rounds = [(answer.clone(), [1.0, 2.0]), (answer.clone(), [3.0, 4.0]), (answer, [2.0, 3.0])];
        let placed = Figures::of("A".into(), Some(8), &rounds);
        assert_eq!(
            serde_json::to_value(&placed).expect("figures"),
            json!({"instance": "A", "capacity": 8, "peak": 8, "max_load": 8, "seconds": 2.0,
                "processor_seconds": 3.0, "optimal": true})
        );
        let failed = Figures::of("A".into(), Some(8), &[rounds[0].clone(), (None, [9.0, 9.0])]);
        assert_eq!((failed.peak, failed.optimal), (None, false));
        assert_eq!(Figures::of("A".into(), Some(7), &rounds).peak, None, "above the capacity");
        assert_eq!(failed.cells()[1], "not placed");
    }
}
