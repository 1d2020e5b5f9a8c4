//! The shortest history that finds the same: operations are left out as long as it does.
//!
//! Each attempt is a process of its own. What a finding leaves behind cannot disturb the next one.

use crate::op::Op;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(90);
/// An attempt that takes longer hangs.
const ATTEMPT: Duration = Duration::from_secs(20);

/// Which operations of `seed`, of which the last is `op`, are enough for `oracle`.
#[must_use]
pub fn shrink(seed: u64, op: usize, oracle: &str) -> Vec<usize> {
    let begun = Instant::now();
    let mut kept: Vec<usize> = (0..=op).collect();
    let mut chunk = kept.len().div_ceil(2);
    while chunk > 0 && begun.elapsed() < LIMIT {
        let (mut from, before) = (0, kept.len());
        while from < kept.len() && begun.elapsed() < LIMIT {
            let to = (from + chunk).min(kept.len());
            let rest: Vec<usize> = kept[..from].iter().chain(&kept[to..]).copied().collect();
            match attempt(seed, op + 1, &rest) {
                Some((last, found)) if found == oracle => {
                    kept = rest;
                    kept.retain(|one| *one <= last);
                }
                _ => from = to,
            }
        }
        if chunk > 1 || kept.len() == before {
            chunk /= 2;
        }
    }
    kept
}

/// The operation at which some of a seed's operations find something, and what.
fn attempt(seed: u64, ops: usize, only: &[usize]) -> Option<(usize, String)> {
    if only.is_empty() {
        return None;
    }
    let listed: Vec<String> = only.iter().map(usize::to_string).collect();
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(["--seed", &seed.to_string(), "--seeds", "1", "--ops", &ops.to_string(), "--no-shrink"]);
    // A list may be longer than an argument may be.
    command.args(listed.chunks(10_000).map(|part| format!("--only={}", part.join(","))));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let begun = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if begun.elapsed() > ATTEMPT {
            child.kill().ok()?;
            child.wait().ok()?;
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let printed = child.wait_with_output().ok()?.stdout;
    let printed = String::from_utf8_lossy(&printed);
    let last = printed.lines().last()?;
    let (_, rest) = last.split_once(" op=")?;
    let (op, oracle) = rest.split_once(" oracle=")?;
    Some((op.parse().ok()?, oracle.to_owned()))
}

/// A test that finds it again, to be copied into `tests/night/tests`.
#[must_use]
pub fn as_test(seed: u64, ops: &[(usize, Op)], oracle: &str) -> String {
    let listed: String = ops.iter().map(|(_, op)| format!("            {op:?},\n")).collect();
    let name: String = oracle.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    format!(
        "#[test]\nfn seed_{seed}_{name}() {{\n    use night::op::Op::*;\n    night::history::replay(\n        {seed},\n        \
         &[\n{listed}        ],\n    );\n}}"
    )
}
