//! All processes that this one has started, and those that these have started.
//!
//! A launcher's workers may have a process group and a session of their own, and their parent may be gone. So this process
//! adopts what is orphaned below it, and looks for its descendants in `/proc`.

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use std::collections::BTreeMap;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// Makes what is orphaned from now on a child of this process, so that it is still found.
pub(crate) fn adopt_orphans() {
    // A kernel that cannot loses those only.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Sends a signal to all of them.
pub(crate) fn signal_all(signal: Signal) {
    for process in descendants() {
        // It may be over already.
        let _ = kill_process(process, signal);
    }
}

/// Ends all of them, and waits until they are gone.
pub(crate) fn kill_all() {
    // What starts processes faster than they are ended is left after a while.
    for _ in 0..1000 {
        if descendants().is_empty() {
            return;
        }
        signal_all(Signal::KILL);
        sleep(Duration::from_millis(5));
    }
}

/// Those that still run.
fn descendants() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent_if_alive(&String::from_utf8_lossy(&stat)) {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut parents = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = parents.pop() {
        let of_parent = children.remove(&parent).unwrap_or_default();
        found.extend(of_parent.iter().filter_map(|process| Pid::from_raw(*process)));
        parents.extend(of_parent);
    }
    found
}

/// The parent in a line of `/proc/PID/stat`; `None` for a process that has ended and is only still listed.
fn parent_if_alive(stat: &str) -> Option<i32> {
    // The program's name, in brackets, may hold anything.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.next()?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::parent_if_alive;

    #[test]
    fn the_parent_is_read_whatever_the_program_is_called() {
        assert_eq!(parent_if_alive("12 (sh) S 7 12 12 0"), Some(7));
        assert_eq!(parent_if_alive("12 (a) Z 3) R 9 12 12 0"), Some(9));
        assert_eq!(parent_if_alive("12 (sh) Z 7 12 12 0"), None);
        assert_eq!(parent_if_alive(""), None);
    }
}
