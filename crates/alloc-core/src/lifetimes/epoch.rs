//! Epochs: which of a stream's frees are done on the device.
//!
//! Reusing an address on its own stream needs no event; giving memory back to the device, or moving it, does. A free
//! only notes its stream's current epoch, without a driver call. Before memory leaves, the stream's epochs up to that
//! one must be *closed*: the host has seen everything queued before their end finish. Memory whose epoch is closed
//! already needs no waiting.

/// The epochs of one stream.
#[derive(Debug)]
pub(crate) struct Epochs {
    current: u64,
    closed: u64,
}

impl Default for Epochs {
    /// Epoch 0 is that of memory never used, and closed from the start.
    fn default() -> Self {
        Self { current: 1, closed: 0 }
    }
}

impl Epochs {
    /// The epoch a free belongs to now.
    #[inline]
    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    /// True if the device is done with everything freed in `epoch`.
    pub(crate) fn is_closed(&self, epoch: u64) -> bool {
        epoch <= self.closed
    }

    /// Begins a new epoch and returns the one that ends: once the host has seen the stream pass this
    /// point, [`close`](Self::close) it.
    pub(crate) fn seal(&mut self) -> u64 {
        let sealed = self.current;
        self.current += 1;
        sealed
    }

    /// All work queued before `epoch` was sealed is finished.
    pub(crate) fn close(&mut self, epoch: u64) {
        debug_assert!(epoch < self.current, "only sealed epochs can be closed");
        self.closed = self.closed.max(epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_closes_with_all_before_it_and_not_after() {
        let mut epochs = Epochs::default();
        assert!(epochs.is_closed(0), "fresh memory needs no waiting");
        let before = epochs.current();
        assert!(!epochs.is_closed(before));
        let sealed = epochs.seal();
        let after = epochs.current();
        epochs.close(sealed);
        assert!(epochs.is_closed(before));
        assert!(!epochs.is_closed(after), "what was freed after sealing still waits");
    }
}
