//! What the driver was asked: the whole run, and the iterations after the second.

use crate::console::format_time;
use crate::table::Table;
use granule::replay::{DriverFigures, SimulatedFigures, Summary};
use granule::round::size_text;

/// One figure: its name, how it is read from counts and from means, and how it is shown.
struct Line {
    name: &'static str,
    count: fn(&DriverFigures<u64>) -> u64,
    mean: fn(&DriverFigures<f64>) -> f64,
    show: fn(f64) -> String,
}

macro_rules! line {
    ($name:literal, $figure:ident, $show:expr) => {
        Line { name: $name, count: |f| f.$figure, mean: |f| f.$figure, show: $show }
    };
}

const LINES: [Line; 8] = [
    line!("granules mapped", granules_mapped, number),
    line!("granules unmapped", granules_unmapped, number),
    line!("granules moved", granules_moved, number),
    line!("physical creations", physical_creations, number),
    line!("bytes created", created_bytes, bytes),
    line!("host waits", host_waits, number),
    line!("device-wide waits", device_wide_waits, number),
    line!("modelled driver time", modelled_driver_ns, format_time),
];

/// The table; columns for iterations only where there are some after the second.
pub(super) fn table(figures: &SimulatedFigures) -> Table {
    let after = &figures.after_second_iteration;
    let title = |what: &str, summary: &Summary| format!("{what} {} after the 2nd", summary.iterations);
    let mut header = vec!["driver".to_owned(), "whole run".to_owned()];
    let summaries: Vec<&Summary> = [("mean of", &after.all), ("repeating: mean of", &after.repeating)]
        .into_iter()
        .filter_map(|(what, summary)| {
            let summary = summary.as_ref()?;
            header.extend([title(what, summary), "most".to_owned()]);
            Some(summary)
        })
        .collect();
    let mut table = Table::new(header);
    for line in &LINES {
        #[allow(clippy::cast_precision_loss)]
        let show = |count: u64| (line.show)(count as f64);
        let mut cells = vec![line.name.to_owned(), show((line.count)(&figures.driver))];
        for summary in &summaries {
            cells.extend([(line.show)((line.mean)(&summary.mean)), show((line.count)(&summary.max))]);
        }
        table.row(cells);
    }
    table.align_right(1..=5);
    table
}

/// Counts as they are, means to a tenth.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn bytes(value: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // The cast saturates; figures are never negative.
    size_text(value.round() as u64)
}
