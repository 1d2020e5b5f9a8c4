//! Categories of what there may be thousands of: those that hold most get one each, the rest share one.

use super::{Tabled, Way};
use granule_analysis::Run;
use rustc_hash::FxHashMap;

/// Categories of a way, the shared one included: more colours cannot be told apart.
const MOST: usize = 13;

/// How much of the picture each allocation is.
pub(super) struct Shares<'a> {
    run: &'a Run,
    /// The moment at which most was live, and how much.
    peak: (u32, u64),
    /// Bytes times moments of all.
    area: f64,
}

/// Categories by number, of call sites for example.
pub(super) struct Ranked {
    pub(super) classes: Vec<u8>,
    names: Vec<Option<String>>,
    rest: usize,
}

impl<'a> Shares<'a> {
    pub(super) fn of(run: &'a Run) -> Self {
        let mut shares = Self { run, peak: run.peak(), area: 0.0 };
        shares.area = run.allocations.iter().map(|life| shares.area_of(life)).sum::<f64>().max(1.0);
        shares
    }

    fn area_of(&self, life: &granule_analysis::run::Allocation) -> f64 {
        let end = life.end.min(self.run.length.saturating_add(1));
        life.size as f64 * f64::from(end.saturating_sub(life.begin))
    }

    /// Part of the chart's area plus part of its highest point: what is seen in either should have a colour.
    fn share(&self, life: &granule_analysis::run::Allocation) -> f64 {
        let at_peak =
            if life.is_live(self.peak.0) { life.size as f64 / self.peak.1.max(1) as f64 } else { 0.0 };
        at_peak + self.area_of(life) / self.area
    }

    /// Ranks names by what the allocations with that name hold; one without a name is a category like another.
    pub(super) fn rank(&self, count: usize, by: Tabled, name: impl Fn(u32) -> Option<String>) -> Ranked {
        let mut groups: Vec<(Option<String>, f64)> = Vec::new();
        let mut by_name: FxHashMap<Option<String>, usize> = FxHashMap::default();
        let group_of: Vec<usize> = (0..count as u32)
            .map(|index| {
                let name = name(index);
                *by_name.entry(name.clone()).or_insert_with(|| {
                    groups.push((name, 0.0));
                    groups.len() - 1
                })
            })
            .collect();
        for life in &self.run.allocations {
            if let Some(group) = group_of.get(by.of(life) as usize) {
                groups[*group].1 += self.share(life);
            }
        }
        let mut order: Vec<usize> = (0..groups.len()).filter(|group| groups[*group].1 > 0.0).collect();
        order.sort_by(|a, b| groups[*b].1.total_cmp(&groups[*a].1));
        let own = if order.len() > MOST { MOST - 1 } else { order.len() };
        let rest = order.len() - own;
        // What is not to be seen in the chart may have any category.
        let last = (own + rest.min(1)).max(1) - 1;
        let mut class_of = vec![last as u8; groups.len()];
        for (class, group) in order[..own].iter().enumerate() {
            class_of[*group] = class as u8;
        }
        let names = order[..own].iter().map(|group| groups[*group].0.take()).collect();
        let classes = group_of.into_iter().map(|group| class_of[group]).collect();
        Ranked { classes, names, rest }
    }
}

impl Ranked {
    pub(super) fn way(&self, id: &'static str, title: &'static str, unnamed: &str) -> Way {
        let names = self.names.iter().map(|name| name.clone().unwrap_or_else(|| unnamed.to_owned()));
        let rest = (self.rest > 0).then(|| format!("{} others", self.rest));
        let mut names: Vec<String> = names.chain(rest).collect();
        if names.is_empty() {
            names.push(unnamed.to_owned());
        }
        Way { id, title, names, ordered: false, bounds: Vec::new(), rest: self.rest > 0 }
    }
}
