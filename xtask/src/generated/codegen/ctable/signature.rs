//! How a method of the contract looks in C: its parameters, and what Granule does before and after the call.

use crate::generated::codegen::model::{Answer, Method};
use anyhow::{Result, bail};
use heck::ToSnakeCase;
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::Type;

/// A parameter of a C function.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: Ident,
    pub(super) rust: TokenStream,
    pub(super) c: String,
}

/// A method as a C function.
#[derive(Debug, Default)]
pub(super) struct Signature {
    /// After the context.
    pub(super) parameters: Vec<Parameter>,
    /// Checks of the contract's rules, and conversions; before the call.
    pub(super) prepare: Vec<TokenStream>,
    /// What stands for each parameter in the call.
    pub(super) arguments: Vec<TokenStream>,
    /// The device named in errors.
    pub(super) device: Option<TokenStream>,
    /// The host function that travels with the call.
    pub(super) host_function: Option<Ident>,
}

/// Enums that travel as their number.
const ENUMS: [&str; 5] = ["Attribute", "CopyKind", "Granularity", "HandleType", "CaptureMode"];

impl Signature {
    pub(super) fn of(method: &Method) -> Result<Self> {
        let mut signature = Self::default();
        for argument in &method.arguments {
            signature.take(&argument.name, &argument.ty)?;
        }
        if let Answer::Fallible(ty) = &method.answer {
            signature.give(ty)?;
        }
        Ok(signature)
    }

    fn push(&mut self, name: &Ident, rust: TokenStream, c: impl Into<String>, argument: TokenStream) {
        self.parameters.push(Parameter { name: name.clone(), rust, c: c.into() });
        self.arguments.push(argument);
    }

    fn take(&mut self, name: &Ident, ty: &Type) -> Result<()> {
        let text = spelled(ty);
        match text.as_str() {
            "DeviceIndex" => {
                self.device.get_or_insert(quote!(#name));
                self.push(name, quote!(u16), "granule_backend_device ", quote!(call.device(#name)?));
            }
            "DevicePtr" => self.push(name, quote!(u64), "granule_backend_address ", quote!(#name.0)),
            "u64" if name == "bytes" => {
                self.push(name, quote!(u64), "uint64_t ", quote!(call.size(#name)?));
            }
            "u64" | "u32" | "u8" | "i32" => {
                let number: Ident = format_ident!("{text}");
                let c = if text == "i32" { "int32_t ".to_owned() } else { format!("uint{}_t ", &text[1..]) };
                self.push(name, quote!(#number), c, quote!(#name));
            }
            "Stream" | "Event" => {
                self.device.get_or_insert(quote!(#name.device));
                let raw = format_ident!("Raw{text}");
                let check = format_ident!("{}", text.to_snake_case());
                let c = format!("granule_backend_{} ", text.to_snake_case());
                self.prepare.push(quote!(let #name = call.#check(#name)?;));
                self.push(name, quote!(#raw), c, quote!(#name));
            }
            "PhysicalHandle" | "Graph" => {
                let c = format!("granule_backend_{} ", text.to_snake_case());
                self.push(name, quote!(u64), c, quote!(call.handle(#name.raw, #name.backend)?));
            }
            "CaptureNode" => self.push(name, quote!(u64), "granule_backend_capture_node ", quote!(#name.0)),
            "EventFlags" | "HostFlags" => self.push(name, quote!(u32), "uint32_t ", quote!(#name.bits())),
            "Access" => self.push(name, quote!(i32), "granule_backend_access ", quote!(#name as i32)),
            _ if ENUMS.contains(&text.as_str()) => {
                let c = format!("granule_backend_{} ", text.to_snake_case());
                self.push(name, quote!(i32), c, quote!(#name as i32));
            }
            _ => return self.take_several(name, &text),
        }
        Ok(())
    }

    /// What is more than one value, or lies in memory.
    fn take_several(&mut self, name: &Ident, text: &str) -> Result<()> {
        match text {
            "&IpcMemoryHandle" => {
                let pointer = quote!(*const RawIpcHandle);
                self.prepare.push(quote!(let #name = RawIpcHandle { bytes: #name.0 };));
                self.push(name, pointer, "const granule_backend_ipc_handle *", quote!(&raw const #name));
            }
            "&ShareableHandle" => {
                self.prepare.push(quote!(let #name = RawShareableHandle::lent(#name);));
                let c = "const granule_backend_shareable_handle *";
                self.push(name, quote!(*const RawShareableHandle), c, quote!(&raw const #name));
            }
            "&[DeviceIndex]" => {
                let count = format_ident!("{}_count", name.to_string().trim_end_matches('s'));
                self.prepare.push(quote!(let #name = call.devices(#name)?;));
                self.push(name, quote!(*const u16), "const granule_backend_device *", quote!(#name.as_ptr()));
                self.push(&count, quote!(u64), "uint64_t ", quote!(#name.len() as u64));
            }
            "(DeviceIndex,DevicePtr)" => {
                let device = format_ident!("{name}_device");
                self.push(&device, quote!(u16), "granule_backend_device ", quote!(call.device(#name.0)?));
                self.push(name, quote!(u64), "granule_backend_address ", quote!(#name.1.0));
            }
            "HostFunction" => {
                self.host_function = Some(name.clone());
                let argument = format_ident!("argument");
                self.push(name, quote!(HostCallback), "granule_backend_host_function ", quote!(run_on_host));
                self.push(&argument, quote!(*mut c_void), "void *", quote!(work.argument()));
            }
            _ => bail!("the C table has no form for an argument of type {text}"),
        }
        Ok(())
    }

    fn give(&mut self, ty: &Type) -> Result<()> {
        let answer = format_ident!("answer");
        let text = spelled(ty);
        let c = match text.as_str() {
            "()" | "Readiness" => return Ok(()),
            "Vec<CaptureNode>" => {
                self.push(&answer, quote!(*mut u64), "granule_backend_capture_node *", quote!(nodes));
                self.push(&format_ident!("capacity"), quote!(u64), "uint64_t ", quote!(capacity));
                self.push(&format_ident!("count"), quote!(*mut u64), "uint64_t *", quote!(count));
                return Ok(());
            }
            "Stream" | "Event" | "PhysicalHandle" | "Graph" => {
                self.push(&answer, quote!(*mut u64), "uint64_t *", quote!(&raw mut answer));
                return Ok(());
            }
            "u16" | "u64" => format!("uint{}_t *", &text[1..]),
            "i64" => "int64_t *".to_owned(),
            "f32" => "float *".to_owned(),
            "bool" => "bool *".to_owned(),
            "DeviceIndex" => "granule_backend_device *".to_owned(),
            "DevicePtr" => "granule_backend_address *".to_owned(),
            "IpcMemoryHandle" => "granule_backend_ipc_handle *".to_owned(),
            _ => format!("granule_backend_{} *", text.to_snake_case()),
        };
        self.push(&answer, quote!(*mut <#ty as Value>::Raw), c, quote!(&raw mut answer));
        Ok(())
    }
}

/// A type without spaces.
pub(super) fn spelled(ty: &Type) -> String {
    quote!(#ty).to_string().replace(' ', "")
}
