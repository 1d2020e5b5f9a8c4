//! Where recipes and traces lie.

use super::recipe::Recipe;
use crate::process::{files, target};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The most bytes of a trace that is part of the repository.
pub(super) const COMMITTED: u64 = 300_000;

/// A folder with recipes, beside `programs` and `traces`.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// All recipes, by name.
    pub(super) fn recipes(&self) -> Result<Vec<Recipe>> {
        files::in_folder(&self.path, "toml")?.iter().map(|path| read(path)).collect()
    }

    pub(super) fn recipe(&self, name: &str) -> Result<Recipe> {
        read(&self.recipe_file(name))
    }

    pub(super) fn recipe_file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.toml"))
    }

    /// The Python file of a family.
    pub(super) fn program(&self, family: &str) -> PathBuf {
        self.path.join("programs").join(format!("{family}.py"))
    }

    /// A program's trace, where it is here.
    pub(super) fn trace(&self, name: &str) -> Option<PathBuf> {
        [self.committed(name), made_on_demand(name)].into_iter().find(|path| path.exists())
    }

    /// Takes a trace in: small ones become part of the repository, others lie among what is built.
    pub(super) fn keep(&self, name: &str, made: &Path) -> Result<PathBuf> {
        let small = fs::metadata(made)?.len() <= COMMITTED;
        let (home, other) = (self.committed(name), made_on_demand(name));
        let (home, other) = if small { (home, other) } else { (other, home) };
        let parent = home.parent().context("a trace has a folder")?;
        fs::create_dir_all(parent)?;
        fs::copy(made, &home).with_context(|| home.display().to_string())?;
        if other.exists() {
            fs::remove_file(&other).with_context(|| other.display().to_string())?;
        }
        Ok(home)
    }

    fn committed(&self, name: &str) -> PathBuf {
        self.path.join("traces").join(file(name))
    }
}

fn made_on_demand(name: &str) -> PathBuf {
    target().join("corpus").join(file(name))
}

fn file(name: &str) -> String {
    format!("{name}.trace.gz")
}

fn read(path: &Path) -> Result<Recipe> {
    Recipe::parse(files::stem(path), &files::read(path)?).with_context(|| path.display().to_string())
}
