//! Emits the C table of a backend: the header for vendors, and the Rust side that calls through it.

mod forward;
mod header;
mod signature;
mod table;
mod values;

use super::grown;
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
    /// Whether it stands behind the texts, where tables of before end.
    is_appended: bool,
}

const TABLE: &str = "crates/backend-c/src/table.rs";
/// Fields of the table that are no functions of the contract, and the first of the texts behind the first functions.
const NO_FUNCTIONS: [&str; 6] = ["size", "version", "context", "last_error", TEXTS, "label"];
const TEXTS: &str = "name";

/// What Granule derives where it is NULL, and how.
const DERIVED: &[(&str, &str)] = &[
    ("error_name", "\"unknown\""),
    ("clear_error", "nothing"),
    ("has_primary_context", "true"),
    ("attribute", "GRANULE_BACKEND_NOT_SUPPORTED"),
    ("properties", "the backend's name, and the total of memory_info"),
    ("copy", "copy_async on the device's default stream, then synchronize_stream"),
    ("priority_range", "0 to 0: priorities make no difference"),
    ("elapsed_ms", "GRANULE_BACKEND_NOT_SUPPORTED"),
];

/// Functions that keep their name in C, whichever trait they are in.
const NAMES: &[(&str, &str)] = &[
    ("pinned_host_host_malloc", "host_malloc"),
    ("pinned_host_host_free", "host_free"),
    ("physical_sharing_export_physical", "virtual_memory_export_physical"),
    ("physical_sharing_import_physical", "virtual_memory_import_physical"),
];

/// Methods that are no function of the table: what they answer is given with it or follows from the contract.
const NOT_IN_TABLE: &[&str] = &["id", "kind", "name", "label", "default_stream", "dropped", "graph_memory"];

/// Every function, in the order of the table: vendors compile it into their code. It is that of the generated table, and new
/// functions come at its end.
fn functions(contract: &Contract) -> Result<Vec<Function<'_>>> {
    let mut there = Vec::new();
    for (of, method) in contract.methods() {
        let outside = of.accessor.is_none() && NOT_IN_TABLE.iter().any(|name| method.name == name);
        if outside || matches!(method.answer, Answer::Family(_)) {
            continue;
        }
        let name = field_name(of, method);
        let signature = Signature::of(method).with_context(|| format!("{}::{}", of.name, method.name))?;
        let derived = DERIVED.iter().find(|(derived, _)| name == derived).map(|(_, how)| *how);
        there.push(Function { name, of, method, signature, derived, is_appended: false });
    }
    let known = grown::fields(TABLE, "Table")?;
    let is_function = |name: &String| !NO_FUNCTIONS.contains(&name.as_str());
    let before = known.iter().take_while(|name| *name != TEXTS).filter(|name| is_function(name)).count();
    let known = known.iter().filter(|name| is_function(name)).cloned();
    let mut functions = grown::ordered(there, |function| function.name.to_string(), known)?;
    for function in &mut functions[before..] {
        function.is_appended = true;
        if function.of.accessor.is_none() && function.derived.is_none() {
            bail!("{} is required, and no table of before has it: give it a default", function.name);
        }
    }
    Ok(functions)
}

/// The functions before the table's texts, and those behind them.
fn around_texts<'a, 'c>(functions: &'a [Function<'c>]) -> (&'a [Function<'c>], &'a [Function<'c>]) {
    functions.split_at(functions.partition_point(|function| !function.is_appended))
}

/// `Backend::malloc` is `malloc`, `Capture::begin` is `capture_begin`.
fn field_name(of: &Trait, method: &Method) -> Ident {
    let name = match &of.accessor {
        Some(family) if !method.name.to_string().starts_with(&family.to_string()) => {
            format_ident!("{family}_{}", method.name)
        }
        _ => method.name.clone(),
    };
    let kept = NAMES.iter().find(|(regular, _)| name == regular);
    kept.map_or(name, |(_, kept)| format_ident!("{kept}"))
}
