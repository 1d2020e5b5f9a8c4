//! Modules that import one another in circles: the top-level modules of a crate, and its files.

use super::modules::Tree;
use super::names::Names;
use super::references;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What is looked at as one thing. A file is made of those below it: that it names these is no import.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    TopLevelModules,
    Files,
}

/// Where one imports the other.
#[derive(Clone, Serialize)]
pub(super) struct Arrow {
    pub(super) from: String,
    pub(super) to: String,
    /// The first place, as `file:line`.
    pub(super) at: String,
    pub(super) times: usize,
}

/// Modules of which each leads to each.
#[derive(Serialize)]
pub(super) struct Cycle {
    pub(super) level: Level,
    /// The root file of the crate.
    pub(super) root: String,
    pub(super) members: Vec<String>,
    pub(super) arrows: Vec<Arrow>,
}

/// The arrows between a crate's modules.
pub(super) struct Graph {
    arrows: BTreeMap<(String, String), Arrow>,
}

impl Graph {
    pub(super) fn of(tree: &Tree<'_>, names: &Names<'_>, level: Level) -> Self {
        let mut graph = Self { arrows: BTreeMap::new() };
        for (module, from) in
            (0..tree.modules.len()).filter_map(|module| Some((module, node(tree, module, level)?)))
        {
            for mention in references::mentions(tree.modules[module].items) {
                let meaning = names.resolve(module, &mention.path);
                let mut to: BTreeSet<usize> = meaning.targets.iter().map(|target| target.module()).collect();
                match level {
                    Level::TopLevelModules => to.extend(meaning.through),
                    Level::Files => to.retain(|to| !tree.contains(module, *to)),
                }
                let to: BTreeSet<String> = to.into_iter().filter_map(|to| node(tree, to, level)).collect();
                for to in to.into_iter().filter(|to| *to != from) {
                    graph.add(&from, to, || format!("{}:{}", tree.file(module), mention.line));
                }
            }
        }
        graph
    }

    fn add(&mut self, from: &str, to: String, at: impl FnOnce() -> String) {
        let arrow = self.arrows.entry((from.to_owned(), to.clone())).or_insert_with(|| Arrow {
            from: from.to_owned(),
            to,
            at: at(),
            times: 0,
        });
        arrow.times += 1;
    }

    pub(super) fn cycles(&self, level: Level, root: &str) -> Vec<Cycle> {
        let mut cycles = Vec::new();
        for members in self.strongly_connected() {
            let inside = |(from, to): &(String, String)| members.contains(from) && members.contains(to);
            let arrows = self.arrows.iter().filter(|(ends, _)| inside(ends)).map(|(_, arrow)| arrow.clone());
            let arrows = arrows.collect();
            let members = members.into_iter().collect();
            cycles.push(Cycle { level, root: root.to_owned(), members, arrows });
        }
        cycles
    }

    /// The groups of more than one, each as large as can be: what leads there and back.
    fn strongly_connected(&self) -> Vec<BTreeSet<String>> {
        let nodes: BTreeSet<&str> = self.arrows.keys().map(|(from, _)| from.as_str()).collect();
        let mut leads_to: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for node in &nodes {
            leads_to.insert(node, self.reachable(node));
        }
        let mut groups = BTreeSet::new();
        for (node, reached) in &leads_to {
            let back = |other: &&&str| leads_to.get(**other).is_some_and(|from| from.contains(node));
            let group: BTreeSet<String> = reached.iter().filter(back).map(|one| (*one).to_owned()).collect();
            if group.len() > 1 {
                groups.insert(group);
            }
        }
        groups.into_iter().collect()
    }

    fn reachable(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from.to_owned()];
        while let Some(node) = open.pop() {
            let start = (node.clone(), String::new());
            let next = self.arrows.range(start..).take_while(|((from, _), _)| *from == node);
            for ((_, to), _) in next {
                if reached.insert(to.as_str()) {
                    open.push(to.clone());
                }
            }
        }
        reached
    }
}

/// What a module is part of. The root of a crate is no top-level module.
fn node(tree: &Tree<'_>, module: usize, level: Level) -> Option<String> {
    match level {
        Level::TopLevelModules => tree.modules[module].path.first().cloned(),
        Level::Files => Some(tree.file(module).to_owned()),
    }
}
