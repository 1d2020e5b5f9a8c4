//! The types of a crate: how many methods each has, which fields, and who can reach into these.

use super::modules::Tree;
use super::names::Names;
use super::references;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{
    FnArg, GenericArgument, ImplItem, Item, PathArguments, ReceiverKind, Signature, TraitItem, Type,
    Visibility,
};

/// Where a type is, and what it is called there.
type Key = (usize, String);

/// A field of a struct.
#[derive(Serialize)]
pub(super) struct Field {
    pub(super) name: String,
    #[serde(rename = "type")]
    kind: String,
    /// Whether it can be reached from outside of its module.
    pub(super) open: bool,
    /// The fields of its own type, where that is of this crate: `Type.field`.
    fields: Vec<String>,
    #[serde(skip)]
    owned: BTreeSet<Key>,
}

/// A type, or a trait for the methods that it gives.
#[derive(Serialize)]
pub(super) struct Found {
    pub(super) file: String,
    pub(super) name: String,
    /// Methods, and functions that begin with it, each once.
    pub(super) methods: BTreeSet<String>,
    pub(super) fields: Vec<Field>,
    /// Whether it has state of its own and methods that change it; plain data has not.
    pub(super) is_part: bool,
    #[serde(skip)]
    made_of: Shape,
}

#[derive(Default)]
struct Shape {
    has_methods: bool,
    changes: bool,
    shares: bool,
    is_published_data: bool,
}

/// The types of a crate.
pub(super) fn types(tree: &Tree<'_>, names: &Names<'_>) -> Vec<Found> {
    let mut finder = Finder { tree, names, module: 0, found: BTreeMap::new() };
    finder.each_item(Finder::declare);
    finder.each_item(|finder, item| finder.visit_item(item));
    finder.finish()
}

struct Finder<'t> {
    tree: &'t Tree<'t>,
    names: &'t Names<'t>,
    module: usize,
    found: BTreeMap<Key, Found>,
}

impl Finder<'_> {
    fn each_item(&mut self, mut look: impl FnMut(&mut Self, &Item)) {
        for module in 0..self.tree.modules.len() {
            self.module = module;
            for item in self.tree.modules[module].items.iter().filter(|item| !matches!(item, Item::Mod(_))) {
                look(self, item);
            }
        }
    }

    fn declare(&mut self, item: &Item) {
        let none = syn::Fields::Unit;
        let (name, visibility, fields) = match item {
            Item::Struct(item) => (&item.ident, &item.vis, &item.fields),
            Item::Enum(item) => (&item.ident, &item.vis, &none),
            Item::Union(item) => (&item.ident, &item.vis, &none),
            Item::Trait(item) => (&item.ident, &item.vis, &none),
            _ => return,
        };
        let is_public = |visibility: &Visibility| matches!(visibility, Visibility::Public(_));
        let made_of = Shape {
            shares: fields.iter().any(|field| shares(&field.ty)),
            is_published_data: is_public(visibility) && fields.iter().all(|field| is_public(&field.vis)),
            ..Shape::default()
        };
        let fields = fields.iter().enumerate().map(|(at, field)| Field {
            name: field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string),
            kind: text(&field.ty),
            open: is_open(&field.vis),
            fields: Vec::new(),
            owned: self.owned(&field.ty),
        });
        let fields = fields.collect();
        let key = (self.module, name.to_string());
        let file = self.tree.file(self.module).to_owned();
        let name = self.tree.name_in_file(self.module, &key.1);
        let found = Found { file, name, methods: BTreeSet::new(), fields, is_part: false, made_of };
        self.found.insert(key, found);
    }

    /// The types of this crate that a field's type owns: not what it only shares or borrows.
    fn owned(&self, kind: &Type) -> BTreeSet<Key> {
        let mut inside = Inside::default();
        inside.visit_type(kind);
        inside.paths.iter().flat_map(|path| self.names.types(self.module, path)).collect()
    }

    /// The types of this crate that a type is, behind references and shared pointers.
    fn named(&self, kind: &Type) -> BTreeSet<Key> {
        match kind {
            Type::Reference(reference) => self.named(&reference.elem),
            Type::Paren(inner) => self.named(&inner.elem),
            Type::Group(inner) => self.named(&inner.elem),
            Type::Path(path) if path.qself.is_none() => match pointed_at(&path.path) {
                Some(inner) => self.named(inner),
                None => self.names.types(self.module, &references::names(&path.path)),
            },
            _ => BTreeSet::new(),
        }
    }

    fn count(&mut self, keys: &BTreeSet<Key>, method: &str, signature: Option<&Signature>) {
        for key in keys {
            if let Some(found) = self.found.get_mut(key) {
                found.methods.insert(method.to_owned());
                let receiver = signature.and_then(|signature| signature.receiver());
                found.made_of.has_methods |= receiver.is_some();
                found.made_of.changes |= receiver
                    .is_some_and(|receiver| matches!(receiver.kind, ReceiverKind::Reference(_, _, Some(_))));
            }
        }
    }

    /// Says which types are parts, and lists the fields of fields.
    fn finish(mut self) -> Vec<Found> {
        let keys: Vec<Key> = self.found.keys().cloned().collect();
        for key in &keys {
            let shares = self.shares(key, &mut BTreeSet::new());
            let listed: Vec<Vec<String>> =
                self.found[key].fields.iter().map(|field| self.fields_of(&field.owned)).collect();
            let Some(found) = self.found.get_mut(key) else { continue };
            let Shape { has_methods, changes, is_published_data, .. } = found.made_of;
            found.is_part = has_methods && shares || changes && !is_published_data;
            for (field, fields) in found.fields.iter_mut().zip(listed) {
                field.fields = fields;
            }
        }
        self.found.into_values().collect()
    }

    /// Whether a type has a lock, an atomic or a cell in it, however deep.
    fn shares(&self, key: &Key, seen: &mut BTreeSet<Key>) -> bool {
        let Some(found) = self.found.get(key).filter(|_| seen.insert(key.clone())) else {
            return false;
        };
        found.made_of.shares
            || found.fields.iter().flat_map(|field| &field.owned).any(|inner| self.shares(inner, seen))
    }

    fn fields_of(&self, keys: &BTreeSet<Key>) -> Vec<String> {
        let found = keys.iter().filter_map(|key| self.found.get(key));
        let each =
            found.flat_map(|found| found.fields.iter().map(|field| format!("{}.{}", found.name, field.name)));
        each.collect()
    }
}

