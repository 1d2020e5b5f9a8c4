//! Links: copies between devices and the host that take time while the host goes on.

use backend_api::CopyKind;
use std::collections::HashMap;

/// How fast each device's link to the host is, each way, in bytes a second. A device has links of its own, and each way
/// carries one copy at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// From the host to the device.
    pub to_device: u64,
    /// From the device to the host.
    pub to_host: u64,
}

impl Default for Links {
    /// 25 GB/s each way: what a PCIe 4.0 slot of 16 lanes carries in practice.
    fn default() -> Self {
        Self { to_device: 25_000_000_000, to_host: 25_000_000_000 }
    }
}

/// When what was queued on links is done, in nanoseconds of the host's time.
#[derive(Debug)]
pub(crate) struct Timeline {
    links: Links,
    /// For how long the host waited for copies.
    waited: u64,
    /// What the cost model took for copies that are on a link instead.
    excused: u64,
    busy: HashMap<(usize, CopyKind), u64>,
    streams: HashMap<u64, u64>,
    events: HashMap<u64, u64>,
}

impl Timeline {
    pub(crate) fn new(links: Links) -> Self {
        Self {
            links,
            waited: 0,
            excused: 0,
            busy: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
        }
    }

    /// Forgets what was: time begins anew.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.links);
    }

    /// The host's time, where its calls took so long in all.
    pub(crate) const fn now(&self, called: u64) -> u64 {
        called.saturating_sub(self.excused).saturating_add(self.waited)
    }

    /// A copy is queued on a stream. `cost` is what the model took for its bytes.
    pub(crate) fn copy(
        &mut self,
        called: u64,
        (device, stream): (usize, u64),
        kind: CopyKind,
        bytes: u64,
        cost: u64,
    ) {
        let rate = match kind {
            CopyKind::HostToDevice => self.links.to_device,
            CopyKind::DeviceToHost => self.links.to_host,
            CopyKind::HostToHost | CopyKind::DeviceToDevice => return,
        };
        self.excused = self.excused.saturating_add(cost);
        let taken = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let link = self.busy.entry((device, kind)).or_default();
        let queued = self.streams.entry(stream).or_default();
        let start = called.saturating_sub(self.excused).saturating_add(self.waited).max(*link).max(*queued);
        let end = start.saturating_add(u64::try_from(taken).unwrap_or(u64::MAX));
        (*link, *queued) = (end, end);
    }

    /// An event stands for what a stream was given.
    pub(crate) fn record(&mut self, event: u64, stream: u64) {
        let end = self.streams.get(&stream).copied().unwrap_or(0);
        self.events.insert(event, end);
    }

    /// A stream waits for an event.
    pub(crate) fn follow(&mut self, stream: u64, event: u64) {
        let end = self.events.get(&event).copied().unwrap_or(0);
        let queued = self.streams.entry(stream).or_default();
        *queued = end.max(*queued);
    }

    /// The host waits for an event.
    pub(crate) fn wait_for_event(&mut self, called: u64, event: u64) {
        self.wait(called, self.events.get(&event).copied());
    }

    /// The host waits for a stream.
    pub(crate) fn wait_for_stream(&mut self, called: u64, stream: u64) {
        self.wait(called, self.streams.get(&stream).copied());
    }

    fn wait(&mut self, called: u64, until: Option<u64>) {
        self.waited += until.unwrap_or(0).saturating_sub(self.now(called));
    }
}

#[cfg(test)]
mod tests {
    use super::{Links, Timeline};
    use backend_api::CopyKind;

    #[test]
    fn copies_run_beside_the_host_one_at_a_time_each_way() {
        let mut time = Timeline::new(Links { to_device: 1_000_000_000, to_host: 500_000_000 });
        time.copy(10, (0, 7), CopyKind::DeviceToHost, 50, 3);
        time.copy(13, (0, 8), CopyKind::DeviceToHost, 50, 3);
        time.copy(16, (0, 9), CopyKind::HostToDevice, 100, 3);
        time.copy(19, (1, 7), CopyKind::DeviceToHost, 5, 3);
        assert_eq!(time.now(22), 10, "their bytes cost the host nothing");
        time.record(1, 8);
        time.record(2, 9);
        time.wait_for_event(22, 2);
        assert_eq!(time.now(22), 107, "the other way is another link, free from 7 on");
        time.wait_for_event(30, 1);
        assert_eq!(time.now(30), 207, "behind the first copy of this link");
        time.wait_for_stream(30, 7);
        assert_eq!(time.now(30), 207, "that is over");
        time.reset();
        assert_eq!(time.now(0), 0);
    }
}
