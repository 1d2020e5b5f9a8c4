//! State of the recording of history.

use crate::sync::Arc;
use crate::watch::history::Stamps;
use crate::watch::snapshot::HistoryStatus;

/// State of the recording of history.
#[derive(Clone, Debug)]
pub(in crate::device) struct RecordingState {
    pub(in crate::device) max_entries: usize,
    pub(in crate::device) stamps: Arc<Stamps>,
    /// Hand-outs before recording began.
    pub(in crate::device) missed: u64,
    /// Records made before the program last cleared the history.
    pub(in crate::device) cleared: u64,
    /// Actions were skipped at some time.
    pub(in crate::device) skipped: bool,
}

impl RecordingState {
    /// Number of `held` records that are shown.
    pub(in crate::device) fn kept(&self, held: usize) -> usize {
        held.min(self.max_entries)
    }

    /// Status of a history that has `held` records now.
    pub(in crate::device) fn status(&self, held: usize) -> HistoryStatus {
        let overwritten = (self.stamps.made() - self.cleared).saturating_sub(self.kept(held) as u64);
        HistoryStatus {
            recorded: true,
            complete: overwritten == 0 && self.missed == 0 && self.cleared == 0 && !self.skipped,
            overwritten,
            before_recording: self.missed,
        }
    }
}
