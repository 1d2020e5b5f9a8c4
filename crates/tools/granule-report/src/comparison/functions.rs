//! Functions that asked for memory, in several runs: their bytes at each run's peak, and the charts' categories.
//!
//! Lines are left out: an edited program has the same function elsewhere. So are all folders but the last, since ranks and
//! versions of a program may have theirs.

use granule_analysis::Run;
use granule_analysis::inspect::{Caller, Place};
use granule_analysis::run::Allocation;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::cmp::Reverse;

/// Categories, the rest included: more colours cannot be told apart.
const MOST: usize = 13;

/// All functions of all runs.
#[derive(Debug)]
pub(super) struct Functions {
    rows: Vec<Row>,
    /// For each run the function of each call site.
    of_sites: Vec<Vec<u32>>,
    /// The category of each function.
    category_of: Vec<u8>,
    /// Names of the categories, the one with most bytes first.
    pub(super) categories: Vec<String>,
    /// Whether the last category is the rest of too many.
    pub(super) rest: bool,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    /// Bytes live at the peak of each run.
    pub(super) bytes: Vec<u64>,
    /// See [`difference`].
    pub(super) difference: i64,
}

impl Functions {
    pub(super) fn of(runs: &[&Run]) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        let mut by_name: FxHashMap<String, u32> = FxHashMap::default();
        let mut function = |stack: &_| {
            let name = name(stack);
            *by_name.entry(name.clone()).or_insert_with(|| {
                rows.push(Row { name, bytes: vec![0; runs.len()], difference: 0 });
                rows.len() as u32 - 1
            })
        };
        let of_sites: Vec<Vec<u32>> =
            runs.iter().map(|run| run.sites.iter().map(&mut function).collect()).collect();
        let mut asked = vec![false; rows.len()];
        for (index, run) in runs.iter().enumerate() {
            let (peak, _) = run.peak();
            for life in &run.allocations {
                let Some(row) = of_sites[index].get(life.site as usize) else { continue };
                asked[*row as usize] = true;
                if life.is_live(peak) {
                    let bytes = &mut rows[*row as usize].bytes[index];
                    *bytes = bytes.saturating_add(life.size);
                }
            }
        }
        for row in &mut rows {
            row.difference = difference(&row.bytes);
        }
        let mut functions =
            Self { rows, of_sites, category_of: Vec::new(), categories: Vec::new(), rest: false };
        functions.categorise((0..asked.len()).filter(|row| asked[*row]).collect());
        functions
    }

    /// Of the functions that asked, those with most bytes at any run's peak get a category each, the others share one.
    fn categorise(&mut self, mut order: Vec<usize>) {
        let most = |row: &usize| self.rows[*row].bytes.iter().copied().max().unwrap_or(0);
        order.sort_by_key(|row| Reverse(most(row)));
        let own = if order.len() > MOST { MOST - 1 } else { order.len() };
        self.categories = order[..own].iter().map(|row| self.rows[*row].name.clone()).collect();
        self.category_of = vec![own as u8; self.rows.len()];
        for (category, row) in order[..own].iter().enumerate() {
            self.category_of[*row] = category as u8;
        }
        self.rest = own < order.len();
        if self.rest {
            self.categories.push(format!("{} others", order.len() - own));
        }
        if self.categories.is_empty() {
            self.categories.push(UNKNOWN.to_owned());
        }
    }

    /// The category of an allocation of a run.
    pub(super) fn category(&self, run: usize, life: &Allocation) -> usize {
        let row = self.of_sites[run].get(life.site as usize);
        row.map_or(self.categories.len() - 1, |row| usize::from(self.category_of[*row as usize]))
    }

    /// Functions that have anything at a peak, the largest difference first.
    pub(super) fn table(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> =
            self.rows.iter().filter(|row| row.bytes.iter().any(|bytes| *bytes > 0)).collect();
        rows.sort_by_key(|row| {
            (Reverse(row.difference.unsigned_abs()), Reverse(row.bytes.iter().copied().max()))
        });
        rows
    }
}

const UNKNOWN: &str = "no stack recorded";

fn name(stack: &[alloc_core::snapshot::Frame]) -> String {
    let place = Caller::of_stack(stack).place;
    let name = Place { line: 0, ..place }.short();
    if name.trim().is_empty() { UNKNOWN.to_owned() } else { name }
}

/// Of two runs what the second has more than the first; of several the most over the least.
fn difference(bytes: &[u64]) -> i64 {
    let by = |from: u64, to: u64| {
        (i128::from(to) - i128::from(from)).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    };
    match *bytes {
        [first, second] => by(first, second),
        _ => by(bytes.iter().copied().min().unwrap_or(0), bytes.iter().copied().max().unwrap_or(0)),
    }
}
