//! The Rust side: the table as a struct, and the backend that calls through it.

use super::signature::{Signature, spelled};
use super::values::{self, Numbers};
use super::{Function, functions};
use crate::codegen::model::{Answer, Contract, Method, Trait};
use crate::codegen::text;
use crate::process::root;
use anyhow::{Context, Result};
use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

const HEADING: &str = "The table of functions, and the backend that calls through it.";

/// Enums that C functions answer with. Others only travel towards C.
const ANSWERED: [&str; 5] = ["ErrorKind", "PointerKind", "HandleType", "Access", "CaptureMode"];

pub(crate) fn emit(contract: &Contract) -> Result<String> {
    let functions = functions(contract)?;
    let values = values::read(&root().join("crates/backend-api/src"))?;
    let fields = functions.iter().map(field);
    let names = functions.iter().map(|function| &function.name);
    let required = functions.iter().filter(|f| f.of.accessor.is_none() && f.derived.is_none());
    let required = required.map(|function| {
        let (name, text) = (&function.name, function.name.to_string());
        quote!((#text, table.#name.is_some()))
    });
    let answered = values.enums.iter().filter(|numbers| ANSWERED.iter().any(|name| numbers.name == name));
    let answered = answered.map(read_number);
    let implementations: Vec<_> =
        contract.traits.iter().map(|of| implementation(contract, &functions, of)).collect::<Result<_>>()?;
    let code = quote! {
        use crate::backend::CBackend;
        use crate::host_function::{HandedOver, HostCallback, run_on_host};
        use crate::values::*;
        use backend_api::*;
        use backend_api::types::*;
        use std::ffi::{c_char, c_void};

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

        #(#answered)*
        #(#implementations)*
    };
    text::file(HEADING, code, |line| {
        if line.starts_with("unsafe impl") {
            "I1 to I4 are the table's; who called `from_table` promised them."
        } else {
            "the table keeps its header's word (`from_table`), and the caller's promise is passed on."
        }
    })
}

fn field(function: &Function<'_>) -> TokenStream {
    let name = &function.name;
    let parameters = function.signature.parameters.iter().map(|parameter| {
        let (name, ty) = (&parameter.name, &parameter.rust);
        quote!(#name: #ty)
    });
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
        let number: Literal = entry.number.parse().unwrap_or_else(|_| Literal::i32_unsuffixed(-1));
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

fn implementation(contract: &Contract, functions: &[Function<'_>], of: &Trait) -> Result<TokenStream> {
    let name = &of.name;
    let marker = of.is_unsafe.then(|| quote!(unsafe));
    let methods = of.methods.iter().map(|method| {
        let function = functions.iter().find(|f| f.of.name == of.name && f.method.name == method.name);
        match function {
            Some(function) => forward(function),
            None => outside(contract, functions, method),
        }
    });
    let methods: Vec<_> = methods.collect::<Result<_>>()?;
    Ok(quote! { #marker impl #name for CBackend { #(#methods)* } })
}

/// A method that is no function of the table.
fn outside(contract: &Contract, functions: &[Function<'_>], method: &Method) -> Result<TokenStream> {
    let name = &method.name;
    if let Answer::Family(family) = &method.answer {
        let label = text::family(name);
        let of = contract.traits.iter().find(|of| of.name == *family).context("a family of the contract")?;
        let above = contract.traits.iter().filter(|other| of.builds_on.contains(&other.name));
        let above = above.filter_map(|other| other.accessor.as_ref());
        let parts = functions.iter().filter(|f| f.of.name == *family).map(|f| {
            let (name, text) = (&f.name, f.name.to_string());
            quote!((#text, self.table.#name.is_some()))
        });
        return Ok(quote! {
            fn #name(&self) -> std::result::Result<&dyn #family, Unsupported> {
                #(self.#above()?;)*
                self.family(#label, &[#(#parts),*])?;
                Ok(self)
            }
        });
    }
    match &method.answer {
        Answer::Plain(ty) if method.arguments.is_empty() => Ok(quote!(fn #name(&self) -> #ty { self.#name })),
        _ if method.has_default => Ok(quote!()),
        _ => anyhow::bail!("{name} is left out of the table and has no default"),
    }
}

fn forward(function: &Function<'_>) -> Result<TokenStream> {
    let Function { name: field, method, signature, .. } = function;
    let name = &method.name;
    let parameters = method.arguments.iter().map(|argument| {
        let (name, ty) = (&argument.name, &argument.ty);
        quote!(#name: #ty)
    });
    let marker = method.is_unsafe.then(|| quote!(unsafe));
    let arguments = &signature.arguments;
    let call = quote!(unsafe { entry(self.table.context, #(#arguments),*) });
    let answer = match &method.answer {
        Answer::Nothing => {
            return Ok(quote! {
                fn #name(&self) {
                    if let Some(entry) = self.table.#field { #call }
                }
            });
        }
        Answer::Plain(_) => {
            return Ok(quote! {
                fn #name(&self, #(#parameters),*) -> String {
                    let name = self.table.#field.map(|entry| #call);
                    self.text_or(name, "unknown")
                }
            });
        }
        Answer::Fallible(answer) => answer,
        Answer::Family(_) => anyhow::bail!("{name} is a family's accessor"),
    };
    let text = field.to_string();
    let device = signature.device.clone().unwrap_or_else(|| quote!(DeviceIndex(0)));
    let begin = match function.derived {
        None => quote! {
            let call = self.call(#text, #device);
            let entry = call.function(self.table.#field)?;
        },
        Some(_) => {
            let names = method.argument_names();
            let instead = quote!(defaults::#name(self, #(#names),*));
            let instead =
                if method.is_unsafe { quote!(return unsafe { #instead };) } else { quote!(return #instead;) };
            quote! {
                let call = self.call(#text, #device);
                let Some(entry) = self.table.#field else { #instead };
            }
        }
    };
    let rules = rules(method);
    let prepare = &signature.prepare;
    let body = invoke(signature, answer, &call).with_context(|| format!("the answer of {name}"))?;
    Ok(quote! {
        #marker fn #name(&self, #(#parameters),*) -> Result<#answer> {
            #begin
            #rules
            #(#prepare)*
            #body
        }
    })
}

/// Rules that Granule keeps, so that a vendor need not.
fn rules(method: &Method) -> TokenStream {
    let has = |ty: &str| method.arguments.iter().any(|argument| spelled(&argument.ty) == ty);
    if method.name == "free" || method.name == "host_free" {
        // Null is fine.
        return quote!(if ptr.is_null() {
            return Ok(());
        });
    }
    if method.name == "record_event" && has("Stream") && has("Event") {
        return quote!(call.of_one_device(event, stream)?;);
    }
    quote!()
}

fn invoke(signature: &Signature, answer: &syn::Type, call: &TokenStream) -> Result<TokenStream> {
    let text = spelled(answer);
    if let Some(function) = &signature.host_function {
        return Ok(quote! {
            let work = HandedOver::new(#function);
            let status = #call;
            call.handed_over(status, work)
        });
    }
    let made = |fields: TokenStream| {
        let ty = format_ident!("{text}");
        quote! {
            let mut answer = 0;
            let status = #call;
            let raw = call.answer::<u64>(status, answer)?;
            Ok(#ty { raw, #fields backend: self.id })
        }
    };
    Ok(match text.as_str() {
        "()" => quote!(let status = #call; call.done(status)),
        "Readiness" => quote!(let status = #call; call.readiness(status)),
        "Stream" | "Event" => made(quote!(device,)),
        "PhysicalHandle" | "Graph" | "MulticastHandle" => made(quote!()),
        "Vec<CaptureNode>" => quote!(call.nodes(|nodes, capacity, count| #call)),
        _ => quote! {
            let mut answer = <#answer as Value>::BLANK;
            let status = #call;
            call.answer::<#answer>(status, answer)
        },
    })
}
