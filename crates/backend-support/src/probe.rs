//! Whether an optional family is there: found out once, by using it.

use backend_api::{BackendError, ErrorKind, Result, Unsupported};
use std::sync::OnceLock;

/// Whether a family is there, and why not.
pub type Answer = std::result::Result<(), Unsupported>;

/// The answer for one family, once there is a final one.
#[derive(Debug, Default)]
pub struct Probe(OnceLock<Answer>);

impl Probe {
    /// Whether the family is there; `cycle` uses it once and leaves nothing behind. It is called at the first
    /// question, and again as long as it fails for a passing reason (a lost device, a capture, ...). Two first
    /// questions at a time may both call it; one answer is kept. Blocks as long as `cycle` does.
    ///
    /// # Errors
    /// That the family is absent, with the driver's words for why. A device that is full has the family.
    pub fn answer(&self, family: &'static str, cycle: impl FnOnce() -> Result<()>) -> Answer {
        if let Some(known) = self.0.get() {
            return known.clone();
        }
        let (answer, is_final) = match cycle() {
            Ok(()) => (Ok(()), true),
            Err(error) => match error.kind {
                // It works, and there is no room for the probe now.
                ErrorKind::OutOfMemory | ErrorKind::ResourceLimit => (Ok(()), true),
                // These say nothing about the family.
                ErrorKind::DeviceLost
                | ErrorKind::CaptureViolation
                | ErrorKind::Unusable
                | ErrorKind::Timeout => (Err(absent(family, &error)), false),
                _ => (Err(absent(family, &error)), true),
            },
        };
        if !is_final {
            return answer;
        }
        tracing::debug!(family, ?answer, "probed");
        self.0.get_or_init(|| answer).clone()
    }
}

fn absent(family: &'static str, error: &BackendError) -> Unsupported {
    Unsupported { family, reason: reason(error) }
}

/// Which call was refused, and with what.
pub(crate) fn reason(error: &BackendError) -> String {
    let code = if error.code == 0 { String::new() } else { format!(" (driver code {})", error.code) };
    format!("{} on device {}: {}{code}", error.call, error.device, error.detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::types::DeviceIndex;

    fn failed(kind: ErrorKind, code: i32) -> BackendError {
        BackendError::new(kind, code, "memCreate", DeviceIndex(3), "NOT_NOW")
    }

    #[test]
    fn a_final_answer_is_kept_with_its_reason() {
        let probe = Probe::default();
        let first = probe.answer("virtual memory", || Err(failed(ErrorKind::NotSupported, 801))).unwrap_err();
        assert_eq!(first.reason, "memCreate on device 3: NOT_NOW (driver code 801)");
        let again = probe.answer("virtual memory", || unreachable!("it is known")).unwrap_err();
        assert_eq!(first, again);
    }

    #[test]
    fn a_passing_failure_is_probed_again() {
        let probe = Probe::default();
        probe.answer("IPC", || Err(failed(ErrorKind::CaptureViolation, 900))).unwrap_err();
        probe.answer("IPC", || Ok(())).unwrap();
        probe.answer("IPC", || unreachable!("it is known")).unwrap();
    }

    #[test]
    fn a_full_device_does_not_make_a_family_absent() {
        Probe::default().answer("virtual memory", || Err(failed(ErrorKind::OutOfMemory, 2))).unwrap();
    }
}
