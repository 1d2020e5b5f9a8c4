//! A newer generation against an older one's module and the overlay that says what changed.

use super::table::name;
use anyhow::{Result, bail};
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, UseTree, Visibility};

/// Every declaration of the older generation must hold in the newer one, unless the overlay redefines it or re-exports
/// it by name, which says that the difference is one of spelling. The overlay's own numbers must be the newer one's.
pub(super) fn overlay(newer: &str, older: &str, overlay: &str) -> Result<()> {
    let vouched = re_exported(overlay)?;
    let (newer, older, overlay) = (named(newer)?, named(older)?, named(overlay)?);
    let mut differences = Vec::new();
    for (name, declaration) in &older {
        if vouched.contains(name) || overlay.contains_key(name) {
            continue;
        }
        match newer.get(name) {
            Some(found) if found.text == declaration.text => {}
            Some(_) => differences.push(format!("{name} changed")),
            None => differences.push(format!("{name} is gone")),
        }
    }
    for (name, declaration) in &overlay {
        // Types are spelled otherwise by hand; tests compare their layouts and signatures.
        let found = newer.get(name).and_then(|found| found.number);
        if found.is_some() && found != declaration.number {
            differences.push(format!("{name} is not what the overlay says"));
        }
    }
    if !differences.is_empty() {
        bail!("the headers and the overlay differ:\n  {}", differences.join("\n  "));
    }
    Ok(())
}

struct Declaration {
    text: String,
    /// A constant's value, where it is one number.
    number: Option<u64>,
}

/// A file's types and constants by name. The table is left out, for it follows from the function types, and so
/// are the version and the end of the list of errors, which move with every release.
fn named(text: &str) -> Result<BTreeMap<String, Declaration>> {
    let file: syn::File = syn::parse_str(text)?;
    let named = file.items.iter().filter_map(|item| Some((name(item)?.to_string(), item)));
    let kept = named.filter(|(name, _)| {
        !["Functions", "NAMES", "ADDED", "hipErrorTbd"].contains(&name.as_str())
            && !name.starts_with("HIP_VERSION")
    });
    let declared = kept.map(|(name, item)| {
        let declaration = Declaration { text: item.to_token_stream().to_string(), number: number(item) };
        (name, declaration)
    });
    Ok(declared.collect())
}

fn number(item: &Item) -> Option<u64> {
    let Item::Const(item) = item else { return None };
    let syn::Expr::Lit(value) = &*item.expr else { return None };
    let syn::Lit::Int(value) = &value.lit else { return None };
    value.base10_parse().ok()
}

/// The names that a file re-exports one by one.
fn re_exported(text: &str) -> Result<BTreeSet<String>> {
    fn collect(tree: &UseTree, names: &mut BTreeSet<String>) {
        match tree {
            UseTree::Path(path) => collect(&path.tree, names),
            UseTree::Group(group) => group.items.iter().for_each(|tree| collect(tree, names)),
            UseTree::Name(name) => {
                names.insert(name.ident.to_string());
            }
            UseTree::Rename(_) | UseTree::Glob(_) => {}
        }
    }
    let mut names = BTreeSet::new();
    for item in syn::parse_str::<syn::File>(text)?.items {
        if let Item::Use(item) = item
            && matches!(item.vis, Visibility::Public(_))
        {
            collect(&item.tree, &mut names);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::overlay;

    const OLDER: &str = "pub const END: u32 = 1; pub struct Pair { pub a: u32 } pub type go_t = fn(u32);";

    #[test]
    fn unchanged_declarations_pass_and_additions_do_not_matter() {
        overlay(&format!("{OLDER} pub const NEW: u32 = 5;"), OLDER, "").unwrap();
    }

    #[test]
    fn every_change_that_the_overlay_does_not_name_is_told() {
        let newer = "pub const END: u32 = 2; pub struct Pair { pub b: u32 }";
        let text = overlay(newer, OLDER, "").unwrap_err().to_string();
        for line in ["END changed", "Pair changed", "go_t is gone"] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn an_overlay_may_redefine_or_vouch_for_a_declaration() {
        let newer = "pub const END: u32 = 2; pub struct Pair { pub b: u32 } pub type go_t = fn(u32);";
        overlay(newer, OLDER, "pub use super::older::{Pair}; pub const END: u32 = 2;").unwrap();
    }

    #[test]
    fn what_the_overlay_defines_must_be_what_the_headers_say() {
        let newer = "pub const END: u32 = 3; pub struct Pair { pub a: u32 } pub type go_t = fn(u32);";
        let text = overlay(newer, OLDER, "pub const END: u32 = 2;").unwrap_err().to_string();
        assert!(text.contains("END is not what the overlay says"), "{text}");
    }
}
