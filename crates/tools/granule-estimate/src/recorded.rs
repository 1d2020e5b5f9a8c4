//! What the recorder wrote.

use crate::error::EstimateError;
use granule_snapshot::trace::Trace;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// What one process asked of one device.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The process's number.
    pub pid: u32,
    /// The device's, from 0.
    pub device: u32,
    /// The requests, with counts and sums in the header.
    pub trace: Trace,
}

impl Recorded {
    /// All recordings in a folder, first what was refused requests, then what had most live at once.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>, EstimateError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(folder).map_err(EstimateError::file(folder))? {
            let path = entry.map_err(EstimateError::file(folder))?.path();
            let Some((pid, device)) = path.file_name().and_then(numbers) else { continue };
            let bytes = fs::read(&path).map_err(EstimateError::file(&path))?;
            let written = written(&bytes);
            // Of a process that ended before its first line; the others' are still good.
            if written.is_empty() {
                continue;
            }
            let mut trace = Trace::from_reader(written)
                .map_err(|error| EstimateError::Recording { name: path.display().to_string(), error })?;
            trace.summarise();
            all.push(Self { pid, device, trace });
        }
        all.sort_by_key(|one| {
            let header = &one.trace.header;
            let rank = (one.trace.refusals().0 > 0, header.peak_live_requested);
            (std::cmp::Reverse(rank), one.pid, one.device)
        });
        Ok(all)
    }
}

/// The numbers in `PID.DEVICE.trace`.
fn numbers(name: &OsStr) -> Option<(u32, u32)> {
    let (pid, device) = name.to_str()?.strip_suffix(".trace")?.split_once('.')?;
    Some((pid.parse().ok()?, device.parse().ok()?))
}

/// The whole lines of a file that a process which did not end well leaves with zeros, or half a line, behind them.
fn written(bytes: &[u8]) -> &[u8] {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::{Recorded, written};
    use crate::error::EstimateError;
    use std::fs;

    #[test]
    fn what_a_killed_process_left_is_read_up_to_its_last_line() {
        for (file, lines) in [
            (&b"# {}\na 0 512 0\n\0\0\0"[..], &b"# {}\na 0 512 0\n"[..]),
            (b"# {}\na 0 512 0\nf", b"# {}\na 0 512 0\n"),
            (b"\0\0", b""),
            (b"", b""),
        ] {
            assert_eq!(written(file), lines);
        }
    }

    #[test]
    fn recordings_come_with_their_process_and_device_the_largest_first() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("12.0.trace", "# {\"torch\": \"2.15.0\"}\na 0 512 0\nf 0\n");
        write("12.1.trace", "# {}\na 0 4096 0\n");
        write("notes.txt", "not one of them");
        let all = Recorded::all(folder.path()).unwrap();
        let found: Vec<_> =
            all.iter().map(|one| (one.pid, one.device, one.trace.header.peak_live_requested)).collect();
        assert_eq!(found, [(12, 1, Some(4096)), (12, 0, Some(512))]);
        assert_eq!(all[1].trace.header.torch.as_deref(), Some("2.15.0"));
        write("13.0.trace", "# {}\nx\n");
        assert!(matches!(Recorded::all(folder.path()), Err(EstimateError::Recording { .. })));
    }
}
