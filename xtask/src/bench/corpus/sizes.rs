//! What granules of each size waste, and what they cost in the driver: the size is chosen by both, on a card's figures.

use super::folder::Folder;
use super::recipe::Half;
use super::replay::{AMPLE, Conditions, Granule, number, ratio, side_by_side};
use crate::bench::table::{Table, mean_and_worst};
use anyhow::{Result, ensure};
use clap::Args;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Which sizes, and on what.
#[derive(Args)]
pub(super) struct Options {
    /// What driver calls cost, as `granule replay --cost` takes it: a text, or the driver.jsonl of a card
    #[arg(long, value_name = "COSTS", default_value = "")]
    cost: String,
    /// Sizes of granules in MiB
    #[arg(long, value_name = "MIB", value_delimiter = ',', default_value = "2,4,8,16,24,32,64")]
    sizes: Vec<u64>,
    /// Only this half; both if absent
    #[arg(long, value_enum)]
    half: Option<Half>,
    /// A `granule` command that is there, instead of one that is built
    #[arg(long, value_name = "FILE")]
    granule: Option<PathBuf>,
}

/// A way to hold memory: name, policy, settings of PyTorch's and of Granule's.
type Way = (String, &'static str, &'static str, String);

/// What was held at most over what was live, and modelled milliseconds in the driver.
type Cell = (f64, f64);

/// A program, its half, and a cell for each way.
type Row = (String, Half, Vec<Cell>);

pub(super) fn run(folder: &Folder, options: &Options) -> Result<()> {
    let conditions = Conditions { cost: options.cost.clone(), ..Conditions::default() };
    let granule = Granule::at(options.granule.as_deref())?.under(conditions);
    let recipes =
        folder.recipes()?.into_iter().filter(|it| options.half.is_none_or(|half| half == it.fields.half));
    let found: Vec<_> = recipes.filter_map(|it| Some((folder.trace(&it.name)?, it))).collect();
    ensure!(!found.is_empty(), "none of the programs' traces is here: `cargo xtask corpus list` shows them");
    let ways = ways(&options.sizes);
    let traces: Vec<&Path> = found.iter().map(|(trace, _)| trace.as_path()).collect();
    let cells = side_by_side(&traces, |trace| {
        let of = |(_, policy, conf, own): &Way| cell(&granule.answer(trace, policy, conf, own, &AMPLE)?);
        ways.iter().map(of).collect::<Result<Vec<Cell>>>()
    })?;
    let rows: Vec<Row> =
        found.into_iter().zip(cells).map(|((_, it), cells)| (it.name, it.fields.half, cells)).collect();
    print!("{}", text(&ways, &rows));
    Ok(())
}

fn ways(sizes: &[u64]) -> Vec<Way> {
    let usual = [
        ("expandable segments".to_owned(), "pytorch", "expandable_segments:True", String::new()),
        ("by what is held".to_owned(), "granule", "", String::new()),
    ];
    let of_size =
        |size: &u64| (format!("{size} MiB"), "granule", "", format!("policy:granule,granule_size_mb:{size}"));
    usual.into_iter().chain(sizes.iter().map(of_size)).collect()
}

fn cell(answer: &Value) -> Result<Cell> {
    Ok((ratio(answer)?, number(answer, "/modelled_driver_ns")? / 1e6))
}

/// The halves first, then each program.
fn text(ways: &[Way], rows: &[Row]) -> String {
    let halves: Vec<Half> =
        Half::ALL.into_iter().filter(|half| rows.iter().any(|row| row.1 == *half)).collect();
    let mut text =
        "Peak reserved over peak live (mean, worst), and modelled driver ms of whole runs together.\n\n"
            .to_owned();
    let mut table = Table::new(["granules"].into_iter().chain(halves.iter().map(|half| half.name())));
    for (at, way) in ways.iter().enumerate() {
        let of_half = halves.iter().map(|half| {
            let cells: Vec<Cell> = rows.iter().filter(|row| row.1 == *half).map(|row| row.2[at]).collect();
            let ratios: Vec<f64> = cells.iter().map(|cell| cell.0).collect();
            let (mean, worst) = mean_and_worst(&ratios).unwrap_or_default();
            format!("{mean:.4}, {worst:.4}; {:.0}", cells.iter().map(|cell| cell.1).sum::<f64>())
        });
        table.row(std::iter::once(way.0.clone()).chain(of_half));
    }
    text += &table.text();
    let mut table = Table::new(["program"].into_iter().chain(ways.iter().map(|way| way.0.as_str())));
    for (name, _, cells) in rows {
        let cells = cells.iter().map(|(ratio, ms)| format!("{ratio:.4}; {ms:.1}"));
        table.row(std::iter::once(name.clone()).chain(cells));
    }
    let _ = write!(text, "\n{}", table.text());
    text
}

#[cfg(test)]
mod tests {
    use super::{Half, cell, text, ways};
    use serde_json::json;

    #[test]
    fn each_size_has_what_it_wastes_and_what_it_costs() {
        let ways = ways(&[2]);
        assert_eq!(ways[2].3, "policy:granule,granule_size_mb:2");
        let of = |ratio: f64, ns: u64| {
            cell(&json!({ "reserved_over_live": ratio, "modelled_driver_ns": ns })).unwrap()
        };
        let rows = [
            (
                "a".to_owned(),
                Half::Choosing,
                vec![of(2.0, 1_000_000), of(1.5, 2_500_000), of(1.0, 9_000_000)],
            ),
            (
                "b".to_owned(),
                Half::Choosing,
                vec![of(1.0, 1_000_000), of(1.0, 2_500_000), of(1.25, 9_500_000)],
            ),
        ];
        let text = text(&ways, &rows);
        for expected in [
            "| granules | choosing |\n",
            "| expandable segments | 1.5000, 2.0000; 2 |",
            "| 2 MiB | 1.1250, 1.2500; 18 |",
            "| program | expandable segments | by what is held | 2 MiB |",
            "| b | 1.0000; 1.0 | 1.0000; 2.5 | 1.2500; 9.5 |",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }
}
