//! A recorded program on a personality, beside the simulated device.

use super::file::{Expect, Segments};
use super::{Bench, Row};
use crate::process;
use anyhow::Result;
use serde_json::Value;

const TRACE: &str = "crates/tools/granule-cli/data/resnet_train.trace.gz";
/// A machine like the one that the simulated replay makes for itself.
const MACHINE: &str = "devices=1,capacity=80GiB,memory=reserved,clock=virtual:0";
const POLICIES: [&str; 2] = ["pytorch", "granule"];
/// Both policies reserve what `pytorch` does by itself: `granule` begins with less, and no driver would refuse that.
const CONF: &str = "expandable_segments:True,expandable_segments_reserve:90G";
/// What does not depend on the driver underneath.
const COUNTERS: [&str; 10] = [
    "requested_bytes_peak",
    "allocated_bytes_peak",
    "active_bytes_peak",
    "reserved_bytes_peak",
    "num_device_alloc",
    "num_device_free",
    "num_alloc_retries",
    "num_ooms",
    "marks",
    "events",
];

/// What is the same wherever every request is served.
const SERVED: [&str; 4] = ["requested_bytes_peak", "allocated_bytes_peak", "active_bytes_peak", "num_ooms"];

/// What the simulated device has, by kind of segments and policy.
pub(super) struct References(Vec<(Segments, &'static str, Value)>);

impl References {
    pub(super) fn new(bench: &Bench) -> Result<Self> {
        let mut all = Vec::new();
        for (segments, more) in
            [(Segments::Growable, &[][..]), (Segments::Fixed, &["--no-virtual-memory"][..])]
        {
            for policy in POLICIES {
                let arguments = [&arguments("openreg", policy)[..], more].concat();
                let figures = process::json(bench.command(MACHINE).args(arguments))?;
                all.push((segments, policy, figures));
            }
        }
        Ok(Self(all))
    }

    /// Sees that the program has these figures there, and that what is done without is told once.
    pub(super) fn serves(&self, bench: &Bench, machine: &str, expect: &Expect, row: &mut Row) -> Result<()> {
        let machine = format!("{machine},{MACHINE}");
        for (_, policy, wanted) in self.0.iter().filter(|(segments, ..)| *segments == expect.segments) {
            let output = bench.run(&machine, &arguments(row.backend, policy), row)?;
            let said = String::from_utf8_lossy(&output.stderr);
            let Ok(figures) = serde_json::from_slice::<Value>(&output.stdout) else {
                row.failures.push(format!("no replay under {policy}: {}", said.trim_end()));
                continue;
            };
            let counters = if expect.exact { &COUNTERS[..] } else { &SERVED[..] };
            for counter in counters.iter().filter(|counter| figures[**counter] != wanted[**counter]) {
                let (is, due) = (&figures[*counter], &wanted[*counter]);
                row.failures.push(format!("{counter} under {policy} is {is}, not {due}"));
            }
            for property in &expect.drops {
                let times =
                    said.lines().filter(|line| line.contains(&format!("{property} was refused"))).count();
                if times != 1 {
                    row.failures
                        .push(format!("that {property} was refused is told {times} times under {policy}"));
                }
            }
        }
        row.notes.push(format!("a program was served in segments of the kind {:?}", expect.segments));
        Ok(())
    }
}

fn arguments(backend: &'static str, policy: &'static str) -> [&'static str; 9] {
    ["replay", TRACE, "--json", "--backend", backend, "--policy", policy, "--conf", CONF]
}
