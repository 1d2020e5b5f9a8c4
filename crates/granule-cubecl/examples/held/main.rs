//! What recorded programs hold of a device through CubeCL's memory management: over the driver, and over Granule.
//!
//! `cargo run --release -p granule-cubecl --example held -- TRACE...`: recordings, as `granule record` writes them.

mod memory;
mod replay;

use anyhow::Context;
use comfy_table::{Table, presets};
use cubecl_runtime::server::IoError;
use granule::files::trace::Trace;
use memory::Pools;
use replay::{live, over_granule, over_the_driver};

/// PyTorch's decisions with growable segments, and Granule's own.
const SETTINGS: [&str; 2] = ["expandable_segments:True", "policy:granule"];

fn is_out_of_memory(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(IoError::OutOfMemory { .. }))
}

fn main() -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "program",
        "live at most, MiB",
        "CubeCL's pools",
        "a page each",
        "pools on Granule",
        "Granule for each buffer",
        "the same, policy:granule",
    ]);
    for path in std::env::args().skip(1) {
        let trace = Trace::load(&path).with_context(|| path.clone())?;
        let live = live(&trace);
        let of = |held: Result<u64, anyhow::Error>| match held {
            Ok(bytes) => Ok(format!("{:.3}", bytes as f64 / live as f64)),
            Err(error) if is_out_of_memory(&error) => Ok("does not fit".to_owned()),
            Err(error) => Err(error),
        };
        let held = [
            of(over_the_driver(&trace, Pools::Adaptive).map_err(Into::into))?,
            of(over_the_driver(&trace, Pools::Exclusive).map_err(Into::into))?,
            of(over_granule(&trace, Pools::Adaptive, SETTINGS[0]))?,
            of(over_granule(&trace, Pools::Dedicated, SETTINGS[0]))?,
            of(over_granule(&trace, Pools::Dedicated, SETTINGS[1]))?,
        ];
        eprintln!("{path}: done");
        let mut row = vec![trace.header.workload.unwrap_or(path), (live >> 20).to_string()];
        row.extend(held);
        table.add_row(row);
    }
    println!("{table}");
    Ok(())
}
