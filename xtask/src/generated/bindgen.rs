//! C declarations made anew from headers: bindgen with fixed flags, then a table of function pointers.
//!
//! The results are in the tree, so that a build needs neither libclang nor a vendor's headers. Of a vendor's header
//! only bare declarations are taken; its comments stay where they are.

mod compare;
mod headers;
mod names;
mod table;

use crate::process;
use anyhow::{Context, Result, bail};
use headers::Headers;
use names::Selection;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

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

pub(crate) fn run(options: &Options) -> Result<()> {
    let headers = Headers::find(options.api, &options.headers)?;
    let made = make(&headers)?;
    match (options.api, headers.major) {
        (Api::Hip, 6) => settle(&made, "crates/granule-hip-sys/src/abi6.rs", options.check),
        // HIP 7 kept 6's layouts: its module is an overlay written by hand, so there is no file to make.
        (Api::Hip, 7) => {
            let read =
                |path: &str| -> Result<String> { Ok(std::fs::read_to_string(process::root().join(path))?) };
            let (six, overlay) =
                (read("crates/granule-hip-sys/src/abi6.rs")?, read("crates/granule-hip-sys/src/abi7.rs")?);
            compare::overlay(&made, &six, &overlay)
        }
        (Api::Hip, major) => {
            bail!("HIP {major} is a generation this project does not know (6 and 7 are known)")
        }
        (Api::Cuda, _) => {
            settle(&made, "crates/stand-ins/granule-lookalike-cuda/src/header.rs", options.check)
        }
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
fn make(headers: &Headers) -> Result<String> {
    let declared = syn::parse_str(&declarations(headers, &Selection::of(headers.api)?)?)?;
    let Headers { title, version, api, .. } = headers;
    let (api, file) = match api {
        Api::Hip => ("hip", table::from_extern_blocks(declared, true)?),
        // The driver's own table is that of its entry points.
        Api::Cuda => {
            let declared = table::from_extern_blocks(declared, false)?;
            ("cuda", table::of_words(declared, names::words_of_driver()?))
        }
    };
    let text = format!(
        "//! {title} declarations. Do not edit: made from {title} {version}'s header by\n\
         //! `cargo xtask bindgen --api {api} --headers <include folder>`.\n\n{}",
        table::text(&file)
    );
    format(&text)
}

/// What bindgen makes of a header.
fn declarations(headers: &Headers, selection: &Selection) -> Result<String> {
    let mut builder = ::bindgen::Builder::default()
        .header(headers.file.to_string_lossy())
        .clang_args(["-x", "c", "-std=c11"])
        .clang_arg(format!("-I{}", headers.folder.display()))
        .clang_args(selection.defines)
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
        // The CUDA ones cross a boundary in every test of the backend, which has another declaration of them.
        .layout_tests(headers.api == Api::Hip)
        .sort_semantically(true)
        .merge_extern_blocks(true)
        .formatter(::bindgen::Formatter::None);
    for name in &selection.functions {
        builder = builder.allowlist_function(format!("^{name}$"));
    }
    for pattern in selection.types {
        builder = builder.allowlist_type(pattern);
    }
    for pattern in selection.constants {
        builder = builder.allowlist_var(pattern);
    }
    let bindings = builder.generate().with_context(|| format!("bindgen on {}", headers.file.display()))?;
    Ok(bindings.to_string())
}

/// rustfmt's form, so that `cargo fmt --check` has nothing to say.
fn format(text: &str) -> Result<String> {
    let mut child = process::command("rustfmt")
        .args(["--edition", "2024", "--emit", "stdout", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("could not start rustfmt")?;
    // rustfmt reads all of its input before it writes, so this cannot block on a full pipe.
    child.stdin.take().context("rustfmt has no input")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("rustfmt ended with {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Writes the file, or says that it is not what the headers give.
fn settle(made: &str, path: &str, check: bool) -> Result<()> {
    let file = process::root().join(path);
    if !check {
        return std::fs::write(&file, made).with_context(|| format!("could not write {path}"));
    }
    let kept = std::fs::read_to_string(&file).with_context(|| format!("could not read {path}"))?;
    match first_difference(&kept, made) {
        None => Ok(()),
        Some((line, kept, made)) => bail!(
            "{path} is not what the headers give; make it anew with `cargo xtask bindgen` without --check\n\
             line {line}\n  in the tree:      {kept}\n  from the headers: {made}"
        ),
    }
}

fn first_difference<'a>(kept: &'a str, made: &'a str) -> Option<(usize, &'a str, &'a str)> {
    if kept == made {
        return None;
    }
    let (mut kept, mut made) = (kept.lines(), made.lines());
    (1..).find_map(|line| match (kept.next(), made.next()) {
        (None, None) => Some((line, "(line ends differ)", "(line ends differ)")),
        (a, b) if a == b => None,
        (a, b) => Some((line, a.unwrap_or("(end)"), b.unwrap_or("(end)"))),
    })
}
