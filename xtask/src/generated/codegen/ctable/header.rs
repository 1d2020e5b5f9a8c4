//! The C header.

use super::values::{self, Entry, Numbers};
use super::{Function, around_texts, functions};
use crate::generated::codegen::model::{Answer, Contract, documentation};
use crate::generated::codegen::text;
use anyhow::{Result, bail};
use heck::{ToShoutySnakeCase, ToSnakeCase};
use quote::quote;
use std::fmt::Write;
use textwrap::WordSplitter::NoHyphenation;

/// The header, with places for what follows from the contract.
const FRAME: &str = include_str!("granule_backend.h.in");

/// The contract's enum that is the status of a call.
const KINDS: &str = "ErrorKind";

/// What C calls the named numbers of the contract, by how its documentation names them.
struct Words(Vec<(String, String)>);

impl Words {
    fn of(values: &[Numbers]) -> Self {
        let mut words = Vec::new();
        for numbers in values {
            for entry in &numbers.entries {
                let name = in_c(numbers, entry);
                // Kinds of errors and flags go by themselves, too.
                let alone = numbers.name == KINDS || numbers.are_flags;
                words.extend(alone.then(|| (format!("`{}`", entry.name), name.clone())));
                words.push((format!("`{}::{}`", numbers.name, entry.name), name));
            }
        }
        Self(words)
    }

    fn translate(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (rust, c)| text.replace(rust, &format!("`{c}`")))
    }
}

/// A number's name in C; kinds of errors have no prefix of their own.
fn in_c(numbers: &Numbers, entry: &Entry) -> String {
    let (of, entry) = (numbers.name.to_string(), entry.name.to_string());
    match of.trim_end_matches(if numbers.are_flags { "s" } else { "" }).to_shouty_snake_case() {
        _ if of == KINDS => format!("GRANULE_BACKEND_{}", entry.to_shouty_snake_case()),
        of if numbers.are_flags => format!("GRANULE_BACKEND_{of}_{entry}"),
        of => format!("GRANULE_BACKEND_{of}_{}", entry.to_shouty_snake_case()),
    }
}

pub(crate) fn emit(contract: &Contract) -> Result<String> {
    let values = values::read()?;
    let words = Words::of(&values);
    let (mut statuses, mut others) = (String::new(), String::new());
    for numbers in &values {
        match numbers.name.to_string().as_str() {
            // After OK and NOT_READY.
            KINDS => entries(&mut statuses, numbers, 2, &words)?,
            // What no function of the table takes or gives is left out.
            "Readiness" => {}
            name => {
                comment(&mut others, "", &numbers.docs, &words)?;
                if !numbers.are_flags {
                    writeln!(others, "typedef int32_t granule_backend_{};", name.to_snake_case())?;
                }
                others.push_str("enum {\n");
                entries(&mut others, numbers, 0, &words)?;
                others.push_str("};\n\n");
            }
        }
    }
    for item in values::structs("crates/backend-c/src/values.rs")? {
        structure(&mut others, &item, &words)?;
    }
    let functions = functions(contract)?;
    let (first, appended) = around_texts(&functions);
    Ok(FRAME
        .replace("@STATUSES@\n", &statuses)
        .replace("@VALUES@\n", &others)
        .replace("@FUNCTIONS@\n", &members(first, &words)?)
        .replace("@APPENDED@\n", &members(appended, &words)?))
}

fn entries(out: &mut String, numbers: &Numbers, first: u32, words: &Words) -> Result<()> {
    for entry in &numbers.entries {
        comment(out, "    ", &entry.docs, words)?;
        writeln!(out, "    {} = {},", in_c(numbers, entry), first + entry.number)?;
    }
    Ok(())
}

fn members(functions: &[Function<'_>], words: &Words) -> Result<String> {
    let (mut out, mut part) = (String::new(), String::new());
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
        member(&mut out, function, words)?;
    }
    Ok(out)
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
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let width = textwrap::Options::new(104 - indent.len()).word_splitter(NoHyphenation).break_words(false);
    let lines = textwrap::wrap(&text, width);
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

    /// A comment is for those who write C: no path of Rust's, no type of it, and each default once.
    #[test]
    fn comments_speak_of_c() {
        let contract = Contract::read().unwrap();
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
