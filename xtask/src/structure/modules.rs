//! The modules of a crate, found as the compiler finds them.

use super::source::{Package, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use syn::ext::IdentExt;
use syn::{Attribute, Expr, Item, Lit, Meta};

/// A module: a file, or a part of one.
pub(super) struct Module<'s> {
    /// Its names below the root; none for the root itself.
    pub(super) path: Vec<String>,
    pub(super) parent: Option<usize>,
    /// Several of one name where conditions choose between them.
    pub(super) children: BTreeMap<String, Vec<usize>>,
    /// Which of the package's sources it is in.
    pub(super) source: usize,
    pub(super) items: &'s [Item],
}

/// The modules of a library or a program, the root first.
pub(super) struct Tree<'s> {
    pub(super) package: &'s Package,
    pub(super) modules: Vec<Module<'s>>,
}

impl<'s> Tree<'s> {
    /// Reads from a root file on. `syntax` says what counts of a file.
    pub(super) fn read(
        package: &'s Package,
        root: &str,
        syntax: &impl Fn(&'s Source) -> Option<&'s syn::File>,
    ) -> Self {
        let mut tree = Self { package, modules: Vec::new() };
        if let Some(source) = package.source(root)
            && let Some(file) = syntax(&package.sources[source])
        {
            tree.add(None, Vec::new(), source, &file.items, &folder_of(root), syntax);
        }
        tree
    }

    /// Adds a module and those below it. `folder` is where files of modules that it declares lie.
    fn add(
        &mut self,
        parent: Option<usize>,
        path: Vec<String>,
        source: usize,
        items: &'s [Item],
        folder: &Path,
        syntax: &impl Fn(&'s Source) -> Option<&'s syn::File>,
    ) {
        let id = self.modules.len();
        if let Some((parent, name)) = parent.zip(path.last()) {
            self.modules[parent].children.entry(name.clone()).or_default().push(id);
        }
        self.modules.push(Module { path: path.clone(), parent, children: BTreeMap::new(), source, items });
        for item in items {
            let Item::Mod(declared) = item else { continue };
            let name = declared.ident.unraw().to_string();
            let path = [path.as_slice(), std::slice::from_ref(&name)].concat();
            if let Some((_, items)) = &declared.content {
                self.add(Some(id), path, source, items, &folder.join(&name), syntax);
            } else if let Some((child, folder)) = self.file_of(source, folder, &name, &declared.attrs)
                && let Some(file) = syntax(&self.package.sources[child])
                && !self.is_above(id, child)
            {
                self.add(Some(id), path, child, &file.items, &folder, syntax);
            }
        }
    }

    /// The file of a module, and the folder of those that it declares.
    fn file_of(
        &self,
        source: usize,
        folder: &Path,
        name: &str,
        attributes: &[Attribute],
    ) -> Option<(usize, PathBuf)> {
        let find = |path: PathBuf| self.package.source(&plain(&path));
        if let Some(named) = path_of(attributes) {
            let path = folder_of(&self.package.sources[source].path).join(named);
            return Some((find(path.clone())?, folder_of(&plain(&path))));
        }
        let inside = folder.join(name);
        let child = find(inside.with_extension("rs")).or_else(|| find(inside.join("mod.rs")))?;
        Some((child, inside))
    }

    /// Whether a module is in this file, or below one that is: a file that names itself ends there.
    fn is_above(&self, module: usize, source: usize) -> bool {
        let mut above = Some(module);
        while let Some(one) = above {
            if self.modules[one].source == source {
                return true;
            }
            above = self.modules[one].parent;
        }
        false
    }

    pub(super) fn file(&self, module: usize) -> &'s str {
        &self.package.sources[self.modules[module].source].path
    }

    /// Whether the file of one module declares the other, or a module around it.
    pub(super) fn contains(&self, module: usize, other: usize) -> bool {
        let mut outermost = module;
        while let Some(outer) = self.modules[outermost].parent
            && self.modules[outer].source == self.modules[module].source
        {
            outermost = outer;
        }
        self.modules[other].path.starts_with(&self.modules[outermost].path)
    }

    /// A module as the file says it: what is inside of a file has the names of inner modules before it.
    pub(super) fn name_in_file(&self, module: usize, name: &str) -> String {
        let mut full = name.to_owned();
        let mut inner = module;
        while let Some(outer) = self.modules[inner].parent
            && self.modules[outer].source == self.modules[inner].source
            && let Some(last) = self.modules[inner].path.last()
        {
            full = format!("{last}::{full}");
            inner = outer;
        }
        full
    }
}

/// The sources that only tests compile, of those that a root leads to.
pub(super) fn sources_for_tests(package: &Package) -> BTreeSet<usize> {
    let all = reached(package, &|source| source.syntax.as_ref());
    &all - &reached(package, &|source| source.production.as_ref())
}

fn reached<'s>(
    package: &'s Package,
    syntax: &impl Fn(&'s Source) -> Option<&'s syn::File>,
) -> BTreeSet<usize> {
    let trees = package.roots.iter().map(|root| Tree::read(package, root, syntax));
    trees.flat_map(|tree| tree.modules.into_iter().map(|module| module.source)).collect()
}

fn folder_of(path: &str) -> PathBuf {
    Path::new(path).parent().unwrap_or(Path::new("")).to_owned()
}

/// A path without `..` in it.
fn plain(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(parts.pop()),
            other => parts.push(other.as_os_str().to_string_lossy().into_owned()),
        }
    }
    parts.join("/")
}

/// What `#[path = "..."]` says.
fn path_of(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(said) if said.path.is_ident("path") => match &said.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}
