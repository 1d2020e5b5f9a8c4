//! The device contract, read from the sources of `backend-api`.
//!
//! [`Contract`] lists the traits of the contract ([`Trait`]): `Backend` first, then the families in the order
//! in which `Backend` offers them. Each lists its methods ([`Method`]) in the order of the source. Types and
//! names are kept as `syn` values, so that an emitter can quote them as they are; they are written for a file
//! that imports `backend_api::*` and `backend_api::types::*` (`Result` is then the contract's own).
//!
//! Driver names come from the doc comments, which name them as "CUDA `cuMemAlloc`, HIP `hipMalloc`".

use crate::generated::syntax;
use anyhow::{Context, Result, bail};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{Attribute, Expr, FnArg, Item, Lit, Meta, Pat, ReturnType, Token, TraitItem, Type};

/// Where the contract is.
pub(super) const SOURCES: &str = "crates/backend-api/src";
/// The files there that hold its traits.
const TRAITS: [&str; 4] = ["lib.rs", "virtual_memory.rs", "families.rs", "capture.rs"];

/// Bounds that are no family.
const MARKERS: [&str; 3] = ["Debug", "Send", "Sync"];

/// Everything a backend can implement.
#[derive(Debug)]
pub(crate) struct Contract {
    /// `Backend` first, then the families in the order of their accessors.
    pub(crate) traits: Vec<Trait>,
}

/// One trait of the contract.
#[derive(Debug)]
pub(crate) struct Trait {
    /// Its name (`Backend`, `VirtualMemory`).
    pub(crate) name: Ident,
    /// `unsafe` where implementing it is.
    pub(crate) unsafety: Option<Token![unsafe]>,
    /// Families that it builds on.
    pub(crate) builds_on: Vec<Ident>,
    /// `Backend`'s method that offers it (`virtual_memory`); none for `Backend` itself.
    pub(crate) accessor: Option<Ident>,
    /// Its methods, in the order of the source.
    pub(crate) methods: Vec<Method>,
}

/// One method of a trait. All take `&self`.
#[derive(Debug)]
pub(crate) struct Method {
    /// Its name.
    pub(crate) name: Ident,
    /// Whether calling it is unsafe.
    pub(crate) is_unsafe: bool,
    /// What it takes besides `&self`.
    pub(crate) arguments: Vec<Argument>,
    /// What it returns.
    pub(crate) answer: Answer,
    /// Whether the trait gives it a body.
    pub(crate) has_default: bool,
    /// Its documentation, line by line.
    pub(crate) docs: Vec<String>,
    /// The driver functions its documentation names, CUDA's.
    pub(crate) cuda: Vec<String>,
    /// The same, HIP's.
    pub(crate) hip: Vec<String>,
}

/// A named argument.
#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
}

/// As a parameter.
impl ToTokens for Argument {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { name, ty } = self;
        tokens.extend(quote!(#name: #ty));
    }
}

/// What a method returns.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nothing.
    Nothing,
    /// A plain value, without failure.
    Plain(Type),
    /// `Result<T>` of the contract; the type is `T`.
    Fallible(Type),
    /// A family or the reason for its absence: `Result<&dyn Family, Unsupported>`.
    Family(Ident),
}

impl Contract {
    pub(crate) fn read() -> Result<Self> {
        let mut found = Vec::new();
        for source in TRAITS {
            for item in syntax(format!("{SOURCES}/{source}"))?.items {
                if let Item::Trait(item) = item {
                    found.push(Trait::read(item)?);
                }
            }
        }
        Self::in_order(found)
    }

    /// Every trait with each of its methods.
    pub(crate) fn methods(&self) -> impl Iterator<Item = (&Trait, &Method)> {
        self.traits.iter().flat_map(|of| of.methods.iter().map(move |method| (of, method)))
    }

    fn in_order(mut found: Vec<Trait>) -> Result<Self> {
        let mut take = |name: &str| -> Result<Trait> {
            let at = found.iter().position(|t| t.name == name);
            Ok(found.remove(at.with_context(|| format!("the contract's sources have no trait {name}"))?))
        };
        let backend = take("Backend")?;
        let mut families = Vec::new();
        for method in &backend.methods {
            if let Answer::Family(name) = &method.answer {
                let mut family = take(&name.to_string())?;
                family.accessor = Some(method.name.clone());
                families.push(family);
            }
        }
        if let Some(stray) = found.first() {
            bail!("no method of Backend offers the trait {}", stray.name);
        }
        let traits = std::iter::once(backend).chain(families).collect();
        Ok(Self { traits })
    }
}

impl Trait {
    fn read(item: syn::ItemTrait) -> Result<Self> {
        let name = item.ident;
        let mut methods = Vec::new();
        for item in item.items {
            let TraitItem::Fn(function) = item else {
                bail!("{name} has an item that is no method; the generator does not know what to do with it");
            };
            let method = function.sig.ident.clone();
            methods.push(Method::read(function).with_context(|| format!("{name}::{method}"))?);
        }
        let above = item.supertraits.iter().filter_map(|bound| match bound {
            syn::TypeParamBound::Trait(of) => of.path.get_ident().cloned(),
            _ => None,
        });
        let builds_on = above.filter(|of| !MARKERS.iter().any(|marker| of == marker)).collect();
        Ok(Self { name, unsafety: item.unsafety, builds_on, accessor: None, methods })
    }
}

