//! From extern blocks to function pointer types and a table of them.
//!
//! A driver library is opened at run time, so nothing may ask the linker for its functions.

use anyhow::{Result, bail};
use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use std::collections::BTreeSet;
use syn::{File, FnArg, ForeignItem, Item, Signature, UseTree, parse_quote};

/// Replaces extern blocks: a type `<name>_t` per function and, if asked for, a list of the names and the table.
pub(super) fn from_extern_blocks(file: File, with_table: bool) -> Result<File> {
    let (blocks, mut items): (Vec<Item>, Vec<Item>) =
        file.items.into_iter().partition(|item| matches!(item, Item::ForeignMod(_)));
    let mut names = Vec::new();
    for block in blocks {
        let Item::ForeignMod(block) = block else { continue };
        for item in block.items {
            let ForeignItem::Fn(function) = item else {
                bail!("the header declares a variable, which a table of functions cannot have")
            };
            items.push(Item::Verbatim(pointer_type(&function.sig)));
            names.push(function.sig.ident);
        }
    }
    names.sort();
    if with_table {
        items.push(name_list(&names));
        items.extend(table(&names));
    }
    // Through text once, so that what was pushed as tokens is items again.
    Ok(syn::parse2(quote! { #(#items)* })?)
}

/// What words name, and what that mentions in turn.
pub(super) fn of_words(mut file: File, mut words: BTreeSet<String>) -> File {
    fn renamed(item: &Item) -> Option<&Ident> {
        let Item::Use(item) = item else { return None };
        let UseTree::Path(path) = &item.tree else { return None };
        let UseTree::Rename(to) = &*path.tree else { return None };
        Some(&to.rename)
    }
    fn is_named(item: &Item, words: &BTreeSet<String>) -> bool {
        let name = name(item).or_else(|| renamed(item));
        name.is_some_and(|name| words.contains(&name.to_string()))
    }
    loop {
        let before = words.len();
        for item in &file.items {
            if is_named(item, &words) {
                collect(item.to_token_stream(), &mut words);
            }
        }
        if words.len() == before {
            break;
        }
    }
    file.items.retain(|item| is_named(item, &words));
    file
}

/// Adds the identifiers of tokens.
fn collect(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect(group.stream(), words),
            TokenTree::Ident(word) => drop(words.insert(word.to_string())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// What an item declares, where that has a name.
pub(super) fn name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => (item.ident != "_").then_some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn pointer_type(signature: &Signature) -> TokenStream {
    let name = type_name(&signature.ident);
    let arguments = signature.inputs.iter().filter_map(|argument| match argument {
        FnArg::Typed(argument) => Some((&argument.pat, &argument.ty)),
        FnArg::Receiver(_) => None,
    });
    let arguments = arguments.map(|(name, kind)| quote! { #name: #kind });
    let output = &signature.output;
    quote! { pub type #name = unsafe extern "C" fn(#(#arguments),*) #output; }
}

fn type_name(function: &Ident) -> Ident {
    format_ident!("{function}_t")
}

fn name_list(names: &[Ident]) -> Item {
    let names = names.iter().map(Ident::to_string);
    parse_quote! {
        /// The functions that are declared here.
        pub const NAMES: &[&str] = &[#(#names),*];
    }
}

fn table(names: &[Ident]) -> [Item; 2] {
    let types = names.iter().map(type_name);
    let symbols = names.iter().map(|name| {
        let name = std::ffi::CString::new(name.to_string()).expect("an identifier has no NUL in it");
        Literal::c_string(&name)
    });
    let count = Literal::usize_unsuffixed(names.len());
    let fields = parse_quote! {
        /// The library's functions; `None` where it has none of that name.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Functions {
            #(pub #names: Option<#types>,)*
        }
    };
    let load = parse_quote! {
        impl Functions {
            /// Asks `symbol` for the address of every function.
            ///
            /// # Safety
            ///
            /// Each address is that of a C function of this generation's signature, and stays one for as long as
            /// any copy of the table is used.
            pub unsafe fn load(
                mut symbol: impl FnMut(&core::ffi::CStr) -> Option<*mut core::ffi::c_void>,
            ) -> Self {
                let addresses = [#(#symbols),*].map(|name| symbol(name).unwrap_or(core::ptr::null_mut()));
                unsafe { core::mem::transmute::<[*mut core::ffi::c_void; #count], Self>(addresses) }
            }
        }
    };
    [fields, load]
}

/// The source text, with the reason at the table's one unsafe block: syntax trees hold no comments.
pub(super) fn text(file: &File) -> String {
    const WITH_REASON: &str = "\
// SAFETY: the fields are in the order of the names above, with nothing between them (repr C). Each is an
// optional function pointer, which is as large as an address and `None` where that is null. That there is
// a function of the field's type at any other address is the caller's promise.
unsafe {";
    prettyplease::unparse(file).replace("unsafe {", WITH_REASON)
}

#[cfg(test)]
mod tests {
    use super::{from_extern_blocks, of_words, text};

    fn made(with_table: bool) -> String {
        let source = r#"
            pub type status = u32;
            unsafe extern "C" { pub fn second(a: *mut u8, n: usize) -> status; pub fn first(); }
        "#;
        let file = from_extern_blocks(syn::parse_str(source).unwrap(), with_table).unwrap();
        text(&file)
    }

    #[test]
    fn functions_become_types_and_nothing_is_left_to_link() {
        let text = made(false);
        assert!(
            text.contains("pub type second_t = unsafe extern \"C\" fn(a: *mut u8, n: usize) -> status;"),
            "{text}"
        );
        assert!(text.contains("pub type first_t = unsafe extern \"C\" fn();"), "{text}");
        assert!(
            !text.contains("NAMES") && !text.contains("extern \"C\" {") && !text.contains("struct Functions"),
            "{text}"
        );
    }

    #[test]
    fn what_words_name_stays_with_what_it_mentions() {
        let source = "pub type id = u32; pub struct pair { pub a: id } pub const UNUSED: id = 1;
            pub const ONE: id = 1; pub use self::id as number; pub type go_t = unsafe extern \"C\" fn(a: *mut pair);";
        let words = ["go_t", "ONE", "number"].map(str::to_owned).into();
        let text = text(&of_words(syn::parse_str(source).unwrap(), words));
        assert!(
            ["pub type id", "pair", "ONE", "go_t", "number"].iter().all(|word| text.contains(word)),
            "{text}"
        );
        assert!(!text.contains("UNUSED"), "{text}");
    }

    #[test]
    fn table_has_a_field_and_a_symbol_per_function_in_the_same_order() {
        let text = made(true);
        let places = [
            r#"pub const NAMES: &[&str] = &["first", "second"];"#,
            "#[repr(C)]",
            "pub first: Option<first_t>",
            "pub second: Option<second_t>",
            r#"[c"first", c"second"]"#,
            "[*mut core::ffi::c_void; 2]",
        ]
        .map(|part| text.find(part).unwrap_or_else(|| panic!("no {part} in {text}")));
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn the_unsafe_block_has_its_reason() {
        let text = made(true);
        let (before, _) = text.split_once("unsafe {").expect("a block");
        assert!(before.contains("// SAFETY:") && text.matches("unsafe {").count() == 1, "{text}");
    }

    #[test]
    fn variables_are_refused() {
        let source = r#"unsafe extern "C" { pub static count: u32; }"#;
        assert!(from_extern_blocks(syn::parse_str(source).unwrap(), true).is_err());
    }
}
