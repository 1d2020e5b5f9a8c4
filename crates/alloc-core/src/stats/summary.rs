//! The table of `torch.cuda.memory_summary()`, column by column.

use super::{DeviceStats, Stat, StatArray};
use crate::types::DeviceIndex;

const WIDTH: usize = 75;

/// How a column's figures are written; the second one decides on the unit.
type Format = fn(i64, i64) -> String;

impl DeviceStats {
    /// PyTorch's summary of these figures, laid out as `torch.cuda.memory_summary()` does; `abbreviated` leaves the rows
    /// for the two pools out.
    #[must_use]
    pub fn summary(&self, device: DeviceIndex, abbreviated: bool) -> String {
        let metrics: [(&str, &StatArray, Format); 9] = [
            ("Allocated memory", &self.allocated_bytes, size),
            ("Active memory", &self.active_bytes, size),
            ("Requested memory", &self.requested_bytes, size),
            ("GPU reserved memory", &self.reserved_bytes, size),
            ("Non-releasable memory", &self.inactive_split_bytes, size),
            ("Allocations", &self.allocation, count),
            ("Active allocs", &self.active, count),
            ("GPU reserved segments", &self.segment, count),
            ("Non-releasable allocs", &self.inactive_split, count),
        ];
        let (double, single) = ("=".repeat(WIDTH), "-".repeat(WIDTH));
        let mut lines = vec![
            double.clone(),
            format!("{:17} PyTorch CUDA memory summary, device ID {:<17} ", "", device.0),
            single.clone(),
            format!(
                "{:11} CUDA OOMs: {:<12} | {:6} cudaMalloc retries: {:<8}  ",
                "", self.num_ooms, "", self.num_alloc_retries
            ),
            double.clone(),
            "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ".to_owned(),
        ];
        for (name, array, format) in metrics {
            lines.push(single.clone());
            lines.push(row(name, &array.all, &array.all, format));
            if !abbreviated {
                lines.push(row("      from large pool", &array.large_pool, &array.all, format));
                lines.push(row("      from small pool", &array.small_pool, &array.all, format));
            }
        }
        for (name, stat) in [
            ("Oversize allocations", &self.oversize_allocations),
            ("Oversize GPU segments", &self.oversize_segments),
        ] {
            lines.push(single.clone());
            lines.push(row(name, stat, stat, count));
        }
        lines.push(double);
        lines.iter().map(|line| format!("|{line}|\n")).collect()
    }
}

/// One row, each cell in the unit of the cell above it in `whole`.
fn row(name: &str, stat: &Stat, whole: &Stat, format: Format) -> String {
    let cells = [
        format(stat.current, whole.current),
        format(stat.peak, whole.peak),
        format(stat.allocated, whole.allocated),
        format(stat.freed, whole.freed),
    ];
    format!(" {name:<21} | {} ", cells.join(" | "))
}

fn size(bytes: i64, of: i64) -> String {
    let (value, unit) = scaled(bytes, of, 1024, 768, &["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]);
    format!("{value:6} {unit}")
}

fn count(number: i64, of: i64) -> String {
    let (value, unit) = scaled(number, of, 1000, 750, &[" ", "K", "M"]);
    format!("{value:7} {unit} ")
}

/// A unit is passed by from `turn` of the next one on.
fn scaled(value: i64, of: i64, step: i64, turn: i64, units: &[&'static str]) -> (i64, &'static str) {
    let mut divisor = 1;
    let mut unit = 0;
    while unit + 1 < units.len() && i128::from(of) >= i128::from(divisor) * i128::from(turn * step) {
        divisor *= step;
        unit += 1;
    }
    (value.div_euclid(divisor), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_change_their_unit_where_pytorchs_do() {
        assert_eq!(size(768 * 1024 - 1, 768 * 1024 - 1), "786431 B  ");
        assert_eq!(size(768 * 1024, 768 * 1024), "   768 KiB");
        assert_eq!(size(3_147_264 + 1536, 3_147_264 + 1536), "  3075 KiB");
        assert_eq!(size(1, 1 << 40), "     0 GiB", "the column's unit counts");
        assert_eq!(size(i64::MAX, i64::MAX), "  8191 PiB");
        assert_eq!(count(749_999, 749_999), " 749999   ");
        assert_eq!(count(750_000, 750_000), "    750 K ");
        assert_eq!(count(750_000_000_000, 750_000_000_000), " 750000 M ");
    }
}
