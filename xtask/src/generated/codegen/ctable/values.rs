//! Plain values of the contract that C sees: enums and flags of `backend-api`, structs of `backend-c`.

use crate::generated::codegen::model::{SOURCES, documentation};
use crate::generated::syntax;
use anyhow::{Result, bail};
use proc_macro2::{Ident, TokenStream};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Item};

/// Files with enums and flags of the contract.
const FILES: [&str; 5] = ["error.rs", "memory.rs", "virtual_memory.rs", "families.rs", "capture.rs"];

/// Named numbers: an enum, or flags.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) name: Ident,
    pub(super) docs: Vec<String>,
    pub(super) are_flags: bool,
    pub(super) entries: Vec<Entry>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Ident,
    pub(super) docs: Vec<String>,
    pub(super) number: u32,
}

/// Every enum without data, then every set of flags, in the order of the sources.
pub(super) fn read() -> Result<Vec<Numbers>> {
    let mut numbers = Vec::new();
    for file in FILES {
        for item in syntax(format!("{SOURCES}/{file}"))?.items {
            match item {
                Item::Enum(item) if item.variants.iter().all(|v| v.fields.is_empty()) => {
                    numbers.push(numbered(item)?);
                }
                Item::Macro(item) if item.mac.path.is_ident("bitflags") => {
                    numbers.push(syn::parse2::<Flags>(item.mac.tokens)?.0);
                }
                _ => {}
            }
        }
    }
    numbers.sort_by_key(|numbers| numbers.are_flags);
    Ok(numbers)
}

/// The `#[repr(C)]` structs of a file.
pub(super) fn structs(path: &str) -> Result<Vec<syn::ItemStruct>> {
    let structs = syntax(path)?.items.into_iter().filter_map(|item| match item {
        Item::Struct(item) if item.attrs.iter().any(|a| a.path().is_ident("repr")) => Some(item),
        _ => None,
    });
    Ok(structs.collect())
}

fn numbered(item: syn::ItemEnum) -> Result<Numbers> {
    let mut entries = Vec::new();
    for (number, variant) in (0..).zip(item.variants) {
        if variant.discriminant.is_some() {
            bail!("{} numbers {} itself; the C table counts from 0", item.ident, variant.ident);
        }
        let docs = documentation(&variant.attrs);
        entries.push(Entry { name: variant.ident, docs, number });
    }
    Ok(Numbers { name: item.ident, docs: documentation(&item.attrs), are_flags: false, entries })
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
            let number = body.parse::<syn::LitInt>()?.base10_parse()?;
            body.parse::<syn::Token![;]>()?;
            entries.push(Entry { name, docs, number });
        }
        input.parse::<TokenStream>()?;
        Ok(Self(Numbers { name, docs, are_flags: true, entries }))
    }
}
