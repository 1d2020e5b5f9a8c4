//! What was found, for people.

use super::conflicts::Severity;
use super::limits::Limit;
use super::personality::Personality;
use super::{Found, Standing};
use crate::console::wrapped;
use crate::table::Table;
use granule::round::size_text;
use granule::selftest::{Outcome, SelfTest};
use std::fmt::Write;

/// Everything before the self-test.
pub(super) fn found(found: &Found) -> String {
    let mut said = String::new();
    line(&mut said, format_args!("granule {}", env!("CARGO_PKG_VERSION")));
    driver(&found.driver, &mut said);
    personality(&found.personality, &mut said);
    devices(found, &mut said);
    machine(found, &mut said);
    limits(found, &mut said);
    conflicts(found, &mut said);
    said
}

/// A line that fits the terminal.
fn line(said: &mut String, text: std::fmt::Arguments<'_>) {
    said.push_str(&wrapped(&text.to_string()));
    said.push('\n');
}

fn driver(driver: &Standing, said: &mut String) {
    match (&driver.backend, &driver.driver) {
        (Some(backend), Some(found)) => {
            let (version, library) = (&found.version, &found.library);
            line(said, format_args!("driver: {backend} {version} ({library}); {}", driver.reason));
        }
        (Some(backend), None) => line(said, format_args!("driver: {backend}; {}", driver.reason)),
        (None, _) => line(said, format_args!("driver: none. {}", driver.reason)),
    }
    for skipped in &driver.skipped {
        line(said, format_args!("  passed over: {skipped}"));
    }
}

fn personality(found: &[Personality], said: &mut String) {
    if found.is_empty() {
        line(said, format_args!("personality: none of those that are known"));
    }
    for one in found {
        line(said, format_args!("personality: {} ({})", one.name, one.sign));
    }
}

fn devices(found: &Found, said: &mut String) {
    if found.driver.backend.is_none() {
        return;
    }
    let mut table = Table::new(["device", "name", "memory", "free", "shares the host's"]);
    for device in &found.devices {
        let (total, free) = (size_text(device.total_bytes), size_text(device.free_bytes));
        let shares = match device.memory_node {
            Some(node) => format!("node {node}"),
            None => if device.integrated { "yes" } else { "no" }.to_owned(),
        };
        table.row([&device.index.to_string(), &device.name, &total, &free, &shares]);
    }
    table.align_right([2, 3]);
    let _ = writeln!(said, "{table}");
    for (index, memory) in found.devices.iter().filter_map(|d| Some((d.index, d.kernel_memory?))) {
        line(said, format_args!("memory of device {index}: {memory}"));
    }
    let mut families = Table::new(["family", "available", "why not"]);
    for family in &found.families {
        let available = if family.available { "yes" } else { "no" };
        families.row([family.name, available, family.reason.as_deref().unwrap_or_default()]);
    }
    let _ = writeln!(said, "{families}");
    for dropped in &found.dropped {
        let (device, what) = (dropped.device, &dropped.what);
        let (property, reason, consequence) = (what.property, &what.reason, what.consequence);
        line(said, format_args!("device {device} does without {property}: {reason}; {consequence}"));
    }
}

fn machine(found: &Found, said: &mut String) {
    let machine = &found.machine;
    let (kernel, architecture, page) =
        (&machine.kernel, &machine.architecture, size_text(machine.page_bytes));
    line(said, format_args!("machine: {kernel} on {architecture}, pages of {page}"));
    if let (Some(total), Some(available)) = (machine.memory_bytes, machine.available_bytes) {
        let (total, available) = (size_text(total), size_text(available));
        let reserve = machine.host_reserve_bytes.map(size_text);
        let reserve =
            reserve.map_or_else(String::new, |bytes| format!("; host_reserve leaves {bytes} to others"));
        line(said, format_args!("memory: {total}, of which {available} available{reserve}"));
    }
}

fn limits(found: &Found, said: &mut String) {
    let limits = &found.limits;
    let [files, locked, space] = [
        shown(&limits.open_files, |files| files.to_string()),
        shown(&limits.locked_bytes, size_text),
        shown(&limits.address_space_bytes, size_text),
    ];
    line(said, format_args!("limits: open files {files}; locked memory {locked}; address space {space}"));
    match &limits.shared_memory {
        Some(there) => {
            let (all, free) = (size_text(there.bytes), size_text(there.free_bytes));
            line(said, format_args!("/dev/shm: {all}, of which {free} free"));
        }
        None => line(said, format_args!("/dev/shm: there is none")),
    }
    match &limits.control_group {
        Some(group) => {
            let [limit, left] = [group.limit_bytes, group.left_bytes].map(size_text);
            line(said, format_args!("control groups: {limit}, of which {left} can be had"));
        }
        None => line(said, format_args!("control groups: no limit of memory")),
    }
}

fn shown(limit: &Limit, text: impl Fn(u64) -> String) -> String {
    let text = |value: Option<u64>| value.map_or_else(|| "unlimited".to_owned(), &text);
    let (now, at_most) = (text(limit.now), text(limit.at_most));
    if now == at_most { now } else { format!("{now}, at most {at_most}") }
}

fn conflicts(found: &Found, said: &mut String) {
    if found.conflicts.is_empty() {
        line(said, format_args!("environment: no conflicts"));
    }
    for conflict in &found.conflicts {
        let severity = match conflict.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        line(said, format_args!("environment: {severity}: {}", conflict.text));
    }
}

/// What the self-test came to.
pub(super) fn tested(test: Option<&SelfTest>, healthy: bool) -> String {
    let mut said = String::new();
    match test {
        Some(test) => {
            let mut table = Table::new(["self-test", "device", "outcome", "why"]);
            for step in &test.steps {
                let outcome = match step.outcome {
                    Outcome::Passed => "passed",
                    Outcome::Failed => "FAILED",
                    Outcome::Skipped => "skipped",
                };
                let detail = step.detail.as_deref().unwrap_or_default();
                table.row([step.name, &step.device.to_string(), outcome, detail]);
            }
            let _ = writeln!(said, "{table}");
        }
        None => line(&mut said, format_args!("self-test: not run, for there is no device")),
    }
    let is_tested = test.is_some_and(|test| test.steps.iter().any(|step| step.outcome != Outcome::Skipped));
    let verdict = match (healthy, is_tested) {
        (true, true) => "healthy",
        (true, false) => "nothing is wrong, but nothing could be tested: see above",
        (false, _) => "NOT healthy: see above",
    };
    line(&mut said, format_args!("{verdict}"));
    said
}
