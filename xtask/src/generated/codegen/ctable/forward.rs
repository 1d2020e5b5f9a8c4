//! The backend that calls through the table.

use super::signature::{Signature, spelled};
use super::{Function, functions};
use crate::generated::codegen::model::{Answer, Contract, Method, Trait};
use crate::generated::codegen::text;
use anyhow::{Context, Result};
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

const HEADING: &str = "Every method of the contract, as a call through the table.";

pub(crate) fn emit(contract: &Contract) -> Result<String> {
    let functions = functions(contract)?;
    let implementations: Vec<_> =
        contract.traits.iter().map(|of| implementation(contract, &functions, of)).collect::<Result<_>>()?;
    let code = quote! {
        use crate::backend::CBackend;
        use crate::call::Call;
        use crate::host_function::{HandedOver, run_on_host};
        use crate::values::*;
        use backend_api::*;
        use backend_api::types::*;

        #(#implementations)*
    };
    let rules = [
        "I1 to I4 are the table's; who called `from_table` promised them.",
        "the table keeps its header's word (`from_table`), and the caller's promise is passed on.",
    ];
    text::file(HEADING, code, Some(rules))
}

fn implementation(contract: &Contract, functions: &[Function<'_>], of: &Trait) -> Result<TokenStream> {
    let Trait { name, unsafety, .. } = of;
    let methods = of.methods.iter().map(|method| {
        let function = functions.iter().find(|f| f.of.name == of.name && f.method.name == method.name);
        match function {
            Some(function) => forward(function),
            None => outside(contract, functions, method),
        }
    });
    let methods: Vec<_> = methods.collect::<Result<_>>()?;
    Ok(quote! { #unsafety impl #name for CBackend { #(#methods)* } })
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
    let parameters = &method.arguments;
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
            let call = Call::new(self, #text, #device);
            let entry = call.function(self.table.#field)?;
        },
        Some(_) => {
            let names = method.argument_names();
            let instead = quote!(defaults::#name(self, #(#names),*));
            let instead =
                if method.is_unsafe { quote!(return unsafe { #instead };) } else { quote!(return #instead;) };
            quote! {
                let call = Call::new(self, #text, #device);
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
        "PhysicalHandle" | "Graph" => made(quote!()),
        "Vec<CaptureNode>" => quote!(call.nodes(|nodes, capacity, count| #call)),
        _ => quote! {
            let mut answer = <#answer as Value>::BLANK;
            let status = #call;
            call.answer::<#answer>(status, answer)
        },
    })
}
