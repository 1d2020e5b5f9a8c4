//! Emits the masquerade's forwarding: labels of handles flip, errors are reported under CUDA's names.

use super::model::{Answer, Contract, Method, Trait};
use super::text;
use anyhow::{Result, bail};
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use std::collections::BTreeMap;
use syn::Type;

/// Types that carry a backend's id.
const HANDLES: [&str; 4] = ["Stream", "Event", "PhysicalHandle", "Graph"];

/// Methods that the masquerade answers itself, as `own_...`.
const OWN: [&str; 6] = ["id", "kind", "name", "label", "error_name", "dropped"];

/// Every method of the contract, forwarded.
pub(super) fn emit_forward(contract: &Contract) -> Result<String> {
    let mut implementations = Vec::new();
    for of in &contract.traits {
        let Trait { name, unsafety, .. } = of;
        let methods = of.methods.iter().map(|method| forward(of, method)).collect::<Result<Vec<_>>>()?;
        implementations.push(quote!(#unsafety impl #name for Masquerade { #(#methods)* }));
    }
    let code = quote! {
        use crate::masquerade::{Masquerade, answer, family};
        use backend_api::*;
        use backend_api::types::*;

        #(#implementations)*
    };
    let rules = [
        "I1 to I4 are the inner backend's; labels touch neither memory nor order.",
        "rules 1 to 3 are the caller's promise, passed on; only labels of handles changed.",
    ];
    text::file("Every method of the contract, forwarded to the backend behind.", code, Some(rules))
}

/// The table by which errors name functions.
pub(super) fn emit_calls(contract: &Contract) -> Result<String> {
    let (hip, cuda): (Vec<_>, Vec<_>) = calls(contract)?.into_iter().unzip();
    let code = quote! {
        /// Functions of HIP's and CUDA's that the contract names for the same thing.
        pub(crate) const CALLS: &[(&str, &str)] = &[#((#hip, #cuda)),*];
    };
    text::file("HIP's functions and CUDA's.", code, None)
}

/// HIP's functions with CUDA's.
fn calls(contract: &Contract) -> Result<BTreeMap<String, String>> {
    let mut calls = BTreeMap::new();
    for (of, method) in contract.methods() {
        for (hip, cuda) in method.hip.iter().zip(cuda_functions(method)) {
            let before = calls.insert(hip.clone(), cuda.clone());
            if before.is_some_and(|before| before != cuda) {
                bail!("{}::{} gives {hip} another CUDA name than a method before", of.name, method.name);
            }
        }
    }
    Ok(calls)
}

/// The CUDA functions that a method stands for. The contract names one of a family of copies, which would be
/// the wrong one for most errors: CUDA has a function for copies of any direction.
fn cuda_functions(method: &Method) -> Vec<String> {
    let any_direction = |name: &str| name.replace("HtoD", "");
    method.cuda.iter().map(|name| any_direction(name)).collect()
}

fn forward(of: &Trait, method: &Method) -> Result<TokenStream> {
    let name = &method.name;
    let parameters = &method.arguments;
    let arguments: Vec<&Ident> = method.argument_names().collect();
    if of.accessor.is_none() && OWN.iter().any(|own| name == own) {
        let own = format_ident!("own_{name}");
        let Answer::Plain(ty) = &method.answer else { bail!("{name} can fail or is no value") };
        return Ok(quote!(fn #name(&self, #(#parameters),*) -> #ty { self.#own(#(#arguments),*) }));
    }
    // A method without a CUDA function reports its own name.
    let call = cuda_functions(method).into_iter().next().unwrap_or_else(|| name.to_string());
    let mut inward = Vec::new();
    for argument in &method.arguments {
        if is_handle(&argument.ty)? {
            let name = &argument.name;
            inward.push(quote!(let #name = self.inward(#call, #name)?;));
        }
    }
    let (offered, inner) = match &of.accessor {
        None => (None, quote!(self.inner)),
        Some(accessor) => (Some(quote!(let inner = family(self.inner.#accessor())?;)), quote!(inner)),
    };
    let mut inner_call = quote!(#inner.#name(#(#arguments),*));
    let marker = method.is_unsafe.then(|| quote!(unsafe));
    if method.is_unsafe {
        inner_call = quote!(unsafe { #inner_call });
    }
    Ok(match &method.answer {
        Answer::Family(trait_name) => quote! {
            fn #name(&self) -> std::result::Result<&dyn #trait_name, Unsupported> {
                family(#inner_call)?;
                Ok(self)
            }
        },
        Answer::Nothing | Answer::Plain(_) if !inward.is_empty() || offered.is_some() || method.is_unsafe => {
            bail!("{}::{name} cannot report a wrong label or an absent family", of.name)
        }
        Answer::Nothing => quote!(fn #name(&self, #(#parameters),*) { #inner_call; }),
        Answer::Plain(ty) => {
            let call = if is_handle(ty)? { quote!(self.outward(#inner_call)) } else { inner_call };
            quote!(fn #name(&self, #(#parameters),*) -> #ty { #call })
        }
        Answer::Fallible(ty) => {
            let outward = is_handle(ty)?.then(|| quote!(.map(|handle| self.outward(handle))));
            quote! {
                #marker fn #name(&self, #(#parameters),*) -> Result<#ty> {
                    #(#inward)*
                    #offered
                    let result = #inner_call;
                    answer(#call, result)#outward
                }
            }
        }
    })
}

/// Whether the type is a handle. A handle inside another type would slip through unlabelled: an error.
fn is_handle(ty: &Type) -> Result<bool> {
    if let Type::Path(path) = ty
        && let Some(name) = path.path.get_ident()
        && HANDLES.iter().any(|handle| name == handle)
    {
        return Ok(true);
    }
    let text = ty.to_token_stream().to_string();
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    if words.any(|word| HANDLES.contains(&word)) {
        bail!("`{text}` holds a handle; the generator relabels handles that are passed by themselves only");
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::{Contract, calls, is_handle};

    #[test]
    fn a_handle_inside_another_type_is_refused() {
        assert!(is_handle(&syn::parse_quote!(Stream)).unwrap());
        assert!(!is_handle(&syn::parse_quote!(HandleType)).unwrap());
        for hidden in ["&[Stream]", "Option<Event>", "(DeviceIndex, Graph)", "Vec<PhysicalHandle>"] {
            assert!(is_handle(&syn::parse_str(hidden).unwrap()).is_err(), "{hidden}");
        }
    }

    #[test]
    fn functions_pair_as_the_contract_names_them() {
        let contract = Contract::read().unwrap();
        let calls = calls(&contract).unwrap();
        assert_eq!(calls["hipMalloc"], "cuMemAlloc");
        assert_eq!(calls["hipGraphLaunch"], "cuGraphLaunch");
        assert_eq!(calls["hipMemcpyAsync"], "cuMemcpyAsync");
        assert!(calls.len() > 40, "{}", calls.len());
    }
}
