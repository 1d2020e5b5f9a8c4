//! The shape of the code: a crate's top-level modules import one another in no circle, and no backend needs the engine.

use crate::process::{command, output, packages};
use anyhow::{Context, Result, ensure};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn run() -> Result<()> {
    let tree = "tree --workspace --all-features -e no-dev --prefix none -i alloc-core";
    let bound = output(command("cargo").args(tree.split(' ')))?;
    let bound = bound.lines().filter(|line| line.starts_with("backend-"));
    let mut wrong: Vec<String> = bound.map(|name| format!("{name} depends on alloc-core")).collect();
    for target in packages()?.iter().filter_map(|package| package["targets"].as_array()).flatten() {
        let root = target["src_path"].as_str().context("a target has no file")?;
        if root.contains("/src/") {
            wrong.extend(circles(Path::new(root))?);
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The imports that are part of circles, in the crate with this root file.
fn circles(root: &Path) -> Result<Vec<String>> {
    let mut read = Read { folder: root.with_file_name(""), ..Read::default() };
    read.file(root, Path::new(""))?;
    let mut arrows = BTreeMap::new();
    for (from, name, place) in read.used {
        if let Some(to) = read.shown.get(&name).filter(|to| **to != from) {
            arrows.entry((from, to.clone())).or_insert(place);
        }
    }
    // What nothing leads to, and what leads nowhere, is in none.
    let mut before = usize::MAX;
    while arrows.len() < before {
        before = arrows.len();
        let (from, to): (BTreeSet<_>, BTreeSet<_>) = arrows.keys().cloned().unzip();
        arrows.retain(|ends: &(String, String), _| to.contains(&ends.0) && from.contains(&ends.1));
    }
    let said = |((from, to), place)| format!("{place}: {from} imports {to}, in a circle");
    Ok(arrows.into_iter().map(said).collect())
}

/// What a crate's files say.
#[derive(Default)]
struct Read {
    folder: PathBuf,
    /// A top-level module, a name of the crate's root that it uses, and where.
    used: Vec<(String, String, String)>,
    /// Names at the crate's root, and the module that each comes from.
    shown: BTreeMap<String, String>,
}

impl Read {
    fn file(&mut self, file: &Path, inside: &Path) -> Result<()> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        self.tokens(syn::parse_str(&text)?, file, inside)
    }

    /// Reads what a file says inside of the module with this path, but for what only tests compile.
    fn tokens(&mut self, tokens: TokenStream, file: &Path, inside: &Path) -> Result<()> {
        let depth = inside.iter().count();
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let words: Vec<String> = tokens.iter().map(|token| token.to_string()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let to = |ends: fn(&&str) -> bool, at| words[at..].iter().position(ends).unwrap_or(words.len());
        let mut at = 0;
        while at < words.len() {
            if let TokenTree::Group(group) = &tokens[at] {
                self.tokens(group.stream(), file, inside)?;
            }
            at += match words[at..] {
                ["#", when, ..] if when.starts_with("[cfg (test") || when.starts_with("[cfg (all (test") => {
                    to(|word| [";", ","].contains(word) || word.starts_with('{'), at) + 1
                }
                ["mod", name, body, ..] if body == ";" || body.starts_with('{') => {
                    let below = inside.join(name);
                    match &tokens[at + 2] {
                        TokenTree::Group(body) => self.tokens(body.stream(), file, &below)?,
                        _ => self.file(&self.folder.join(&below).with_extension("rs"), &below)?,
                    }
                    self.shown.extend((depth == 0).then(|| (name.into(), name.into())));
                    3
                }
                ["use", ..] if depth == 0 => {
                    let text = words[at + 1..at + to(|word| *word == ";", at)].join(" ");
                    let names = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
                    let names: Vec<_> = names.filter(|name| !["", "crate", "self"].contains(name)).collect();
                    for name in &names[1..] {
                        self.shown.entry(name.to_string()).or_insert(names[0].into());
                    }
                    1
                }
                ["crate" | "super", ":", ":", ..] => {
                    let up = words[at..].chunks(3).take_while(|step| **step == ["super", ":", ":"]).count();
                    if up == depth || words[at] == "crate" {
                        self.path(&tokens[at + 3 * up.max(1)..], file, inside);
                    }
                    3 * up.max(1)
                }
                _ => 1,
            };
        }
        Ok(())
    }

    /// What follows the crate's root in a path: a name, or several in braces.
    fn path(&mut self, path: &[TokenTree], file: &Path, inside: &Path) {
        if let Some(TokenTree::Group(group)) = path.first() {
            let paths: Vec<TokenTree> = group.stream().into_iter().collect();
            paths.split(|token| token.to_string() == ",").for_each(|path| self.path(path, file, inside));
        } else if let Some(name) = path.first() {
            let place = format!("{}:{}", file.display(), name.span().start().line);
            let module = inside.iter().next().unwrap_or_default();
            self.used.push((module.display().to_string(), name.to_string(), place));
        }
    }
}
