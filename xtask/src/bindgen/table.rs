//! From extern blocks to function pointer types and a table of them.
//!
//! A driver library is opened at run time, so nothing may ask the linker for its functions.

use anyhow::{Result, bail};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};
use syn::{File, FnArg, ForeignItem, Item, Signature, parse_quote};

/// Replaces extern blocks: a type `<name>_t` per function, a list of the names and, if asked for, the table.
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
    items.push(name_list(&names));
    if with_table {
        items.extend(table(&names));
    }
    // Through text once, so that what was pushed as tokens is items again.
    Ok(syn::parse2(quote! { #(#items)* })?)
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
    let types: Vec<Ident> = names.iter().map(type_name).collect();
    let symbols = names.iter().map(|name| {
        let name = std::ffi::CString::new(name.to_string()).expect("an identifier has no NUL in it");
        Literal::c_string(&name)
    });
    let fields = parse_quote! {
        /// The library's functions; `None` where it has none of that name.
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
                Self {
                    #(#names: symbol(#symbols).map(|address| unsafe {
                        core::mem::transmute::<*mut core::ffi::c_void, #types>(address)
                    }),)*
                }
            }
        }
    };
    [fields, load]
}

#[cfg(test)]
mod tests {
    use super::from_extern_blocks;

    fn made(with_table: bool) -> String {
        let source = r#"
            pub type status = u32;
            unsafe extern "C" { pub fn second(a: *mut u8, n: usize) -> status; pub fn first(); }
        "#;
        let file = from_extern_blocks(syn::parse_str(source).unwrap(), with_table).unwrap();
        prettyplease::unparse(&file)
    }

    #[test]
    fn functions_become_types_and_nothing_is_left_to_link() {
        let text = made(false);
        assert!(
            text.contains("pub type second_t = unsafe extern \"C\" fn(a: *mut u8, n: usize) -> status;"),
            "{text}"
        );
        assert!(text.contains("pub type first_t = unsafe extern \"C\" fn();"), "{text}");
        assert!(text.contains(r#"pub const NAMES: &[&str] = &["first", "second"];"#), "{text}");
        assert!(!text.contains("extern \"C\" {") && !text.contains("struct Functions"), "{text}");
    }

    #[test]
    fn table_has_a_field_and_a_lookup_per_function() {
        let text = made(true);
        for name in ["first", "second"] {
            assert!(text.contains(&format!("pub {name}: Option<{name}_t>")), "{text}");
            assert!(text.contains(&format!("{name}: symbol(c\"{name}\")")), "{text}");
        }
    }

    #[test]
    fn variables_are_refused() {
        let source = r#"unsafe extern "C" { pub static count: u32; }"#;
        assert!(from_extern_blocks(syn::parse_str(source).unwrap(), true).is_err());
    }
}
