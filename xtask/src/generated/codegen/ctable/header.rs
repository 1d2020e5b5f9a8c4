//! The C header.

use super::values::{self, Entry, Numbers, Values};
use super::{Function, around_texts, functions};
use crate::generated::codegen::model::{Answer, Contract, documentation};
use crate::generated::codegen::text;
use crate::process::root;
use anyhow::{Result, bail};
use heck::{ToShoutySnakeCase, ToSnakeCase};
use quote::quote;
use std::fmt::Write;

const OPENING: &str = "\
/* A Granule backend as a table of C functions.
 *
 * Generated from the `Backend` trait by `cargo xtask codegen`. Do not edit.
 *
 * Fill a `granule_backend_table`: `size`, `version`, `context`, and every function of the required part. The
 * rest may stay NULL: Granule derives some functions, and leaves out an optional family that is not complete.
 * The table is copied; `context` and the functions stay valid for the life of the process.
 *
 * Rules for every function (the numbers are the contract's; comments below refer to them)
 *
 * 1. Handles: Granule passes only those that this backend made, and no destroyed one.
 * 2. Addresses of queued work lie in memory that stays allocated until the stream has passed the work.
 * 3. Frees name what was handed out, once, when no queued work uses it. Granule keeps null to itself.
 * 4. Sizes are bytes, and never 0: Granule refuses 0 itself. It also refuses devices that do not exist.
 * 5. The current device is per thread. A call leaves it as it found it, also on error.
 * 6. A failed call has changed nothing. GRANULE_BACKEND_NOT_READY is the answer of a query, not a failure.
 * 7. Any thread may call any function at any time.
 * 8. GRANULE_BACKEND_DEVICE_LOST repeats on every later call about that device.
 * 9. There are 256 devices at most.
 *
 * The first argument is the table's `context`. `answer` is written where the function returns GRANULE_BACKEND_OK, and
 * only then. Memory handed out is aligned to 512 bytes, at least as large as asked, nobody else's, and below address
 * 2^57. Nothing unwinds out of a function (C++ exceptions stay inside).
 *
 * A driver error number and a text for a failure are optional: see `last_error`. So are `name` and `label`, by which
 * users know the backend.
 *
 * All names begin with granule_backend_ or GRANULE_BACKEND_, so that granule.h may be included beside this header. Both
 * are C99 and C++11.
 */
#ifndef GRANULE_BACKEND_H
#define GRANULE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

/* The version of the table below; goes into its field `version`. */
#define GRANULE_BACKEND_VERSION 2

/* A device, counted from 0. */
typedef uint16_t granule_backend_device;
/* An address in device memory, or in page-locked host memory. 0 is none. */
typedef uint64_t granule_backend_address;
/* A driver's handle to physical memory, to a graph, to a node of a graph. */
typedef uint64_t granule_backend_physical_handle;
typedef uint64_t granule_backend_graph;
typedef uint64_t granule_backend_capture_node;
/* Work for the host. Call it once, with its argument, from any thread; never after a failed launch. */
typedef void (*granule_backend_host_function)(void *argument);

/* How a call ended. */
typedef int32_t granule_backend_status;
enum {
    /* It worked. */
    GRANULE_BACKEND_OK = 0,
    /* The answer of a query: something is still running. */
    GRANULE_BACKEND_NOT_READY = 1,
";

const BEFORE_FUNCTIONS: &str = "\
/* The table. Functions that are NULL at its end may be left out: `size` says where it ends. */
typedef struct granule_backend_table {
    /* sizeof(granule_backend_table). */
    uint64_t size;
    /* GRANULE_BACKEND_VERSION. */
    uint64_t version;
    /* First argument of every function. */
    void *context;
    /* What the driver said of the calling thread's last failure: its number, and a text of at most `capacity`
     * bytes with its 0. Asked right after a failure. May be NULL. */
    void (*last_error)(void *context, int32_t *code, char *text, uint64_t capacity);
";

const TEXTS: &str = "
    /* ---- What users know it by: UTF-8 with its 0, good for the life of the process ------------------ */

    /* A short lower-case name, such as \"npu\": errors, reports and snapshots name the backend so. NULL: \"vendor\". */
    const char *name;
    /* What errors call its devices, as in \"NPU out of memory\". NULL: the name in capitals. */
    const char *label;
";

const CLOSING: &str = "\
} granule_backend_table;

#ifdef __cplusplus
}
#endif

#endif
";

/// The contract's enum that is the status of a call.
const KINDS: &str = "ErrorKind";

/// What C calls the named numbers of the contract, by how its documentation names them.
struct Words(Vec<(String, String)>);

impl Words {
    fn of(values: &Values) -> Self {
        let mut words = Vec::new();
        for numbers in &values.enums {
            for entry in &numbers.entries {
                let name = in_enum(numbers, entry);
                // Kinds of errors go by themselves.
                let kind = (numbers.name == KINDS).then(|| (format!("`{}`", entry.name), name.clone()));
                words.extend(kind);
                words.push((format!("`{}::{}`", numbers.name, entry.name), name));
            }
        }
        for numbers in &values.flags {
            for entry in &numbers.entries {
                let name = in_flags(numbers, entry);
                words.push((format!("`{}`", entry.name), name.clone()));
                words.push((format!("`{}::{}`", numbers.name, entry.name), name));
            }
        }
        Self(words)
    }

    fn translate(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (rust, c)| text.replace(rust, &format!("`{c}`")))
    }
}

/// A number of an enum, in C; kinds of errors have no prefix of their own.
fn in_enum(numbers: &Numbers, entry: &Entry) -> String {
    let entry = entry.name.to_string().to_shouty_snake_case();
    match numbers.name.to_string() {
        kinds if kinds == KINDS => format!("GRANULE_BACKEND_{entry}"),
        name => format!("GRANULE_BACKEND_{}_{entry}", name.to_shouty_snake_case()),
    }
}

/// A flag, in C.
fn in_flags(numbers: &Numbers, entry: &Entry) -> String {
    let prefix = numbers.name.to_string().trim_end_matches('s').to_shouty_snake_case();
    format!("GRANULE_BACKEND_{prefix}_{}", entry.name)
}

pub(crate) fn emit(contract: &Contract) -> Result<String> {
    let values = values::read(&root().join("crates/backend-api/src"))?;
    let words = Words::of(&values);
    let mut out = OPENING.to_owned();
    for numbers in &values.enums {
        if numbers.name == KINDS {
            statuses(&mut out, numbers, &words)?;
        }
    }
    // What no function of the table takes or gives is left out.
    let enums = values.enums.iter().filter(|e| e.name != KINDS && e.name != "Readiness");
    for numbers in enums {
        enumeration(&mut out, numbers, &words)?;
    }
    for numbers in &values.flags {
        flags(&mut out, numbers, &words)?;
    }
    for item in values::structs(&root().join("crates/backend-c/src/values.rs"))? {
        structure(&mut out, &item, &words)?;
    }
    out.push_str(BEFORE_FUNCTIONS);
    let functions = functions(contract)?;
    let (first, appended) = around_texts(&functions);
    members(&mut out, first, &words)?;
    out.push_str(TEXTS);
    members(&mut out, appended, &words)?;
    out.push_str(CLOSING);
    Ok(out)
}

fn members(out: &mut String, functions: &[Function<'_>], words: &Words) -> Result<()> {
    let mut part = String::new();
    for function in functions {
        let here = match (&function.of.accessor, function.derived) {
            (None, None) => "Required".to_owned(),
            (None, Some(_)) => "Derived where NULL".to_owned(),
            (Some(family), _) => format!("Optional family: {}", text::family(family)),
        };
        if here != part {
            writeln!(out, "\n    /* ---- {here} {} */\n", "-".repeat(90_usize.saturating_sub(here.len())))?;
            part = here;
        }
        member(out, function, words)?;
    }
    Ok(())
}

fn statuses(out: &mut String, kinds: &Numbers, words: &Words) -> Result<()> {
    for (number, kind) in kinds.entries.iter().enumerate() {
        comment(out, "    ", &kind.docs, words)?;
        // After OK and NOT_READY.
        writeln!(out, "    {} = {},", in_enum(kinds, kind), number + 2)?;
    }
    out.push_str("};\n\n");
    Ok(())
}

fn enumeration(out: &mut String, numbers: &Numbers, words: &Words) -> Result<()> {
    let name = numbers.name.to_string();
    comment(out, "", &numbers.docs, words)?;
    writeln!(out, "typedef int32_t granule_backend_{};\nenum {{", name.to_snake_case())?;
    for entry in &numbers.entries {
        comment(out, "    ", &entry.docs, words)?;
        writeln!(out, "    {} = {},", in_enum(numbers, entry), entry.number)?;
    }
    out.push_str("};\n\n");
    Ok(())
}

fn flags(out: &mut String, numbers: &Numbers, words: &Words) -> Result<()> {
    comment(out, "", &numbers.docs, words)?;
    out.push_str("enum {\n");
    for entry in &numbers.entries {
        comment(out, "    ", &entry.docs, words)?;
        writeln!(out, "    {} = {},", in_flags(numbers, entry), entry.number)?;
    }
    out.push_str("};\n\n");
    Ok(())
}

fn structure(out: &mut String, item: &syn::ItemStruct, words: &Words) -> Result<()> {
    let rust_name = item.ident.to_string();
    let name = format!("granule_backend_{}", rust_name.trim_start_matches("Raw").to_snake_case());
    comment(out, "", &documentation(&item.attrs), words)?;
    writeln!(out, "typedef struct {name} {{")?;
    for field in &item.fields {
        let Some(field_name) = &field.ident else { bail!("{rust_name} has a field without a name") };
        comment(out, "    ", &documentation(&field.attrs), words)?;
        let (ty, extent) = match &field.ty {
            syn::Type::Array(array) => {
                let length = &array.len;
                (&*array.elem, format!("[{}]", quote!(#length)))
            }
            ty => (ty, String::new()),
        };
        let ty = match quote!(#ty).to_string().as_str() {
            "u8" => "uint8_t",
            "u16" => "uint16_t",
            "i32" => "int32_t",
            "u32" => "uint32_t",
            "u64" => "uint64_t",
            "c_char" => "char",
            other => bail!("{rust_name} has a field of type {other}, which the header cannot say"),
        };
        writeln!(out, "    {ty} {field_name}{extent};")?;
    }
    writeln!(out, "}} {name};\n")?;
    Ok(())
}

fn member(out: &mut String, function: &Function<'_>, words: &Words) -> Result<()> {
    let mut docs = function.method.docs.clone();
    if let Some(how) = function.derived {
        // The same in Rust's words.
        docs.retain(|line| !line.starts_with("Without it:"));
        docs.push(format!("Where it is NULL: {how}."));
    }
    comment(out, "    ", &docs, words)?;
    let answer = match &function.method.answer {
        Answer::Nothing => "void ",
        Answer::Plain(_) => "const char *",
        Answer::Fallible(_) | Answer::Family(_) => "granule_backend_status ",
    };
    let mut parameters = vec!["void *context".to_owned()];
    parameters.extend(function.signature.parameters.iter().map(|p| format!("{}{}", p.c, p.name)));
    let one_line = format!("    {answer}(*{})({});", function.name, parameters.join(", "));
    if one_line.len() <= 110 {
        writeln!(out, "{one_line}")?;
    } else {
        writeln!(out, "    {answer}(*{})(", function.name)?;
        writeln!(out, "        {});", parameters.join(",\n        "))?;
    }
    Ok(())
}

/// A C comment of documentation lines, in C's names and without the marks of Rust's.
fn comment(out: &mut String, indent: &str, docs: &[String], words: &Words) -> Result<()> {
    let text: Vec<String> = docs.iter().map(|line| plain(&words.translate(line))).collect();
    let text = text.join(" ").replace("# Safety", "The caller promises:").replace('*', "");
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().map_or(0, |line| line.len());
        if line > 0 && indent.len() + 3 + line + 1 + word.len() > 107 {
            lines.push(word.to_owned());
        } else if let Some(last) = lines.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    writeln!(out, "{indent}/* {} */", lines.join(&format!("\n{indent} * ")))?;
    Ok(())
}

/// Without link marks: ``[`copy`](Self::copy)`` is `copy`.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('[') {
        let Some(end) = rest[at..].find(']') else { break };
        let (inside, after) = (&rest[at + 1..at + end], &rest[at + end + 1..]);
        // Intervals such as `[at, at + bytes)` are no links.
        if !inside.starts_with('`') {
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        }
        out.push_str(&rest[..at]);
        out.push_str(inside.trim_matches('`'));
        rest = after;
        if let Some(link) = after.strip_prefix('(')
            && let Some(close) = link.find(')')
        {
            rest = &link[close + 1..];
        }
    }
    out.push_str(rest);
    out.replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::{emit, plain};
    use crate::generated::codegen::model::Contract;
    use crate::process::root;

    /// A comment is for those who write C: no path of Rust's, no type of it, and each default once.
    #[test]
    fn comments_speak_of_c() {
        let contract = Contract::read(&root().join("crates/backend-api/src")).unwrap();
        let header = emit(&contract).unwrap();
        // Names of drivers and libraries.
        let known = ["OpenReg", "GPUDirect", "StreamGetCaptureInfo"];
        let two_humps = |word: &&str| {
            word.starts_with(char::is_uppercase)
                && !word.contains('_')
                && word.contains(char::is_lowercase)
                && word.chars().skip(1).any(char::is_uppercase)
                && !known.contains(word)
        };
        let of_rust = |line: &&str| {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            ["::", "Without it", " trait"].iter().any(|part| line.contains(part))
                || words.any(|word| two_humps(&word))
        };
        // Past the heading, which names the trait that the file is made from.
        let body = header.lines().skip_while(|line| !line.starts_with("#ifndef"));
        let found: Vec<&str> = body.filter(of_rust).collect();
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn documentation_loses_its_links_and_keeps_intervals() {
        assert_eq!(plain("As for [`copy`](Self::copy), until `x`."), "As for copy, until x.");
        assert_eq!(plain("`[at, at + bytes)` of [`Kind::Host`]."), "[at, at + bytes) of Kind::Host.");
    }
}
