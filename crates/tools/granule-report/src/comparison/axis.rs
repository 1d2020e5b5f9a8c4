//! One time axis for several runs.

use granule_analysis::Run;
use granule_analysis::run::Moment;
use serde::Serialize;

/// Bins of the axis: eight times as many as a screen has pixels, so that one can look closer.
pub(super) const BINS: u32 = 1 << 14;

/// What is below what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "by")]
pub(super) enum Axis {
    /// The same share of each run's entries: all are as wide as the axis.
    Share,
    /// The same iteration, counted from each run's first mark, whatever its number is. An iteration is as wide as another, and a
    /// run with fewer ends earlier.
    Iteration {
        /// Iterations of the run that has most, and what is before the first.
        pieces: u32,
        /// Whether there is anything before the first.
        lead: bool,
    },
}

impl Axis {
    /// By iteration where every run has two marks or more.
    pub(super) fn of(runs: &[&Run]) -> Self {
        if runs.iter().any(|run| run.iterations.len() < 2) {
            return Self::Share;
        }
        let lead = runs.iter().any(|run| run.iterations[0].at > 0);
        let most = runs.iter().map(|run| run.iterations.len()).max().unwrap_or(0);
        Self::Iteration { pieces: most as u32 + u32::from(lead), lead }
    }

    /// The first and the last moment of each bin, up to where the run ends.
    pub(super) fn ranges(self, run: &Run) -> Vec<(Moment, Moment)> {
        let borders = self.borders(run);
        let pieces = match self {
            Self::Share => 1,
            Self::Iteration { pieces, .. } => u64::from(pieces.max(1)),
        };
        let own = borders.len() as u64 - 1;
        let bins = u64::from(BINS);
        let moment = |bin: u64| {
            let (piece, part) = (bin * pieces / bins, bin * pieces % bins);
            if piece >= own {
                return borders[own as usize];
            }
            let (from, to) = (borders[piece as usize], borders[piece as usize + 1]);
            from + to.saturating_sub(from) * part / bins
        };
        let last = u64::from(run.length);
        let range = |bin| {
            let first = moment(bin).min(last);
            // A bin that is shorter than a moment has the moment that it is in.
            let end = moment(bin + 1).clamp(first + 1, last + 1);
            (first as Moment, (end - 1) as Moment)
        };
        (0..(own * bins).div_ceil(pieces)).map(range).collect()
    }

    /// Where the run's pieces begin, and where the last one ends.
    fn borders(self, run: &Run) -> Vec<u64> {
        let mut borders = Vec::new();
        if let Self::Iteration { lead, .. } = self {
            borders.extend(lead.then_some(0));
            borders.extend(run.iterations.iter().map(|mark| u64::from(mark.at.min(run.length))));
        } else {
            borders.push(0);
        }
        borders.push(u64::from(run.length) + 1);
        borders
    }
}
