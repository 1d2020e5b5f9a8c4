//! The order of what C programs have compiled in. It is that of the generated struct, which only grows at its end: what it
//! has stays where it is, and what is new comes after it, whatever the order of source lines.

use crate::generated::syntax;
use anyhow::{Context, Result, bail};
use syn::Item;

/// The fields of `structure` in the Rust file at `path`.
pub(super) fn fields(path: &str, structure: &str) -> Result<Vec<String>> {
    let source = syntax(path).context("it says the order of what C has: restore it")?;
    let fields = source.items.into_iter().find_map(|item| match item {
        Item::Struct(item) if item.ident == structure => Some(item.fields),
        _ => None,
    });
    let fields = fields.with_context(|| format!("{path} has no struct {structure}"))?;
    Ok(fields.iter().filter_map(|field| field.ident.as_ref().map(ToString::to_string)).collect())
}

/// The items in the order of the fields that are there, then those that are new.
pub(super) fn ordered<T>(
    mut items: Vec<T>,
    name: impl Fn(&T) -> String,
    there: impl IntoIterator<Item = String>,
) -> Result<Vec<T>> {
    let mut first = Vec::new();
    for field in there {
        let Some(at) = items.iter().position(|item| name(item) == field) else {
            bail!("C has the field {field}, which follows from nothing any more: a C struct does not shrink");
        };
        first.push(items.remove(at));
    }
    first.extend(items);
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::ordered;

    fn order(items: &[&str], there: &[&str]) -> anyhow::Result<Vec<String>> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        ordered(owned(items), Clone::clone, owned(there))
    }

    #[test]
    fn what_is_there_stays_where_it_is_and_what_is_new_comes_last() {
        assert_eq!(order(&["one", "two", "three"], &["three", "one"]).unwrap(), ["three", "one", "two"]);
        let error = order(&["one"], &["one", "gone"]).unwrap_err().to_string();
        assert!(error.contains("gone") && error.contains("does not shrink"), "{error}");
    }
}
