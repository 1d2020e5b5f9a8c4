//! How the cost of a pair grows with the number of live blocks of the same sizes.

use super::peers::{Case, Peers};
use super::table::Table;
use super::{Options, instructions};
use anyhow::Result;

pub(super) fn report(options: &Options) -> Result<String> {
    let peers = Peers::build(options)?;
    let case =
        |blocks: &str| Case::new(blocks, &["--work", "churn", "--largest", "2097152", "--blocks", blocks]);
    let cases = [case("1000"), case("100000")];
    let rounds = peers.rounds(&cases, "ns", options)?;
    let mut table =
        Table::new(["allocator", "growth, time", "growth, instructions", "ns", "", "instructions", ""]);
    for (peer, row) in peers.all.iter().zip(&rounds) {
        let times = [row[0].median(), row[1].median()];
        let counts = [&cases[0], &cases[1]].map(|case| instructions::of_case(&peers, peer, case).ok());
        let growth = |[few, many]: [Option<f64>; 2]| match (few, many) {
            (Some(few), Some(many)) => format!("{:.2}", many / few),
            _ => "–".into(),
        };
        let show = |value: Option<f64>| value.map_or_else(|| "–".into(), |value| format!("{value:.0}"));
        let cells = [times[0], times[1], counts[0], counts[1]].map(show);
        table.row([peer.name.clone(), growth(times), growth(counts)].into_iter().chain(cells));
    }
    Ok(format!(
        "## Growth from 1 000 to 100 000 live blocks, sizes log-uniform from 512 B to 2 MiB\n\n{}",
        table.text()
    ))
}
