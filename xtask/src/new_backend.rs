//! `cargo xtask new-backend NAME`: a crate for a new accelerator that works from the first build.
//!
//! It is the crate in `docs/examples/backend-acme` under another name. A vendor outside the tree copies that folder by hand.

use crate::process::{command, files, root, run as run_to_end};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// What is to be written.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The accelerator's name: small letters and digits, a letter first
    name: String,
    /// Where the crate goes; crates/backend-NAME of this workspace where it is not given
    #[arg(long)]
    path: Option<PathBuf>,
}

/// The crate that is written under another name, and the folders with its sources.
const TEMPLATE: &str = "docs/examples/backend-acme";
const FOLDERS: [&str; 2] = ["src", "examples"];
const IN_TREE: &str = include_str!("new_backend/in_tree.toml");
/// What a vendor's manifest names as the place of the crates; it is the workspace's.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// What a vendor writes: the required part of the contract.
const BACKEND: &str = "src/backend.rs";
/// What a vendor deletes: memory of the host, and streams made of threads.
const STAND_IN: [&str; 2] = ["src/memory.rs", "src/queue.rs"];

pub(crate) fn run(options: &Options) -> Result<()> {
    let name = &options.name;
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(valid) {
        bail!("{name} is no name for a backend: small letters and digits, a letter first");
    }
    let in_tree = root().join("crates").join(format!("backend-{name}"));
    let folder = match &options.path {
        Some(path) => std::path::absolute(path)?,
        None => in_tree.clone(),
    };
    if folder.exists() {
        bail!("{} is there already", folder.display());
    }
    write(name, &folder, folder == in_tree)?;
    println!("wrote {}", folder.display());
    println!("{}", lines(&folder)?);
    println!("next: cargo run --example conformance, in that folder; docs/new-backend.md says how to go on");
    Ok(())
}

fn write(name: &str, folder: &Path, in_tree: bool) -> Result<()> {
    let fill = |text: &str| fill(text, name);
    let manifest = if in_tree {
        fill(IN_TREE)
    } else {
        let here = root().to_str().context("the path of this workspace is not UTF-8")?.replace('\\', "/");
        from_here(&fill(&files::read(Path::new(TEMPLATE).join("Cargo.toml"))?), &here)
    };
    files::create(folder)?;
    std::fs::write(folder.join("Cargo.toml"), manifest)?;
    if !in_tree {
        // The same versions as here.
        std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    }
    let mut format = command("rustfmt");
    format.args(["--edition", "2024", "--config-path"]).arg(root());
    for part in FOLDERS {
        files::create(&folder.join(part))?;
        for source in files::in_folder(Path::new(TEMPLATE).join(part), "rs")? {
            let file = folder.join(part).join(source.file_name().context("a file has a name")?);
            std::fs::write(&file, fill(&files::read(source)?))
                .with_context(|| format!("could not write {}", file.display()))?;
            format.arg(file);
        }
    }
    // Names of another length break lines elsewhere.
    run_to_end(&mut format)
}

fn fill(text: &str, name: &str) -> String {
    let (first, rest) = name.split_at(1);
    // With an ending of its own: `Self`, `Stream` and `Machine` are names of something else.
    let of_type = format!("{}{rest}Backend", first.to_ascii_uppercase());
    text.replace("AcmeBackend", &of_type).replace("acme", name)
}

/// The manifest with this checkout in the place of the repository.
fn from_here(manifest: &str, here: &str) -> String {
    let at = |text: String, (name, folder): (&str, &str)| {
        let (there, here) =
            (format!("{name}.git = \"{REPOSITORY}\""), format!("{name}.path = \"{here}/{folder}/{name}\""));
        text.replace(&there, &here)
    };
    let crates = [("backend-api", "crates"), ("granule-conformance", "crates/tools")];
    crates.into_iter().fold(manifest.to_owned(), at)
}

/// How much of it a vendor writes, and how much goes away.
fn lines(folder: &Path) -> Result<String> {
    let required = lines_of_code(&folder.join(BACKEND))?;
    let stand_in = lines_of_code(&folder.join(STAND_IN[0]))? + lines_of_code(&folder.join(STAND_IN[1]))?;
    Ok(format!(
        "the required part is {required} lines of code in {BACKEND}; {stand_in} more in {} stand in for the \
         accelerator until it is there",
        STAND_IN.join(" and ")
    ))
}

/// Lines that are neither blank nor only a comment.
fn lines_of_code(file: &Path) -> Result<usize> {
    let text = files::read(file)?;
    let lines = text.lines().map(str::trim);
    Ok(lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count())
}

#[cfg(test)]
mod tests {
    use super::{BACKEND, Options, Path, REPOSITORY, TEMPLATE, fill, from_here, lines, lines_of_code, run};
    use crate::process::{command, files, target};

    /// Slow: it builds the new crate, the kit and their dependencies once, in a folder that is kept.
    #[test]
    fn a_new_backend_compiles_and_passes_the_kit() {
        let folder = target().join("new-backend").join("backend-sample");
        files::remove(&folder).unwrap();
        run(&Options { name: "sample".into(), path: Some(folder.clone()) }).unwrap();
        let output = command("cargo")
            .args(["run", "--quiet", "--offline", "--example", "conformance"])
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", target().join("new-backend").join("target"))
            .env("RUSTFLAGS", "-D warnings")
            // It is built for one run, in which nothing is looked for.
            .env("CARGO_PROFILE_DEV_DEBUG", "false")
            .output()
            .unwrap();
        let (card, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{card}\n{errors}");
        println!("{}", card.lines().last().unwrap());
        println!("{}", lines(&folder).unwrap());
        let required = lines_of_code(&folder.join(BACKEND)).unwrap();
        assert!(required < 300, "the required part takes {required} lines");
    }

    /// What a vendor's library brings along; `-- --nocapture` prints it.
    #[test]
    fn the_contract_brings_at_most_five_crates() {
        let output = command("cargo")
            .args(["tree", "--offline", "--package", "backend-api", "--edges", "normal", "--prefix", "none"])
            .output()
            .unwrap();
        let tree = String::from_utf8(output.stdout).unwrap();
        println!("{tree}");
        let names: std::collections::BTreeSet<&str> =
            tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert!(names.contains("backend-api") && !names.contains("alloc-core"), "{tree}");
        assert!(names.len() <= 6, "{tree}");
    }

    /// What a vendor outside the tree copies: dependencies are found from anywhere.
    #[test]
    fn the_crate_to_copy_names_the_repository() {
        let manifest = files::read(Path::new(TEMPLATE).join("Cargo.toml")).unwrap();
        assert_eq!(manifest.matches(&format!(".git = \"{REPOSITORY}\"")).count(), 2, "{manifest}");
        assert!(!manifest.contains("path"), "{manifest}");
        assert!(!from_here(&manifest, "/here").contains(".git"), "{manifest}");
    }

    #[test]
    fn a_type_is_never_called_as_something_the_template_uses() {
        assert_eq!(fill("struct AcmeBackend; // acme", "self"), "struct SelfBackend; // self");
        assert_eq!(fill("AcmeBackend", "stream"), "StreamBackend");
    }

    #[test]
    fn names_that_are_no_crate_names_and_folders_that_exist_are_refused() {
        for name in ["", "Npu", "7npu", "my npu", "../npu"] {
            let refused = run(&Options { name: name.into(), path: None }).unwrap_err();
            assert!(refused.to_string().contains("is no name for a backend"), "{name}: {refused}");
        }
        let refused = run(&Options { name: "openreg".into(), path: None }).unwrap_err();
        assert!(refused.to_string().contains("is there already"), "{refused}");
    }
}
