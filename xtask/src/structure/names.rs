//! What a path in the code means: the module and the item that it leads to.

use super::modules::Tree;
use super::references::{self, Import};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use syn::ext::IdentExt;
use syn::{Ident, Item};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Module(usize),
    /// Something in a module, by name.
    Item(usize, String),
}

impl Target {
    pub(super) fn module(&self) -> usize {
        match self {
            Self::Module(module) | Self::Item(module, _) => *module,
        }
    }
}

/// Where a path leads, and through which modules' re-exports.
#[derive(Default)]
pub(super) struct Meaning {
    pub(super) targets: BTreeSet<Target>,
    pub(super) through: BTreeSet<usize>,
}

/// What a module has names for.
struct Scope {
    declared: HashSet<String>,
    imports: Vec<Import>,
    /// Where `type X = path` leads.
    aliases: BTreeMap<String, Vec<String>>,
}

/// The names of a crate.
pub(super) struct Names<'t> {
    tree: &'t Tree<'t>,
    scopes: Vec<Scope>,
    /// What is being looked up: imports may lead in circles.
    open: RefCell<HashSet<(usize, String)>>,
}

impl<'t> Names<'t> {
    pub(super) fn of(tree: &'t Tree<'t>) -> Self {
        let scopes = tree.modules.iter().map(|module| Scope {
            declared: module.items.iter().filter_map(name_of).map(unraw).collect(),
            imports: references::imports(module.items),
            aliases: module.items.iter().filter_map(alias).collect(),
        });
        Self { tree, scopes: scopes.collect(), open: RefCell::default() }
    }

    /// What a path means that stands in a module. Nothing where it leads out of the crate.
    pub(super) fn resolve(&self, module: usize, path: &[String]) -> Meaning {
        let mut meaning = Meaning::default();
        self.walk(module, path, &mut meaning);
        meaning
    }

    /// The types behind a path: aliases are followed.
    pub(super) fn types(&self, module: usize, path: &[String]) -> BTreeSet<(usize, String)> {
        let mut types = BTreeSet::new();
        let mut seen = HashSet::new();
        let mut open = vec![(module, path.to_vec())];
        while let Some((module, path)) = open.pop() {
            for target in self.resolve(module, &path).targets {
                let Target::Item(module, name) = target else { continue };
                match self.scopes[module].aliases.get(&name) {
                    Some(aliased) if seen.insert((module, name.clone())) => {
                        open.push((module, aliased.clone()))
                    }
                    _ => drop(types.insert((module, name))),
                }
            }
        }
        types
    }

    fn walk(&self, module: usize, path: &[String], meaning: &mut Meaning) {
        let Some((first, mut rest)) = path.split_first() else {
            return;
        };
        let mut found = match first.as_str() {
            "crate" => BTreeSet::from([Target::Module(0)]),
            "self" => BTreeSet::from([Target::Module(module)]),
            "super" => self.tree.modules[module].parent.map(Target::Module).into_iter().collect(),
            name => self.look_up(module, name, meaning),
        };
        while let Some((name, further)) = rest.split_first() {
            let mut next = BTreeSet::new();
            for target in found {
                match target {
                    Target::Module(inside) if name == "super" => {
                        next.extend(self.tree.modules[inside].parent.map(Target::Module));
                    }
                    Target::Module(inside) => next.extend(self.inside(inside, name, module, meaning)),
                    item @ Target::Item(..) => drop(next.insert(item)),
                }
            }
            (found, rest) = (next, further);
        }
        meaning.targets.append(&mut found);
    }

    /// A name after a module's path. What is not found there comes from a macro, or from another crate by a glob.
    fn inside(&self, module: usize, name: &str, from: usize, meaning: &mut Meaning) -> BTreeSet<Target> {
        let found = self.look_up(module, name, meaning);
        let leads_on = found.iter().any(|target| target.module() != module)
            && !self.tree.modules[module].children.contains_key(name);
        if leads_on && module != from {
            meaning.through.insert(module);
        }
        if found.is_empty() { BTreeSet::from([Target::Item(module, name.to_owned())]) } else { found }
    }

    fn look_up(&self, module: usize, name: &str, meaning: &mut Meaning) -> BTreeSet<Target> {
        let key = (module, name.to_owned());
        if !self.open.borrow_mut().insert(key.clone()) {
            return BTreeSet::new();
        }
        let found = self.look_up_once(module, name, meaning);
        self.open.borrow_mut().remove(&key);
        found
    }

    fn look_up_once(&self, module: usize, name: &str, meaning: &mut Meaning) -> BTreeSet<Target> {
        if let Some(children) = self.tree.modules[module].children.get(name) {
            return children.iter().copied().map(Target::Module).collect();
        }
        let scope = &self.scopes[module];
        if scope.declared.contains(name) {
            return BTreeSet::from([Target::Item(module, name.to_owned())]);
        }
        let mut inner = Meaning::default();
        for import in scope.imports.iter().filter(|import| import.name.as_deref() == Some(name)) {
            self.walk(module, &import.path, &mut inner);
        }
        if inner.targets.is_empty() {
            for import in scope.imports.iter().filter(|import| import.name.is_none()) {
                let mut all = Meaning::default();
                self.walk(module, &import.path, &mut all);
                for target in all.targets {
                    if let Target::Module(other) = target {
                        inner.targets.append(&mut self.look_up(other, name, meaning));
                    }
                }
            }
        }
        meaning.through.append(&mut inner.through);
        inner.targets
    }
}

fn unraw(name: &Ident) -> String {
    name.unraw().to_string()
}

fn name_of(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn alias(item: &Item) -> Option<(String, Vec<String>)> {
    match item {
        Item::Type(alias) => match &*alias.ty {
            syn::Type::Path(path) => Some((unraw(&alias.ident), references::names(&path.path))),
            _ => None,
        },
        _ => None,
    }
}
