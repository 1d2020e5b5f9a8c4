//! `granule.h`, the header of the C ABI, from the sources of `crates/granule-capi`.
//!
//! Modules stand in the header in the order in which they are named, each before those within it.

use crate::process::{files, root};
use anyhow::{Context, Result};
use cbindgen::{Builder, Config, DocumentationStyle, ExportConfig, Language, Style};
use std::path::{Path, PathBuf};

/// What is to be done.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Change nothing; fail where the header is not what would be written
    #[arg(long)]
    pub(crate) check: bool,
}

const CRATE: &str = "crates/granule-capi";
const HEADER: &str = "crates/granule-capi/include/granule.h";

const HEAD: &str = "\
/* Granule's C ABI.
 *
 * Generated from crates/granule-capi by `cargo xtask header`. Do not edit.
 *
 *  - A function that can fail returns a granule_status. Answers are written through pointers, where it is GRANULE_OK and only then.
 *    granule_last_error() is the text of the calling thread's last failure.
 *  - Sizes are bytes, times are microseconds since the Unix epoch, devices are numbered from 0. A stream is the driver's handle as a
 *    number (cudaStream_t, hipStream_t); 0 is the device's default stream.
 *  - A pointer is null, or points to what its type says for the length of the call (a handle: until it is destroyed), and nobody
 *    else writes there meanwhile. Null where something is needed is GRANULE_INVALID_ARGUMENT. Addresses of device memory are
 *    numbers: any value is safe to give.
 *  - A struct that begins with `uint32_t size` may grow: the caller sets the size to sizeof(it), and no more than that is read or
 *    written. An older, shorter struct keeps working; what it lacks counts as zero.
 *  - Callbacks get their `user` back, may run on any thread, and must not unwind (C++: catch what is thrown, else the process ends). Where there is a
 *    `drop`, it is called once, when the library lets go of `user`; what has none is kept for ever.
 *  - Callbacks may call the library, unless it says otherwise: while a thread is in a callback of one kind, what it asks of the same
 *    allocator is done without callbacks of that kind.
 *  - Texts are NUL-terminated UTF-8. Texts and bytes that the library makes are granule_bytes, freed with granule_bytes_free.
 *  - Any thread may call any function at any time, but for those that end a handle: to end it while another thread still uses it is
 *    undefined. After such a call the handle is gone. To give it again is GRANULE_INVALID_ARGUMENT (functions without a status give
 *    null or 0), until 64 others of its type were ended: then it may be another one's.
 *  - No function is async-signal-safe: one that is called from a signal handler may wait for ever for a lock that its own thread
 *    holds.
 *  - What the library has to say goes to the standard error stream; the variable GRANULE_LOG (off, error, warn, info, debug) says
 *    how much. It is warn by itself.
 *  - The header is C99 and C++17. granule_backend.h may be included beside it, in any order.
 */
";

/// A name and no more: C99 lets a type be defined once, and granule_backend.h may be included before or after.
const TABLE: &str = "
/** A vendor's backend: see granule_backend.h. */
struct granule_backend_table;";

pub(crate) fn run(options: &Options) -> Result<()> {
    files::settle(HEADER, &generate(&root().join(CRATE))?, options.check, "header")
}

fn generate(folder: &Path) -> Result<String> {
    let mut builder = Builder::new().with_config(config());
    for module in modules(&folder.join("src"), "lib.rs")? {
        builder = builder.with_src(module);
    }
    let bindings = builder.generate().context("cbindgen could not read the sources of the C ABI")?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    Ok(shortened(&String::from_utf8(text)?))
}

/// Puts comments of one line on one line.
fn shortened(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let indent = line.trim_end_matches("/**");
        let comment = lines.next_if(|next| line.trim() == "/**" && next.trim_start().starts_with("* "));
        match comment {
            Some(said) if lines.next_if(|next| next.trim() == "*/").is_some() => {
                short.push_str(&format!("{indent}/** {} */\n", said.trim().trim_start_matches("* ")));
            }
            Some(said) => short.push_str(&format!("{line}\n{said}\n")),
            None => short.push_str(&format!("{line}\n")),
        }
    }
    short
}

fn config() -> Config {
    Config {
        language: Language::C,
        cpp_compat: true,
        header: Some(HEAD.trim_end().to_owned()),
        include_guard: Some("GRANULE_H".to_owned()),
        no_includes: true,
        after_includes: Some(TABLE.to_owned()),
        export: ExportConfig {
            // Its own header defines it.
            exclude: vec!["granule_backend_table".to_owned()],
            rename: [("granule_backend_table".to_owned(), "struct granule_backend_table".to_owned())].into(),
            ..ExportConfig::default()
        },
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        style: Style::Both,
        usize_is_size_t: true,
        line_length: 110,
        tab_width: 4,
        documentation: true,
        documentation_style: DocumentationStyle::Doxy,
        ..Config::default()
    }
}

/// The files of the public modules that the file `name` of `folder` names, in its order, each with those within it.
fn modules(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let file = folder.join(name);
    let text = files::read(&file)?;
    let within = if name == "lib.rs" { folder.to_owned() } else { file.with_extension("") };
    let mut found = Vec::new();
    for item in syn::parse_file(&text)?.items {
        if let syn::Item::Mod(module) = item
            && matches!(module.vis, syn::Visibility::Public(_))
        {
            let name = format!("{}.rs", module.ident);
            found.push(within.join(&name));
            found.extend(modules(&within, &name)?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{CRATE, Options, generate, root, run};

    #[test]
    fn the_header_follows_from_its_sources() {
        run(&Options { check: true }).unwrap();
    }

    #[test]
    fn what_is_said_in_the_sources_is_said_in_the_header() {
        let header = generate(&root().join(CRATE)).unwrap();
        for said in
            ["#define GRANULE_OUT_OF_MEMORY 1", "Takes memory back, in the order of its stream's work."]
        {
            assert!(header.contains(said), "{said}");
        }
        assert!(!header.contains("# Safety"), "what callers promise is said once, at the head");
    }
}
