//! Emits the C table of a backend: the header for vendors, and the Rust side that calls through it.

mod forward;
mod header;
mod layout;
mod signature;
mod table;
mod values;

use super::model::{Answer, Contract, Method, Trait};
use anyhow::{Context, Result, bail};
use proc_macro2::Ident;
use quote::format_ident;
use signature::Signature;

pub(super) use forward::emit as emit_forward;
pub(super) use header::emit as emit_header;
pub(super) use table::emit as emit_table;

/// A function of the table.
struct Function<'c> {
    name: Ident,
    of: &'c Trait,
    method: &'c Method,
    signature: Signature,
    /// What stands in for it where it is NULL; none for a function of a family or of the required part.
    derived: Option<&'static str>,
}

/// Every function, in the order of the table.
fn functions(contract: &Contract) -> Result<Vec<Function<'_>>> {
    let mut there = Vec::new();
    for (of, method) in contract.methods() {
        let outside = of.accessor.is_none() && layout::NOT_IN_TABLE.iter().any(|name| method.name == name);
        if outside || matches!(method.answer, Answer::Family(_)) {
            continue;
        }
        let name = field_name(of, method);
        let signature = Signature::of(method).with_context(|| format!("{}::{}", of.name, method.name))?;
        there.push(Function { name, of, method, signature, derived: None });
    }
    let mut ordered = Vec::new();
    let derived = layout::DERIVED.iter().map(|&(name, how)| (name, Some(how)));
    let plain = |names: &'static [&'static str]| names.iter().map(|&name| (name, None));
    let before = plain(layout::REQUIRED).chain(plain(layout::ONCE_REQUIRED));
    for (name, how) in before.chain(derived).chain(plain(layout::FAMILIES)) {
        let at = there.iter().position(|function| function.name == name);
        let mut function = there.remove(at.with_context(|| {
            format!("the table's layout names {name}, which the contract does not have (any more)")
        })?);
        function.derived = how;
        ordered.push(function);
    }
    if let Some(new) = there.first() {
        bail!("{} has no place in the table: append it in xtask/src/codegen/ctable/layout.rs", new.name);
    }
    Ok(ordered)
}

/// `Backend::malloc` is `malloc`, `Capture::begin` is `capture_begin`.
fn field_name(of: &Trait, method: &Method) -> Ident {
    let name = match &of.accessor {
        Some(family) if !method.name.to_string().starts_with(&family.to_string()) => {
            format_ident!("{family}_{}", method.name)
        }
        _ => method.name.clone(),
    };
    let kept = layout::NAMES.iter().find(|(regular, _)| name == regular);
    kept.map_or(name, |(_, kept)| format_ident!("{kept}"))
}