impl Method {
    fn read(function: syn::TraitItemFn) -> Result<Self> {
        let signature = function.sig;
        let mut inputs = signature.inputs.into_iter();
        let Some(FnArg::Receiver(_)) = inputs.next() else { bail!("the first argument is not &self") };
        let mut arguments = Vec::new();
        for input in inputs {
            let FnArg::Typed(input) = input else { bail!("a second self") };
            let Pat::Ident(name) = *input.pat else { bail!("an argument without a name") };
            arguments.push(Argument { name: name.ident, ty: from_outside(*input.ty) });
        }
        let docs = documentation(&function.attrs);
        let text = docs.join(" ");
        Ok(Self {
            name: signature.ident,
            is_unsafe: matches!(signature.safety, syn::Safety::Unsafe(_)),
            arguments,
            answer: Answer::read(signature.output)?,
            has_default: function.default.is_some(),
            cuda: driver_names(&text, "cu"),
            hip: driver_names(&text, "hip"),
            docs,
        })
    }

    /// The method's names in order, for a call.
    pub(crate) fn argument_names(&self) -> impl Iterator<Item = &Ident> {
        self.arguments.iter().map(|argument| &argument.name)
    }
}

impl Answer {
    fn read(output: ReturnType) -> Result<Self> {
        let ReturnType::Type(_, ty) = output else { return Ok(Self::Nothing) };
        let ty = from_outside(*ty);
        let Some(mut inside) = arguments_of_result(&ty) else { return Ok(Self::Plain(ty)) };
        if inside.len() == 1 {
            return Ok(Self::Fallible(inside.remove(0)));
        }
        let Type::Reference(reference) = &inside[0] else { bail!("an answer of an unknown form") };
        let Type::TraitObject(object) = &*reference.elem else { bail!("an answer of an unknown form") };
        let Some(syn::TypeParamBound::Trait(family)) = object.bounds.first() else {
            bail!("a family without a name");
        };
        Ok(Self::Family(family.path.require_ident()?.clone()))
    }
}

/// The types between the angle brackets of a `Result`.
fn arguments_of_result(ty: &Type) -> Option<Vec<Type>> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    if last.ident != "Result" {
        return None;
    }
    let types = arguments.args.iter().filter_map(|argument| match argument {
        syn::GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    });
    Some(types.collect())
}

/// A type as it is written outside of its module: without `crate::`.
fn from_outside(mut ty: Type) -> Type {
    match &mut ty {
        Type::Path(path) => {
            while path.path.segments.first().is_some_and(|first| first.ident == "crate") {
                path.path.segments = path.path.segments.iter().skip(1).cloned().collect();
            }
        }
        Type::Reference(reference) => *reference.elem = from_outside((*reference.elem).clone()),
        _ => {}
    }
    ty
}

/// The lines of a doc comment.
pub(crate) fn documentation(attributes: &[Attribute]) -> Vec<String> {
    let line = |attribute: &Attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        let Lit::Str(text) = &literal.lit else { return None };
        pair.path.is_ident("doc").then(|| text.value().trim().to_owned())
    };
    attributes.iter().filter_map(line).collect()
}

/// The driver functions in back quotes whose names begin with `prefix` ("cu", "hip") and a capital, in order.
fn driver_names(docs: &str, prefix: &str) -> Vec<String> {
    let quoted = docs.split('`').skip(1).step_by(2);
    let names = quoted.filter(|name| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    });
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{Answer, Contract, driver_names};

    #[test]
    fn driver_names_are_those_in_back_quotes_with_the_drivers_prefix() {
        let docs =
            "Frees. CUDA `cuMemFree` and `cuMemFreeAsync`, HIP `hipFree`, or the same with `hip`; `current`.";
        assert_eq!(driver_names(docs, "cu"), ["cuMemFree", "cuMemFreeAsync"]);
        assert_eq!(driver_names(docs, "hip"), ["hipFree"]);
    }

    #[test]
    fn the_contract_is_read_from_its_sources() {
        let contract = Contract::read().unwrap();
        let backend = &contract.traits[0];
        assert_eq!((backend.name.to_string().as_str(), backend.unsafety.is_some()), ("Backend", true));
        let families: Vec<String> =
            contract.traits[1..].iter().map(|family| family.name.to_string()).collect();
        assert_eq!(families.first().map(String::as_str), Some("PinnedHost"));
        assert_eq!(families.len(), 7);
        let sharing = contract.traits.iter().find(|of| of.name == "PhysicalSharing").unwrap();
        assert_eq!(sharing.builds_on, ["VirtualMemory"]);

        let free = backend.methods.iter().find(|method| method.name == "free").unwrap();
        assert!(free.is_unsafe && matches!(free.answer, Answer::Fallible(_)));
        assert_eq!(
            (free.arguments.len(), &free.cuda[..], &free.hip[..]),
            (2, &["cuMemFree".into()][..], &["hipFree".into()][..])
        );
        let ipc = backend.methods.iter().find(|method| method.name == "ipc").unwrap();
        assert!(matches!(&ipc.answer, Answer::Family(family) if family == "Ipc"));
    }
}
