//! `granule.h`, the header of the C ABI, from the sources of `crates/granule-capi` and its `cbindgen.toml`.
//!
//! Modules stand in the header in the order in which they are named, each before those within it.

use crate::generated::syntax;
use crate::process::{files, root};
use anyhow::{Context, Result};
use cbindgen::{Builder, Config};
use std::path::{Path, PathBuf};

const CRATE: &str = "crates/granule-capi";
const HEADER: &str = "crates/granule-capi/include/granule.h";

pub(crate) fn run(check: bool) -> Result<()> {
    files::settle(HEADER, &generate(&root().join(CRATE))?, check, "header")
}

fn generate(folder: &Path) -> Result<String> {
    let config = Config::from_file(folder.join("cbindgen.toml")).map_err(anyhow::Error::msg)?;
    let mut builder = Builder::new().with_config(config);
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

/// The files of the public modules that the file `name` of `folder` names, in its order, each with those within it.
fn modules(folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let file = folder.join(name);
    let within = if name == "lib.rs" { folder.to_owned() } else { file.with_extension("") };
    let mut found = Vec::new();
    for item in syntax(&file)?.items {
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
    use super::{CRATE, generate, root, run};

    #[test]
    fn the_header_follows_from_its_sources() {
        run(true).unwrap();
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
