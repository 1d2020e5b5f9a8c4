//! Ranges that the program marks, for the timeline of snapshots. PyTorch: `recordAnnotation`.

use crate::sync::Arc;
use crate::types::DeviceIndex;
use crate::watch::snapshot::Value;
use std::collections::VecDeque;

/// Begin or end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It begins.
    Start,
    /// It ends.
    End,
}

impl Stage {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "START",
            Self::End => "END",
        }
    }
}

#[derive(Debug)]
struct Annotation {
    stage: Stage,
    name: Arc<str>,
    device: DeviceIndex,
    time_us: i64,
}

/// The newest marks.
#[derive(Debug, Default)]
pub(crate) struct Annotations {
    marks: VecDeque<Annotation>,
    capacity: usize,
}

impl Annotations {
    /// Keeps the newest `capacity` marks, and no fewer than there are; 0 forgets all and keeps none.
    pub(crate) fn configure(&mut self, capacity: usize, clear: bool) {
        if clear || capacity == 0 {
            self.marks.clear();
        }
        self.capacity = if capacity == 0 { 0 } else { capacity.max(self.marks.len()) };
    }

    pub(crate) fn mark(&mut self, stage: Stage, name: &str, device: DeviceIndex, time_us: i64) {
        if self.capacity == 0 {
            return;
        }
        if self.marks.len() == self.capacity {
            self.marks.pop_front();
        }
        self.marks.push_back(Annotation { stage, name: name.into(), device, time_us });
    }

    /// As snapshots have them.
    pub(crate) fn values(&self) -> Vec<Value> {
        let value = |mark: &Annotation| {
            let fields = [
                ("stage", mark.stage.name().into()),
                ("name", Value::Str(Arc::clone(&mark.name))),
                ("device", Value::Int(i64::from(mark.device.0))),
                ("time_us", Value::Int(mark.time_us)),
            ];
            Value::Dict(fields.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
        };
        self.marks.iter().map(value).collect()
    }
}
