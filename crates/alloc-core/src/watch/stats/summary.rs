//! A table of the figures, column by column that of `torch.cuda.memory_summary()`.

use super::{DeviceStats, Stat, StatArray};
use crate::types::DeviceIndex;

const WIDTH: usize = 75;

/// Formatter of a column's figures; the second argument decides on the unit.
type Format = fn(i64, i64) -> String;

impl DeviceStats {
    /// These figures as a table for people; `abbreviated` leaves the rows for the two pools out.
    #[must_use]
    pub fn summary(&self, device: DeviceIndex, abbreviated: bool) -> String {
        let heading = [
            format!("Granule memory summary, device ID {}", device.0),
            format!("requests refused: {} | driver asked again: {}", self.num_ooms, self.num_alloc_retries),
        ];
        let reserved = ["Reserved memory", "Reserved segments", "Oversize segments"];
        self.table(&heading.map(|line| format!("{line:^WIDTH$}")), reserved, abbreviated)
    }

    /// The same word for word as `torch.cuda.memory_summary()` prints it: for programs in which PyTorch runs.
    #[must_use]
    pub fn pytorch_summary(&self, device: DeviceIndex, abbreviated: bool) -> String {
        let heading = [
            format!("{:17} PyTorch CUDA memory summary, device ID {:<17} ", "", device.0),
            format!(
                "{:11} CUDA OOMs: {:<12} | {:6} cudaMalloc retries: {:<8}  ",
                "", self.num_ooms, "", self.num_alloc_retries
            ),
        ];
        let reserved = ["GPU reserved memory", "GPU reserved segments", "Oversize GPU segments"];
        self.table(&heading, reserved, abbreviated)
    }

    fn table(&self, [title, failures]: &[String; 2], reserved: [&str; 3], abbreviated: bool) -> String {
        let [memory, segments, oversize] = reserved;
        let metrics: [(&str, &StatArray, Format); 9] = [
            ("Allocated memory", &self.allocated_bytes, size),
            ("Active memory", &self.active_bytes, size),
            ("Requested memory", &self.requested_bytes, size),
            (memory, &self.reserved_bytes, size),
            ("Non-releasable memory", &self.inactive_split_bytes, size),
            ("Allocations", &self.allocation, count),
            ("Active allocs", &self.active, count),
            (segments, &self.segment, count),
            ("Non-releasable allocs", &self.inactive_split, count),
        ];
        let (double, single) = ("=".repeat(WIDTH), "-".repeat(WIDTH));
        let mut lines = vec![
            double.clone(),
            title.clone(),
            single.clone(),
            failures.clone(),
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
        for (name, stat) in
            [("Oversize allocations", &self.oversize_allocations), (oversize, &self.oversize_segments)]
        {
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
    fn both_tables_have_the_same_figures_and_only_one_speaks_of_pytorch() {
        let stats = DeviceStats { num_ooms: 3, ..DeviceStats::default() };
        let (own, pytorchs) =
            (stats.summary(DeviceIndex(12), false), stats.pytorch_summary(DeviceIndex(12), false));
        assert!(own.contains("device ID 12") && own.contains("requests refused: 3 "), "{own}");
        assert!(
            own.contains("| Reserved memory       |") && own.contains("| Oversize segments     |"),
            "{own}"
        );
        for word in ["PyTorch", "CUDA", "GPU", "cudaMalloc"] {
            assert!(pytorchs.contains(word) && !own.contains(word), "{word}: {own}");
        }
        assert_eq!(own.lines().count(), pytorchs.lines().count());
        assert!(own.lines().all(|line| line.chars().count() == WIDTH + 2), "{own}");
    }

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
