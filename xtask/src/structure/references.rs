//! The imports and the paths in the code of a module.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Ident, Item, UseTree};

/// One name that a `use` brings in.
pub(super) struct Import {
    /// What it is called here; none for `*`.
    pub(super) name: Option<String>,
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// A path somewhere in the code.
pub(super) struct Mention {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// What a module imports, also within functions.
pub(super) fn imports(items: &[Item]) -> Vec<Import> {
    visited(items).imports
}

/// What a module names, imports included.
pub(super) fn mentions(items: &[Item]) -> Vec<Mention> {
    let Visitor { imports, mut mentions } = visited(items);
    mentions.extend(imports.into_iter().map(|import| Mention { path: import.path, line: import.line }));
    mentions
}

/// The names of a path.
pub(super) fn names(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| text(&segment.ident)).collect()
}

fn visited(items: &[Item]) -> Visitor {
    let mut visitor = Visitor::default();
    for item in items.iter().filter(|item| !matches!(item, Item::Mod(_))) {
        visitor.visit_item(item);
    }
    visitor
}

fn text(name: &Ident) -> String {
    name.unraw().to_string()
}

#[derive(Default)]
struct Visitor {
    imports: Vec<Import>,
    mentions: Vec<Mention>,
}

impl Visitor {
    fn import(&mut self, tree: &UseTree, path: &mut Vec<String>) {
        let (name, last) = match tree {
            UseTree::Path(step) => {
                path.push(text(&step.ident));
                self.import(&step.tree, path);
                path.pop();
                return;
            }
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.import(tree, path)),
            UseTree::Name(name) => (Some(text(&name.ident)), Some(text(&name.ident))),
            UseTree::Rename(name) => (Some(text(&name.rename)), Some(text(&name.ident))),
            _ => (None, None),
        };
        let mut path = path.clone();
        let line = tree.span().start().line;
        match last {
            // `use a::b::{self}` is `use a::b`.
            Some(last) if last == "self" && !path.is_empty() => {
                let name = if name.as_deref() == Some("self") { path.last().cloned() } else { name };
                self.imports.push(Import { name, path, line });
            }
            last => {
                path.extend(last);
                self.imports.push(Import { name, path, line });
            }
        }
    }

    /// A path counts where it has several names, or where it can only be a type: a variable has one name, too.
    fn mention(&mut self, path: Vec<String>, line: usize) {
        let is_type = path.first().is_some_and(|name| name.starts_with(char::is_uppercase) && name != "Self");
        if path.len() > 1 || is_type {
            self.mentions.push(Mention { path, line });
        }
    }

    /// What stands in a macro is no syntax yet: whatever looks like a path is taken for one.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let (mut line, mut colons) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.mention(std::mem::take(&mut path), line);
                        line = name.span().start().line;
                    }
                    path.push(text(&name));
                }
                other => {
                    self.mention(std::mem::take(&mut path), line);
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
            colons = 0;
        }
        self.mention(path, line);
    }
}

impl Visit<'_> for Visitor {
    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &mut Vec::new());
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            self.mention(names(path), path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, one: &syn::Macro) {
        self.visit_path(&one.path);
        self.tokens(one.tokens.clone());
    }

    /// `pub(in crate::engine)` names who may see, not what is needed.
    fn visit_visibility(&mut self, _: &syn::Visibility) {}

    fn visit_attribute(&mut self, _: &syn::Attribute) {}
}
