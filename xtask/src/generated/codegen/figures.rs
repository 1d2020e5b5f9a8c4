//! Emits what follows from the tables of figures in `alloc-core`: the structs of the C ABI, and Python's.

use super::grown;
use super::model::documentation;
use crate::generated::syntax;
use crate::process::rustfmt;
use anyhow::{Context, Result};
use proc_macro2::Ident;
use std::fmt::Write as _;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Item, LitStr, Token, braced};

/// A table, and the C struct that follows from it.
struct Table {
    /// The file of the table, and the path and name of its statistics.
    source: &'static str,
    stats: [&'static str; 2],
    /// The file that is made, what it is about, and its struct.
    product: &'static str,
    heading: &'static str,
    name: &'static str,
    about: &'static str,
    /// The last field of the struct's first version.
    first_version: &'static str,
    /// What is no row: methods of the statistics.
    methods: &'static [(&'static str, &'static str)],
    /// What Python calls the list of the fields.
    python: &'static str,
}

const TABLES: [Table; 2] = [
    Table {
        source: "crates/alloc-core/src/watch/stats.rs",
        stats: ["granule::stats", "DeviceStats"],
        product: "crates/granule-capi/src/watch/figures.rs",
        heading: "The statistics of a device.",
        name: "granule_device_stats",
        about: "All statistics of a device, private pools included; names and meaning are PyTorch's.",
        first_version: "asleep_bytes",
        methods: &[],
        python: "DEVICE_STATS",
    },
    Table {
        source: "crates/alloc-core/src/host/pinned_stats.rs",
        stats: ["granule::host", "HostStats"],
        product: "crates/granule-capi/src/host/figures.rs",
        heading: "The statistics of pinned host memory.",
        name: "granule_host_stats_t",
        about: "All figures of pinned memory. Bytes are those of blocks, rounded.",
        first_version: "reserve_free_bytes",
        methods: &[
            ("num_host_alloc", "Pinned blocks taken from the driver."),
            ("num_host_free", "Pinned blocks given back to the driver."),
        ],
        python: "HOST_STATS",
    },
];

const PYTHON: &str = "crates/granule-torch/granule_torch/_figures.py";

/// The files that follow from the tables.
pub(super) fn emit() -> Result<Vec<(&'static str, String)>> {
    let mut files = Vec::new();
    let mut python = PYTHON_HEAD.to_owned();
    for table in &TABLES {
        let figures = table.of().with_context(|| format!("could not make {}", table.product))?;
        files.push((table.product, table.rust(&figures)?));
        let _ = write!(python, "\n{} = (\n", table.python);
        for Figure { name, shape, .. } in &figures {
            let _ = writeln!(python, "    (\"{name}\", \"{}\"),", shape[1]);
        }
        python.push_str(")\n");
    }
    files.push((PYTHON, python));
    Ok(files)
}

const PYTHON_HEAD: &str = r#""""The statistics of the C ABI: the fields of its structs after their size, in their order.

Generated from the tables of figures in `alloc-core` by `cargo xtask codegen`. Do not edit.
"""
"#;

/// A field of the C struct.
struct Figure {
    name: String,
    docs: String,
    shape: Shape,
    /// Where it comes from: `stats.granule.pending_bytes`.
    from: String,
}

/// What a figure is: to C, and to Python.
type Shape = [&'static str; 2];

impl Table {
    /// The fields of the struct, in its order.
    fn of(&self) -> Result<Vec<Figure>> {
        let there = grown::fields(self.product, self.name)?.into_iter().filter(|name| name != "size");
        grown::ordered(self.figures(syntax(self.source)?)?, |figure| figure.name.clone(), there)
    }

    /// What the table in `source` says, in its order.
    fn figures(&self, source: syn::File) -> Result<Vec<Figure>> {
        let tables = source.items.into_iter().find_map(|item| match item {
            Item::Macro(item) if item.mac.path.is_ident("figures") => Some(item.mac),
            _ => None,
        });
        let [pytorchs, own] = tables.context("there is no table of figures")?.parse_body::<Sections>()?.0;
        let methods = self.methods.iter().map(|(name, docs)| Figure {
            name: (*name).to_owned(),
            docs: (*docs).to_owned(),
            shape: ["i64", "number"],
            from: format!("stats.{name}()"),
        });
        let mut figures: Vec<Figure> = pytorchs.into_iter().map(|row| row.figure("stats")).collect();
        figures.extend(methods);
        for row in own {
            let mut figure = row.figure("stats.granule");
            // PyTorch's figure of that name is a sum of peaks at different times.
            if figures.iter().any(|known| known.name == figure.name) {
                figure.name.insert_str(0, "exact_");
            }
            figures.push(figure);
        }
        Ok(figures)
    }

    fn rust(&self, figures: &[Figure]) -> Result<String> {
        let Self { source, stats: [path, stats], heading, name, about, first_version, .. } = self;
        let mut shapes: Vec<&str> =
            figures.iter().map(|figure| figure.shape[0]).filter(|shape| *shape != "i64").collect();
        shapes.sort_unstable();
        shapes.dedup();
        let shapes = shapes.join(", ");
        let (mut fields, mut values) = (String::new(), String::new());
        for Figure { name, docs, shape, from } in figures {
            let _ = writeln!(fields, "/// {docs}\npub {name}: {},", shape[0]);
            let into = if shape[0] == "i64" { "" } else { ".into()" };
            let _ = writeln!(values, "{name}: {from}{into},");
        }
        rustfmt(&format!(
            "//! {heading}
//!
//! Generated from the table in `{source}` by `cargo xtask codegen`. Do not edit.

use crate::boundary::pass::growing;
use crate::watch::quantity::{{{shapes}}};
use {path}::{stats};

/// {about}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct {name} {{
    /// sizeof({name}).
    pub size: u32,
    {fields}
}}

growing!({name}, up to {first_version});

impl From<&{stats}> for {name} {{
    fn from(stats: &{stats}) -> Self {{
        Self {{ size: 0, {values} }}
    }}
}}
"
        ))
    }
}

/// The rows of PyTorch's figures and of Granule's own.
struct Sections([Vec<Row>; 2]);

struct Row {
    docs: String,
    name: Ident,
    shape: Shape,
}

impl Row {
    fn figure(self, of: &str) -> Figure {
        let Self { docs, name, shape } = self;
        Figure { from: format!("{of}.{name}"), name: name.to_string(), docs, shape }
    }
}

impl Parse for Sections {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let section = || {
            input.call(Attribute::parse_outer)?;
            input.parse::<Ident>()?;
            let within;
            braced!(within in input);
            let mut rows = Vec::new();
            while within.peek(Token![#]) {
                rows.push(within.parse()?);
            }
            // Fields that are no figures.
            within.parse::<proc_macro2::TokenStream>()?;
            Ok(rows)
        };
        Ok(Self([section()?, section()?]))
    }
}

impl Parse for Row {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let docs = documentation(&input.call(Attribute::parse_outer)?).into_iter().next();
        let name: Ident = input.parse()?;
        input.parse::<Token![:]>()?;
        let shape: Ident = input.parse()?;
        let shape = match shape.to_string().as_str() {
            "Counter" | "Gauge" => ["i64", "number"],
            "Stat" => ["granule_stat", "stat"],
            "Array" => ["granule_stat_array", "array"],
            "Time" => ["granule_duration_stat", "time"],
            _ => return Err(syn::Error::new(shape.span(), "no shape of a figure")),
        };
        let (_unit, _metric): (Ident, LitStr) = (input.parse()?, input.parse()?);
        input.parse::<Token![,]>()?;
        let docs = docs.ok_or_else(|| syn::Error::new(name.span(), "a figure says what it is"))?;
        Ok(Self { docs, name, shape })
    }
}

#[cfg(test)]
mod tests {
    use super::TABLES;

    const SOURCE: &str = "figures! {
        /// All.
        DeviceStats {
            /// One.
            ///
            /// More about it.
            one: Counter Count \"one\",
            /// Two.
            two: Array Bytes \"two\",
            also
            /// Others.
            others: u64,
        }
        /// Own.
        GranuleStats {
            /// Another one.
            one: Stat Count \"exact_one\",
        }
    }";

    #[test]
    fn a_row_says_what_it_is_and_where_it_comes_from() {
        let figures = TABLES[0].figures(syn::parse_file(SOURCE).unwrap()).unwrap();
        let names: Vec<&str> = figures.iter().map(|figure| &*figure.name).collect();
        assert_eq!(names, ["one", "two", "exact_one"]);
        let rust = TABLES[0].rust(&figures).unwrap();
        for said in [
            "    /// One.\n    pub one: i64,\n",
            "    pub two: granule_stat_array,\n",
            "two: stats.two.into(),",
            "exact_one: stats.granule.one.into()",
        ] {
            assert!(rust.contains(said), "{said} is not in\n{rust}");
        }
        assert!(!rust.contains("others"), "{rust}");
    }
}
