//! The table as a struct, and the numbers that it answers with.

use super::signature::Parameter;
use super::values::{self, Numbers};
use super::{Function, around_texts, functions};
use crate::generated::codegen::model::{Answer, Contract};
use crate::generated::codegen::text;
use anyhow::Result;
use proc_macro2::{Literal, TokenStream};
use quote::quote;

const HEADING: &str = "The table of functions, and the numbers that they answer with.";

/// Enums that C functions answer with. Others only travel towards C.
const ANSWERED: [&str; 5] = ["ErrorKind", "PointerKind", "HandleType", "Access", "CaptureMode"];

pub(crate) fn emit(contract: &Contract) -> Result<String> {
    let table = table(&functions(contract)?);
    let values = values::read()?;
    let answered = values.iter().filter(|numbers| ANSWERED.iter().any(|name| numbers.name == name));
    let answered = answered.map(read_number);
    let code = quote! {
        use crate::host_function::HostCallback;
        use crate::values::*;
        use backend_api::*;
        use backend_api::types::*;
        use std::ffi::{c_char, c_void};

        #table
        #(#answered)*
    };
    text::file(HEADING, code, None)
}

fn table(functions: &[Function<'_>]) -> TokenStream {
    let (first, appended) = around_texts(functions);
    let (fields, appended) = (first.iter().map(field), appended.iter().map(field));
    let names = functions.iter().map(|function| &function.name);
    let required = functions.iter().filter(|f| f.of.accessor.is_none() && f.derived.is_none());
    let required = required.map(|function| {
        let (name, text) = (&function.name, function.name.to_string());
        quote!((#text, table.#name.is_some()))
    });
    quote! {
        /// A backend's functions. The C header says what each does; `granule_backend_table` is its name there.
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub struct Table {
            /// `sizeof(granule_backend_table)` when the vendor compiled it.
            pub size: u64,
            /// [`VERSION`](crate::VERSION).
            pub version: u64,
            /// First argument of every function.
            pub context: *mut c_void,
            /// What the driver said of the calling thread's last failure. May be `None`.
            pub last_error: Option<
                unsafe extern "C" fn(context: *mut c_void, code: *mut i32, text: *mut c_char, capacity: u64),
            >,
            #(#fields,)*
            /// What users call it, in small letters. May be null.
            pub name: *const c_char,
            /// What errors call its devices. May be null.
            pub label: *const c_char,
            #(#appended,)*
        }

        impl Table {
            /// A table without functions.
            pub const EMPTY: Self = Self {
                size: size_of::<Self>() as u64,
                version: crate::VERSION,
                context: std::ptr::null_mut(),
                last_error: None,
                #(#names: None,)*
                name: std::ptr::null(),
                label: std::ptr::null(),
            };
        }

        /// Every function that must be there, and whether it is.
        pub(crate) fn required(table: &Table) -> impl Iterator<Item = (&'static str, bool)> {
            [#(#required),*].into_iter()
        }
    }
}

fn field(function: &Function<'_>) -> TokenStream {
    let name = &function.name;
    let parameters =
        function.signature.parameters.iter().map(|Parameter { name, rust, .. }| quote!(#name: #rust));
    let output = match &function.method.answer {
        Answer::Plain(_) => quote!(-> *const c_char),
        Answer::Nothing => quote!(),
        Answer::Fallible(_) | Answer::Family(_) => quote!(-> i32),
    };
    let doc = format!(" [`{}::{}`].", function.of.name, function.method.name);
    quote! {
        #[doc = #doc]
        pub #name: Option<unsafe extern "C" fn(context: *mut c_void, #(#parameters),*) #output>
    }
}

fn read_number(numbers: &Numbers) -> TokenStream {
    let name = &numbers.name;
    let arms = numbers.entries.iter().map(|entry| {
        let variant = &entry.name;
        let number = Literal::u32_unsuffixed(entry.number);
        quote!(#number => Some(Self::#variant))
    });
    quote! {
        impl Value for #name {
            type Raw = i32;
            const BLANK: i32 = -1;
            fn read(raw: i32) -> Option<Self> {
                match raw { #(#arms,)* _ => None }
            }
        }
    }
}
