//! C declarations made anew from headers: bindgen with fixed flags, then a table of function pointers.
//!
//! The results are in the tree, so that a build needs neither libclang nor a vendor's headers. Of a vendor's header
//! only bare declarations are taken; its comments stay where they are.

mod compare;
mod headers;
mod table;

use crate::process::{files, root, rustfmt};
use anyhow::{Context, Result, bail};
use headers::Headers;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// An include folder: it has hip/hip_runtime_api.h, or cuda.h
    #[arg(long)]
    headers: PathBuf,
    /// Only compare with what is in the tree
    #[arg(long)]
    check: bool,
    /// Whose declarations to make
    #[arg(long, value_enum, default_value_t = Api::Hip)]
    api: Api,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Api {
    /// The HIP runtime, into crates/granule-hip-sys
    Hip,
    /// The CUDA driver, into crates/stand-ins/granule-lookalike-cuda
    Cuda,
}

const HIP: &str = "crates/granule-hip-sys";
const CUDA: &str = "crates/stand-ins/granule-lookalike-cuda";

/// Which declarations are taken: of HIP what the crate's `bindgen.toml` says, which explains its lists; of CUDA what the simulated
/// driver names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Selection {
    defines: Vec<String>,
    types: Vec<String>,
    constants: Vec<String>,
    functions: Vec<String>,
}

impl Selection {
    fn of(api: Api) -> Result<Self> {
        if api == Api::Cuda {
            let words = words_of_driver()?;
            let names = words.iter().filter_map(|word| word.strip_suffix("_t"));
            return Ok(Self {
                defines: Vec::new(),
                types: ["^CU.*_flags(_enum)?$", "^CUmemorytype(_enum)?$"].map(str::to_owned).to_vec(),
                constants: vec!["^CU.*".to_owned()],
                functions: names.filter(|name| name.starts_with("cu")).map(str::to_owned).collect(),
            });
        }
        let file = format!("{HIP}/bindgen.toml");
        toml::from_str(&files::read(&file)?).context(file)
    }
}

/// The words of the simulated CUDA driver and of its tests: what they name of the header is declared.
fn words_of_driver() -> Result<BTreeSet<String>> {
    let mut words = BTreeSet::new();
    for folder in [format!("{CUDA}/src"), "tests/lookalike-cuda/tests".to_owned()] {
        for file in files::below(&root().join(folder))? {
            if !file.ends_with("header.rs") {
                let text = files::read(&file)?;
                let is_part = |letter: char| letter == '_' || letter.is_alphanumeric();
                words.extend(text.split(|letter| !is_part(letter)).map(str::to_owned));
            }
        }
    }
    Ok(words)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let headers = Headers::find(options.api, &options.headers)?;
    let selection = Selection::of(options.api)?;
    let made = make(&headers, &selection)?;
    let settle = |made: &str, path: &str| {
        files::settle(path, made, options.check, "bindgen without --check, on the same headers")
    };
    let abi6 = format!("{HIP}/src/abi6.rs");
    match (options.api, headers.major) {
        (Api::Hip, 6) => settle(&made, &abi6),
        // HIP 7 kept 6's layouts: its module is an overlay written by hand, so there is no file to make.
        (Api::Hip, 7) => {
            compare::overlay(&made, &files::read(&abi6)?, &files::read(format!("{HIP}/src/abi7.rs"))?)
        }
        (Api::Hip, major) => {
            bail!("HIP {major} is a generation this project does not know (6 and 7 are known)")
        }
        (Api::Cuda, _) => settle(&made, &format!("{CUDA}/src/header.rs")),
    }
}

/// Compares with every include folder that `GRANULE_HIP_HEADERS` and `GRANULE_CUDA_HEADERS` list; says so where
/// there is none.
pub(crate) fn check_where_headers_are() -> Result<()> {
    for (variable, api) in [("GRANULE_HIP_HEADERS", Api::Hip), ("GRANULE_CUDA_HEADERS", Api::Cuda)] {
        let Some(folders) = std::env::var_os(variable) else {
            println!(
                "skipped: declarations are not compared with headers ({variable} lists no include folder)"
            );
            continue;
        };
        for headers in std::env::split_paths(&folders) {
            run(&Options { headers, check: true, api })?;
        }
    }
    Ok(())
}

/// The text of the module for these headers.
fn make(headers: &Headers, selection: &Selection) -> Result<String> {
    let declared = declarations(headers, selection)?;
    let Headers { title, version, api, .. } = headers;
    let (api, file) = match api {
        Api::Hip => ("hip", table::from_extern_blocks(declared, true)?),
        // The driver's own table is that of its entry points.
        Api::Cuda => {
            let declared = table::from_extern_blocks(declared, false)?;
            ("cuda", table::of_words(declared, words_of_driver()?))
        }
    };
    rustfmt(&format!(
        "//! {title} declarations. Do not edit: made from {title} {version}'s header by\n\
         //! `cargo xtask bindgen --api {api} --headers <include folder>`.\n\n{}",
        table::text(&file)
    ))
}

/// What bindgen makes of a header.
fn declarations(headers: &Headers, selection: &Selection) -> Result<syn::File> {
    let mut builder = ::bindgen::Builder::default()
        .header(headers.file.to_string_lossy())
        .clang_args(["-x", "c", "-std=c11"])
        .clang_arg(format!("-I{}", headers.folder.display()))
        .clang_args(&selection.defines)
        // A driver may answer with a number that its header did not have yet: constants, never Rust enums.
        .default_enum_style(::bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .ctypes_prefix("core::ffi")
        .generate_comments(false)
        .disable_header_comment()
        // Bit fields nobody here reads; as plain bytes they need no accessor code.
        .opaque_type("^hipDeviceArch_t$")
        // What a launch or a node asks beyond its stream; no one here reads it.
        .opaque_type("^CU(launchAttribute|graphNodeParams|tensorMap)(_st)?$")
        // The CUDA ones cross a boundary: the backend has other declarations of them, and the rig for PyTorch is in C++.
        .layout_tests(headers.api == Api::Hip)
        .sort_semantically(true)
        .merge_extern_blocks(true)
        .formatter(::bindgen::Formatter::None);
    for name in &selection.functions {
        builder = builder.allowlist_function(format!("^{name}$"));
    }
    for pattern in &selection.types {
        builder = builder.allowlist_type(pattern);
    }
    for pattern in &selection.constants {
        builder = builder.allowlist_var(pattern);
    }
    let bindings = builder.generate().with_context(|| format!("bindgen on {}", headers.file.display()))?;
    Ok(syn::parse_str(&bindings.to_string())?)
}

#[cfg(test)]
mod tests {
    use super::{Api, HIP, Selection};
    use crate::process::files;
    use std::collections::BTreeSet;

    /// Where no headers are at hand, too.
    #[test]
    fn the_tree_declares_what_is_listed() {
        let listed = Selection::of(Api::Hip).unwrap().functions;
        let listed: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
        let text = files::read(format!("{HIP}/src/abi6.rs")).unwrap();
        let (_, names) = text.split_once("pub const NAMES: &[&str] = &[").unwrap();
        let declared = names.split(']').next().unwrap().split('"').skip(1).step_by(2).collect();
        let odd: Vec<_> = listed.symmetric_difference(&declared).collect();
        assert!(odd.is_empty(), "{HIP} and its list differ: {odd:?}");
    }
}
