//! How long files and functions are, and how full folders.

use super::source::Package;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::{self, Visit};

/// The lines of each of a package's own files.
pub(super) fn files(package: &Package) -> Vec<(&str, usize)> {
    package.own_sources().map(|source| (source.path.as_str(), source.text.lines().count())).collect()
}

/// The lines of each function in Rust, from its `fn` to its last brace, by file and name. Of several of one name, the
/// longest.
pub(super) fn functions(package: &Package) -> BTreeMap<(&str, String), usize> {
    let mut functions = BTreeMap::new();
    for source in package.own_sources() {
        let Some(file) = &source.syntax else { continue };
        let mut lengths = Lengths::default();
        lengths.visit_file(file);
        for (name, lines) in lengths.found {
            let longest = functions.entry((source.path.as_str(), name)).or_default();
            *longest = lines.max(*longest);
        }
    }
    functions
}

/// How many things each of a package's folders with sources holds. A module's file and its folder are one, as a C header
/// and its source are; what stands for the folder itself is none.
pub(super) fn folders(package: &Package) -> Vec<(String, usize)> {
    let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in &package.sources {
        let mut path = Path::new(&source.path);
        while let Some(folder) = path.parent().filter(|folder| folder.starts_with(&package.folder)) {
            let name = path.with_extension("");
            let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let entries = folders.entry(folder.to_string_lossy().into_owned()).or_default();
            if !matches!(name.as_str(), "lib" | "main" | "mod" | "build" | "__init__") {
                entries.insert(name);
            }
            path = folder;
        }
    }
    folders.into_iter().map(|(folder, entries)| (folder, entries.len())).collect()
}

#[derive(Default)]
struct Lengths {
    /// The modules, types and functions around.
    around: Vec<String>,
    found: Vec<(String, usize)>,
}

impl Lengths {
    fn within(&mut self, name: String, look: impl FnOnce(&mut Self)) {
        self.around.push(name);
        look(self);
        self.around.pop();
    }

    fn add(&mut self, first: usize, last: usize) {
        self.found.push((self.around.join("::"), last + 1 - first));
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block, look: impl FnOnce(&mut Self)) {
        self.within(signature.ident.to_string(), |lengths| {
            let first = signature.fn_token.span.start().line;
            lengths.add(first, block.brace_token.span.close().end().line);
            look(lengths);
        });
    }

    /// Functions in a macro, which has no syntax yet: `fn`, a name, and the next braces.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut open: Option<(String, usize)> = None;
        let mut after_fn = None;
        for token in tokens {
            match &token {
                TokenTree::Ident(name) if *name == "fn" => after_fn = Some(name.span().start().line),
                TokenTree::Ident(name) => {
                    open = after_fn.take().map(|line| (name.to_string(), line)).or(open);
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => open = None,
                TokenTree::Group(group) => {
                    let last = group.span_close().end().line;
                    match open.take_if(|_| group.delimiter() == Delimiter::Brace) {
                        Some((name, first)) => self.within(name, |lengths| {
                            lengths.add(first, last);
                            lengths.tokens(group.stream());
                        }),
                        None => self.tokens(group.stream()),
                    }
                }
                _ => {}
            }
        }
    }
}

impl Visit<'_> for Lengths {
    fn visit_item_fn(&mut self, one: &syn::ItemFn) {
        self.function(&one.sig, &one.block, |lengths| visit::visit_item_fn(lengths, one));
    }

    fn visit_impl_item_fn(&mut self, one: &syn::ImplItemFn) {
        self.function(&one.sig, &one.block, |lengths| visit::visit_impl_item_fn(lengths, one));
    }

    fn visit_trait_item_fn(&mut self, one: &syn::TraitItemFn) {
        if let Some(block) = &one.default {
            self.function(&one.sig, block, |lengths| visit::visit_trait_item_fn(lengths, one));
        }
    }

    fn visit_item_mod(&mut self, one: &syn::ItemMod) {
        self.within(one.ident.to_string(), |lengths| visit::visit_item_mod(lengths, one));
    }

    fn visit_item_trait(&mut self, one: &syn::ItemTrait) {
        self.within(one.ident.to_string(), |lengths| visit::visit_item_trait(lengths, one));
    }

    fn visit_item_impl(&mut self, one: &syn::ItemImpl) {
        let name = match &*one.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.within(name.unwrap_or_else(|| "impl".to_owned()), |lengths| {
            visit::visit_item_impl(lengths, one)
        });
    }

    fn visit_macro(&mut self, one: &syn::Macro) {
        self.tokens(one.tokens.clone());
    }
}
