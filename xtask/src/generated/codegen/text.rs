//! From tokens to a source file as a person would have left it.

use crate::process::rustfmt;
use anyhow::{Context, Result};
use proc_macro2::{Ident, TokenStream};

/// A file of generated code: a heading, the code with a `SAFETY:` comment at each unsafe block, formatted.
///
/// `heading` holds the file's `//!` lines without their marks; `rules` are those on which each `unsafe impl` and each unsafe block
/// relies.
pub(super) fn file(heading: &str, code: TokenStream, rules: Option<[&str; 2]>) -> Result<String> {
    let parsed = syn::parse2(code).context("the generator wrote code that does not parse")?;
    let mut text = String::new();
    for line in heading.lines() {
        text.push_str(format!("//! {line}").trim_end());
        text.push('\n');
    }
    text.push_str("//!\n//! Generated from the `Backend` trait by `cargo xtask codegen`. Do not edit.\n\n");
    // Syntax trees hold no comments, so they are set in afterwards.
    let mut before = "";
    for line in prettyplease::unparse(&parsed).lines() {
        // A blank line between functions and between items, and one after the imports.
        let after_imports = before.starts_with("use ") && !line.starts_with("use ");
        let after_body = matches!(before, "}" | "    }" | "];") && line.trim_start() != "}";
        if after_imports || after_body {
            text.push('\n');
        }
        let of_impl = line.starts_with("unsafe impl");
        if of_impl || line.contains("unsafe {") {
            let [rule_of_impl, rule] = rules.context("the generator wrote unsafe code without a rule")?;
            text.push_str(&format!("// SAFETY: {}\n", if of_impl { rule_of_impl } else { rule }));
        }
        text.push_str(line);
        text.push('\n');
        before = line;
    }
    rustfmt(&text)
}

/// What people call a family that is offered by the method `accessor`.
pub(super) fn family(accessor: &Ident) -> String {
    match accessor.to_string().as_str() {
        "ipc" => "IPC".to_owned(),
        "pinned_host" => "pinned host memory".to_owned(),
        "physical_sharing" => "sharing of physical memory".to_owned(),
        other => other.replace('_', " "),
    }
}
