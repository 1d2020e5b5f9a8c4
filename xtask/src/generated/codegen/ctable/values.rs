//! Plain values of the contract that C sees: enums and flags of `backend-api`, structs of `backend-c`.

use crate::generated::codegen::model::documentation;
use anyhow::{Context, Result, bail};
use proc_macro2::{Ident, TokenStream};
use std::path::Path;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Item};

/// Files with enums and flags of the contract, under `backend-api`'s source folder.
const SOURCES: [&str; 5] = ["error.rs", "memory.rs", "virtual_memory.rs", "families.rs", "capture.rs"];

/// Named numbers.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) name: Ident,
    pub(super) docs: Vec<String>,
    pub(super) entries: Vec<Entry>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Ident,
    pub(super) docs: Vec<String>,
    pub(super) number: String,
}

/// What the contract's sources define.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) enums: Vec<Numbers>,
    pub(super) flags: Vec<Numbers>,
}

/// Every enum without data and every set of flags, in the order of the sources.
pub(super) fn read(sources: &Path) -> Result<Values> {
    let mut values = Values::default();
    for source in SOURCES {
        for item in parse(&sources.join(source))?.items {
            match item {
                Item::Enum(item) if item.variants.iter().all(|v| v.fields.is_empty()) => {
                    values.enums.push(numbered(item)?);
                }
                Item::Macro(item) if item.mac.path.is_ident("bitflags") => {
                    values.flags.push(syn::parse2::<Flags>(item.mac.tokens)?.0);
                }
                _ => {}
            }
        }
    }
    Ok(values)
}

/// The `#[repr(C)]` structs of a file.
pub(super) fn structs(path: &Path) -> Result<Vec<syn::ItemStruct>> {
    let items = parse(path)?.items.into_iter();
    let structs = items.filter_map(|item| match item {
        Item::Struct(item) if item.attrs.iter().any(|a| a.path().is_ident("repr")) => Some(item),
        _ => None,
    });
    Ok(structs.collect())
}

fn parse(path: &Path) -> Result<syn::File> {
    let text = std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    syn::parse_file(&text).with_context(|| format!("could not parse {}", path.display()))
}

fn numbered(item: syn::ItemEnum) -> Result<Numbers> {
    let mut entries = Vec::new();
    for (number, variant) in item.variants.into_iter().enumerate() {
        if variant.discriminant.is_some() {
            bail!("{} numbers {} itself; the C table counts from 0", item.ident, variant.ident);
        }
        let docs = documentation(&variant.attrs);
        entries.push(Entry { name: variant.ident, docs, number: number.to_string() });
    }
    Ok(Numbers { name: item.ident, docs: documentation(&item.attrs), entries })
}

/// The inside of a `bitflags!` with one struct.
struct Flags(Numbers);

impl Parse for Flags {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let docs = documentation(&input.call(Attribute::parse_outer)?);
        input.parse::<syn::Visibility>()?;
        input.parse::<syn::Token![struct]>()?;
        let name = input.parse()?;
        input.parse::<syn::Token![:]>()?;
        input.parse::<Ident>()?;
        let body;
        syn::braced!(body in input);
        let mut entries = Vec::new();
        while !body.is_empty() {
            let docs = documentation(&body.call(Attribute::parse_outer)?);
            body.parse::<syn::Token![const]>()?;
            let name = body.parse()?;
            body.parse::<syn::Token![=]>()?;
            let number = body.parse::<syn::LitInt>()?.to_string();
            body.parse::<syn::Token![;]>()?;
            entries.push(Entry { name, docs, number });
        }
        input.parse::<TokenStream>()?;
        Ok(Self(Numbers { name, docs, entries }))
    }
}
