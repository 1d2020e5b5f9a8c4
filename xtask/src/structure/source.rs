//! The packages of a checkout and their source files.

use super::production::without_tests;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

/// What a file is written in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Language {
    Rust,
    Cpp,
    Python,
    JavaScript,
}

impl Language {
    pub(super) const ALL: [Self; 4] = [Self::Rust, Self::Cpp, Self::Python, Self::JavaScript];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Cpp => "C/C++",
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
        }
    }

    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "rs" => Some(Self::Rust),
            "c" | "cc" | "cpp" | "cu" | "h" | "hpp" | "inl" => Some(Self::Cpp),
            "py" => Some(Self::Python),
            "js" | "mjs" => Some(Self::JavaScript),
            _ => None,
        }
    }
}

/// A source file.
pub(super) struct Source {
    /// From the checkout's folder.
    pub(super) path: String,
    pub(super) language: Language,
    pub(super) text: String,
    /// All of a file in Rust; none for other languages.
    pub(super) syntax: Option<syn::File>,
    /// What of it is compiled outside of tests.
    pub(super) production: Option<syn::File>,
    /// The lines that are not.
    pub(super) test_lines: Vec<RangeInclusive<usize>>,
}

impl Source {
    /// Whether a task of this project wrote it: these say so in their first lines.
    pub(super) fn is_generated(&self) -> bool {
        let head: String = self.text.lines().take(5).collect();
        head.contains("Do not edit") && head.contains("cargo xtask")
    }

    /// Whether it lies in a folder of tests, benchmarks or examples.
    pub(super) fn is_in_tests(&self) -> bool {
        let mut folders = self.path.split('/').rev().skip(1);
        folders.any(|folder| matches!(folder, "tests" | "benches" | "examples"))
    }
}

/// A crate, or a folder among the crates that is none (the Python package).
pub(super) struct Package {
    /// From the checkout's folder.
    pub(super) folder: String,
    /// By path.
    pub(super) sources: Vec<Source>,
    /// Where its library and its programs begin: the paths of their root files.
    pub(super) roots: Vec<String>,
}

impl Package {
    pub(super) fn source(&self, path: &str) -> Option<usize> {
        self.sources.binary_search_by(|source| source.path.as_str().cmp(path)).ok()
    }

    /// The files that are its own and not generated.
    pub(super) fn own_sources(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| !source.is_generated())
    }
}

/// The packages of a checkout: `crates/*`, `xtask`, `tests`, and the crates in `tests`.
pub(super) fn packages(root: &Path) -> Result<Vec<Package>> {
    let mut folders: BTreeSet<String> = folders_in(root, "crates")?;
    folders.extend(["xtask", "tests"].map(str::to_owned).into_iter().filter(|name| is_crate(root, name)));
    folders.extend(folders_in(root, "tests")?.into_iter().filter(|name| is_crate(root, name)));
    let mut packages = Vec::new();
    for folder in &folders {
        let mut sources = Vec::new();
        read(root, folder, &folders, &mut sources)?;
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        let roots = roots(root, folder, &sources)?;
        packages.push(Package { folder: folder.clone(), sources, roots });
    }
    if packages.is_empty() {
        bail!("{} has no crates: neither crates/*, xtask nor tests/*", root.display());
    }
    Ok(packages)
}

fn is_crate(root: &Path, folder: &str) -> bool {
    root.join(folder).join("Cargo.toml").is_file()
}

/// The folders in a folder that can hold sources, as paths from the root.
fn folders_in(root: &Path, folder: &str) -> Result<BTreeSet<String>> {
    if !root.join(folder).is_dir() {
        return Ok(BTreeSet::new());
    }
    let entries = entries(root, folder)?;
    Ok(entries.into_iter().filter(|(_, is_folder)| *is_folder).map(|(path, _)| path).collect())
}

/// What a folder holds, with whether each is a folder, without what tools leave there.
fn entries(root: &Path, folder: &str) -> Result<Vec<(String, bool)>> {
    let place = root.join(folder);
    let read = || place.read_dir()?.map(|entry| Ok(entry?)).collect::<Result<Vec<_>>>();
    let mut entries = Vec::new();
    for entry in read().with_context(|| format!("could not read {}", place.display()))? {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_left_by_a_tool = matches!(name.as_str(), "target" | "build" | "__pycache__" | "node_modules");
        let is_folder = entry.file_type()?.is_dir();
        if !(name.starts_with('.') || is_folder && is_left_by_a_tool) {
            entries.push((format!("{folder}/{name}"), is_folder));
        }
    }
    Ok(entries)
}

/// Reads the sources below a folder, but for those of other packages.
fn read(root: &Path, folder: &str, packages: &BTreeSet<String>, sources: &mut Vec<Source>) -> Result<()> {
    for (path, is_folder) in entries(root, folder)? {
        if is_folder && !packages.contains(&path) {
            read(root, &path, packages, sources)?;
        } else if let Some(language) = Language::of(Path::new(&path)).filter(|_| !is_folder) {
            let text = std::fs::read_to_string(root.join(&path))
                .with_context(|| format!("could not read {path}"))?;
            let parse = || syn::parse_file(&text).with_context(|| format!("{path} is not Rust"));
            let syntax = (language == Language::Rust).then(parse).transpose()?;
            let (production, test_lines) = syntax.as_ref().map(without_tests).unzip();
            let test_lines = test_lines.unwrap_or_default();
            sources.push(Source { path, language, text, syntax, production, test_lines });
        }
    }
    Ok(())
}

/// The root files of a package's library and programs, where cargo looks for them.
fn roots(root: &Path, folder: &str, sources: &[Source]) -> Result<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Target {
        path: Option<String>,
    }
    #[derive(serde::Deserialize)]
    struct Manifest {
        lib: Option<Target>,
        #[serde(default)]
        bin: Vec<Target>,
    }
    if !is_crate(root, folder) {
        return Ok(Vec::new());
    }
    let file = root.join(folder).join("Cargo.toml");
    let read = || -> Result<Manifest> { Ok(toml::from_str(&std::fs::read_to_string(&file)?)?) };
    let manifest = read().with_context(|| format!("could not read {}", file.display()))?;
    let named = manifest.lib.into_iter().chain(manifest.bin).filter_map(|target| target.path);
    let named: BTreeSet<String> = named.map(|path| format!("{folder}/{path}")).collect();
    let is_root = |path: &str| {
        let inside = path.strip_prefix(folder).unwrap_or(path);
        let program = inside.strip_prefix("/src/bin/").map(|rest| rest.split('/').collect::<Vec<_>>());
        matches!(inside, "/src/lib.rs" | "/src/main.rs")
            || matches!(program.as_deref(), Some([_] | [_, "main.rs"]))
            || named.contains(path)
    };
    let rust = sources.iter().filter(|source| source.language == Language::Rust);
    Ok(rust.map(|source| source.path.clone()).filter(|path| is_root(path)).collect())
}