impl Visit<'_> for Finder<'_> {
    fn visit_item_impl(&mut self, one: &syn::ItemImpl) {
        let own_trait = one.trait_.as_ref().map(|(path, _)| {
            let keys = self.names.types(self.module, &references::names(path));
            (keys.iter().any(|key| self.found.contains_key(key)), text(path))
        });
        if let None | Some((true, _)) = own_trait {
            let keys = self.named(&one.self_ty);
            let of = own_trait.map(|(_, name)| format!("{name}::")).unwrap_or_default();
            for item in &one.items {
                if let ImplItem::Fn(method) = item {
                    self.count(&keys, &format!("{of}{}", method.sig.ident), Some(&method.sig));
                }
            }
        }
        visit::visit_item_impl(self, one);
    }

    /// What a trait gives to all that have it are methods of its own.
    fn visit_item_trait(&mut self, one: &syn::ItemTrait) {
        let key = BTreeSet::from([(self.module, one.ident.to_string())]);
        for item in &one.items {
            if let TraitItem::Fn(method) = item
                && method.default.is_some()
            {
                self.count(&key, &method.sig.ident.to_string(), None);
            }
        }
        visit::visit_item_trait(self, one);
    }

    fn visit_item_fn(&mut self, one: &syn::ItemFn) {
        if let Some(FnArg::Typed(first)) = one.sig.inputs.first() {
            let keys = self.named(&first.ty);
            let name = self.tree.name_in_file(self.module, &one.sig.ident.to_string());
            self.count(&keys, &format!("{}: {name}", self.tree.file(self.module)), None);
        }
        visit::visit_item_fn(self, one);
    }

    /// Items in a macro, where it has items.
    fn visit_item_macro(&mut self, one: &syn::ItemMacro) {
        if let Ok(file) = syn::parse2::<syn::File>(one.mac.tokens.clone()) {
            file.items.iter().for_each(|item| self.visit_item(item));
        }
    }
}

/// The paths in a type, but not behind what only shares or borrows.
#[derive(Default)]
struct Inside {
    paths: Vec<Vec<String>>,
}

impl Visit<'_> for Inside {
    fn visit_path(&mut self, path: &syn::Path) {
        let is_shared = path
            .segments
            .last()
            .is_some_and(|last| ["Arc", "Rc", "Weak", "PhantomData"].iter().any(|name| last.ident == name));
        if !is_shared {
            self.paths.push(references::names(path));
            visit::visit_path(self, path);
        }
    }

    fn visit_type_reference(&mut self, _: &syn::TypeReference) {}
    fn visit_type_ptr(&mut self, _: &syn::TypePtr) {}
}

fn shares(kind: &Type) -> bool {
    let mut inside = Inside::default();
    inside.visit_type(kind);
    inside.paths.iter().filter_map(|path| path.last()).any(|name| {
        let cells = [
            "Mutex",
            "RwLock",
            "Condvar",
            "Cell",
            "RefCell",
            "UnsafeCell",
            "OnceCell",
            "OnceLock",
            "LazyLock",
        ];
        cells.contains(&name.as_str()) || name.starts_with("Atomic")
    })
}

/// What `Arc<T>` and its like point at.
fn pointed_at(path: &syn::Path) -> Option<&Type> {
    let last = path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else {
        return None;
    };
    match arguments.args.first()? {
        GenericArgument::Type(inner) if ["Arc", "Rc", "Box", "Pin"].iter().any(|name| last.ident == name) => {
            Some(inner)
        }
        _ => None,
    }
}

/// Whether a visibility reaches further than the module.
fn is_open(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Public(_) => true,
        Visibility::Restricted(to) => !to.path.is_ident("self"),
        Visibility::Inherited => false,
    }
}

fn text(node: &impl quote::ToTokens) -> String {
    let text = node.to_token_stream().to_string();
    text.replace(" :: ", "::")
        .replace(" < ", "<")
        .replace(" <", "<")
        .replace(" >", ">")
        .replace("& ", "&")
        .replace(" ,", ",")
}
