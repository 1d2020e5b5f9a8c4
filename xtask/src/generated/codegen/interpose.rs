//! Emits the conformance kit's `Hook`, which stands between a caller and a backend, and its use.

use super::model::{Answer, Contract, Method, Trait};
use super::text;
use anyhow::Result;
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

const HEADING: &str = "A method for every method of the contract, and the backend that calls them.";

pub(super) fn emit(contract: &Contract) -> Result<String> {
    let hook_methods = contract.methods().map(|(of, method)| hook_method(contract, of, method));
    let implementations = contract.traits.iter().map(|of| implementation(contract, of));
    let code = quote! {
        use super::Interposed;
        use backend_api::*;
        use backend_api::types::*;
        use std::fmt::Debug;

        /// What happens between a caller and a backend: one method for every method of the contract. Each
        /// calls the inner one unless it is overridden.
        ///
        /// Methods are named as in the contract. A family's accessor ends in `_family`; a name that two traits
        /// share begins with the trait's. A method gets its backend or family as `inner`.
        pub trait Hook: Debug + Send + Sync + 'static {
            /// Comes before every method that can fail, with its trait and name (`"VirtualMemory::map"`); an
            /// error is the call's answer, and the method is not called.
            fn enter(&self, method: &'static str) -> Result<()> {
                let _ = method;
                Ok(())
            }
            #(#hook_methods)*
        }

        #(#implementations)*
    };
    let rules = [
        "I1 to I4 are the inner backend's; a hook that breaks them is made to.",
        "rules 1 to 3 are the caller's promise, passed on.",
    ];
    text::file(HEADING, code, Some(rules))
}

/// The hook's name of a method.
fn hook_name(contract: &Contract, of: &Trait, method: &Method) -> Ident {
    let name = &method.name;
    if matches!(method.answer, Answer::Family(_)) {
        return format_ident!("{name}_family");
    }
    let shared = contract.methods().filter(|(_, other)| other.name == *name).count() > 1;
    match &of.accessor {
        Some(family) if shared => format_ident!("{family}_{name}"),
        _ => name.clone(),
    }
}

fn hook_method(contract: &Contract, of: &Trait, method: &Method) -> TokenStream {
    let (owner, name) = (&of.name, &method.name);
    let hook = hook_name(contract, of, method);
    let doc = format!(" Stands in for [`{owner}::{name}`].");
    if let Answer::Family(family) = &method.answer {
        // Where one family is hidden, so are those that build on it.
        let find = |name: &Ident| contract.traits.iter().find(|of| of.name == *name);
        let below = find(family).into_iter().flat_map(|of| &of.builds_on);
        let below =
            below.filter_map(|name| find(name)?.accessor.as_ref()).map(|of| format_ident!("{of}_family"));
        return quote! {
            #[doc = #doc]
            fn #hook<'a>(&self, inner: &'a dyn Backend) -> std::result::Result<&'a dyn #family, Unsupported> {
                #(self.#below(inner)?;)*
                inner.#name()
            }
        };
    }
    let parameters = &method.arguments;
    let arguments = method.argument_names();
    let output = output(&method.answer);
    let call = quote!(inner.#name(#(#arguments),*));
    if method.is_unsafe {
        let safety = format!(" As for [`{owner}::{name}`].");
        quote! {
            #[doc = #doc]
            #[doc = ""]
            #[doc = " # Safety"]
            #[doc = #safety]
            unsafe fn #hook(&self, inner: &dyn #owner, #(#parameters),*) #output { unsafe { #call } }
        }
    } else {
        quote! {
            #[doc = #doc]
            fn #hook(&self, inner: &dyn #owner, #(#parameters),*) #output { #call }
        }
    }
}

fn output(answer: &Answer) -> TokenStream {
    match answer {
        Answer::Nothing => quote!(),
        Answer::Plain(ty) => quote!(-> #ty),
        Answer::Fallible(ty) => quote!(-> Result<#ty>),
        Answer::Family(family) => quote!(-> std::result::Result<&dyn #family, Unsupported>),
    }
}

fn implementation(contract: &Contract, of: &Trait) -> TokenStream {
    let Trait { name, unsafety, .. } = of;
    let methods = of.methods.iter().map(|method| forward(contract, of, method));
    quote! {
        #unsafety impl<H: Hook + ?Sized> #name for Interposed<H> { #(#methods)* }
    }
}

fn forward(contract: &Contract, of: &Trait, method: &Method) -> TokenStream {
    let name = &method.name;
    let hook = hook_name(contract, of, method);
    let output = output(&method.answer);
    let parameters = &method.arguments;
    if let Answer::Family(_) = &method.answer {
        return quote! {
            fn #name(&self) #output {
                Hook::#hook(self.hook(), &*self.inner)?;
                Ok(self)
            }
        };
    }
    let enter = matches!(method.answer, Answer::Fallible(_)).then(|| {
        let method = format!("{}::{name}", of.name);
        quote!(Hook::enter(self.hook(), #method)?;)
    });
    let (family, inner) = match &of.accessor {
        None => (None, quote!(&*self.inner)),
        Some(accessor) => {
            let accessor = format_ident!("{accessor}_family");
            (Some(quote!(let inner = Hook::#accessor(self.hook(), &*self.inner)?;)), quote!(inner))
        }
    };
    let arguments = method.argument_names();
    let call = quote!(Hook::#hook(self.hook(), #inner, #(#arguments),*));
    let (marker, call) =
        if method.is_unsafe { (Some(quote!(unsafe)), quote!(unsafe { #call })) } else { (None, call) };
    quote! {
        #marker fn #name(&self, #(#parameters),*) #output { #enter #family #call }
    }
}
