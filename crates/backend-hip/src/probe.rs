//! Which optional families there are: each is probed once, at the first question, by using it.

use crate::hip::Hip;
use alloc_core::backend::{Attribute, BackendError, ErrorKind, Result, Unsupported};
use alloc_core::types::DeviceIndex;
use std::sync::OnceLock;

type Answer = std::result::Result<(), Unsupported>;

/// What is known about every family.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    pub(crate) virtual_memory: Probe,
    pub(crate) fabric: Probe,
    pub(crate) ipc: Probe,
    pub(crate) peers: Probe,
    pub(crate) capture: Probe,
    pub(crate) driver_pools: Probe,
    pub(crate) host_registration: Probe,
    pub(crate) managed_memory: Probe,
    pub(crate) stream_memory: Probe,
}

/// The answer for one family, once there is a final one.
#[derive(Debug, Default)]
pub(crate) struct Probe(OnceLock<Answer>);

impl Probe {
    /// Whether the family is there; `cycle` uses it once and leaves nothing behind.
    pub(crate) fn answer(&self, family: &'static str, cycle: impl FnOnce() -> Result<()>) -> Answer {
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
    let code = if error.code == 0 { String::new() } else { format!(" (driver code {})", error.code) };
    let reason = format!("{} on device {}: {}{code}", error.call, error.device, error.detail);
    Unsupported { family, reason }
}

impl Hip {
    /// Refuses where one of some functions was not found in the library.
    pub(crate) fn needs(&self, functions: &[(&'static str, bool)]) -> Result<()> {
        match functions.iter().find(|(_, found)| !found) {
            Some((missing, _)) => Err(self.any_site(missing)?.missing(missing)),
            None => Ok(()),
        }
    }

    /// Refuses where a device says that it lacks something.
    pub(crate) fn every_device_has(&self, attribute: Attribute) -> Result<()> {
        for index in 0..self.devices.len() {
            let device = DeviceIndex(u16::try_from(index).unwrap_or(u16::MAX));
            if self.attribute(device, attribute)? == 0 {
                let detail = format!("{attribute:?} is 0");
                return Err(self.site(device, "hipDeviceGetAttribute")?.refuse(
                    ErrorKind::NotSupported,
                    "hipDeviceGetAttribute",
                    detail,
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: ErrorKind, code: i32) -> BackendError {
        BackendError::new(kind, code, "hipMemCreate", DeviceIndex(3), "hipErrorX")
    }

    #[test]
    fn a_final_answer_is_kept_with_its_reason() {
        let probe = Probe::default();
        let first = probe.answer("virtual memory", || Err(failed(ErrorKind::NotSupported, 801))).unwrap_err();
        assert_eq!(first.reason, "hipMemCreate on device 3: hipErrorX (driver code 801)");
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
