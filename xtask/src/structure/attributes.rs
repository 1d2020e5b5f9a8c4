//! What attributes say about when code is compiled.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Whether something with these attributes is compiled for tests alone.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("cfg") {
            attribute.parse_args::<Meta>().is_ok_and(|condition| outside_of_tests(&condition) == Some(false))
        } else {
            attribute.path().is_ident("test")
        }
    })
}

/// Whether a condition holds where no tests are built; none where that depends on more.
fn outside_of_tests(condition: &Meta) -> Option<bool> {
    let Meta::List(list) = condition else {
        let path = condition.path();
        return (path.is_ident("test") || path.is_ident("doctest")).then_some(false);
    };
    let inner = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let inner: Vec<Option<bool>> = inner.iter().map(outside_of_tests).collect();
    let all = |what: bool| inner.iter().all(|one| *one == Some(what)).then_some(what);
    let any = |what: bool| inner.contains(&Some(what)).then_some(what);
    if list.path.is_ident("all") {
        any(false).or_else(|| all(true))
    } else if list.path.is_ident("any") {
        any(true).or_else(|| all(false))
    } else if list.path.is_ident("not") {
        inner.first().copied().flatten().map(|holds| !holds)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::is_for_tests;

    #[test]
    fn conditions_are_weighed() {
        let is = |text: &str| {
            is_for_tests(&syn::parse_str::<syn::ItemFn>(&format!("{text} fn f() {{}}")).unwrap().attrs)
        };
        for text in ["#[cfg(test)]", "#[cfg(all(test, loom))]", "#[cfg(not(not(test)))]", "#[test]"] {
            assert!(is(text), "{text}");
        }
        for text in
            ["", "#[cfg(unix)]", "#[cfg(any(test, unix))]", "#[cfg(not(test))]", "#[cfg(all(unix, loom))]"]
        {
            assert!(!is(text), "{text}");
        }
    }
}
