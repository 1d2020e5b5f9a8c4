//! Reuse within a graph under capture (`graph_capture_record_stream_reuse`): a deferred block is free for its own
//! stream as soon as the graph itself orders that stream's next work after every use.
//!
//! A free notes the *markers*: the nodes on which the next work of each stream concerned would depend. When all of them
//! precede the next work of the block's stream, the streams have joined.

use super::DeviceAllocator;
use super::capture::Deferred;
use crate::arena::directory::PoolSlot;
use crate::backend::{Capture, CaptureNode, CaptureStatus, Result};
use crate::lifetimes::call::Call;
use crate::lifetimes::uses::{Use, User};
use crate::process::stream_identity::named;
use crate::types::Stream;
use rustc_hash::FxHashSet;

impl DeviceAllocator {
    /// What has to precede the next use of a block; nothing where only the end of the capture will do.
    pub(super) fn markers(&self, own: Option<Stream>, uses: &[Use]) -> Vec<CaptureNode> {
        let Some(own) = own else { return Vec::new() };
        if !self.state.lock().settings.graph_capture_record_stream_reuse {
            return Vec::new();
        }
        let Ok(capture) = self.backend.capture() else { return Vec::new() };
        let live = |found: &Use| match &found.user {
            User::Live(stream) if found.captured.is_some() => Some(*stream),
            _ => None,
        };
        let Some(streams) = uses.iter().map(live).collect::<Option<Vec<_>>>() else { return Vec::new() };
        let markers = frontiers(capture, std::iter::once(own).chain(streams));
        markers.unwrap_or_else(|error| {
            self.backend.clear_error();
            tracing::debug!(%error, "a graph's nodes could not be read; the block waits for the end of the capture");
            Vec::new()
        })
    }

    /// Frees the deferred blocks of `stream`, which is being captured, whose uses all precede its next work.
    pub(super) fn reuse_joined(&self, stream: Stream) {
        let own = |deferred: &Deferred| deferred.own == Some(stream) && !deferred.markers.is_empty();
        if !self.captures.lock().deferred.iter().any(own) {
            return;
        }
        let Ok(capture) = self.backend.capture() else { return };
        let Some(id) = self.capture_of(stream) else { return };
        let mut before = self.captures.lock().before.remove(&(stream.raw, id)).unwrap_or_default();
        if let Err(error) = look_back(capture, stream, &mut before) {
            self.backend.clear_error();
            tracing::warn!(%error, "a graph's order could not be read (conditional nodes?); its memory is reused after the capture");
        }
        let _blocks = self.in_transit();
        let joined = {
            let mut captures = self.captures.lock();
            let ready = |d: &mut Deferred| own(d) && d.markers.iter().all(|marker| before.contains(marker));
            let joined: Vec<Deferred> = captures.deferred.extract_if(.., ready).collect();
            captures.before.insert((stream.raw, id), before);
            joined
        };
        self.finish_deferred(joined);
    }

    /// The scope of a pool ends: with the option on, those of its deferred blocks whose capture is over are free for the
    /// graphs that come, also while others go on. A scope that ends within its capture orders nothing.
    pub(super) fn end_reuse(&self, slot: PoolSlot) {
        if !self.state.lock().settings.graph_capture_record_stream_reuse {
            return;
        }
        let within = |d: &Deferred| d.slot == slot && d.uses.iter().all(|found| found.captured.is_some());
        let (_named, users) = {
            let captures = self.captures.lock();
            let uses: Vec<&Use> =
                captures.deferred.iter().filter(|d| within(d)).flat_map(|d| &d.uses).collect();
            let users: FxHashSet<Stream> = uses.iter().filter_map(|found| found.user.live()).collect();
            (self.name(uses), users)
        };
        let at_rest: FxHashSet<Stream> =
            users.into_iter().filter(|stream| !self.may_be_capturing(*stream)).collect();
        let over = |d: &Deferred| {
            d.uses.iter().filter_map(|found| found.user.live()).all(|stream| at_rest.contains(&stream))
        };
        let _blocks = self.in_transit();
        let mut captures = self.captures.lock();
        let ended: Vec<Deferred> = captures.deferred.extract_if(.., |d| within(d) && over(d)).collect();
        drop(captures);
        self.finish_deferred(ended);
    }

    fn finish_deferred(&self, deferred: Vec<Deferred>) {
        for Deferred { block, uses, .. } in deferred {
            self.pending.end_uses(uses.iter());
            uses.iter().for_each(|_| self.event_done(block, &Call::PLAIN));
        }
    }
}

/// The nodes on which the next work of the streams would depend. All of them have to be part of one capture; if
/// not, there are none.
fn frontiers(capture: &dyn Capture, streams: impl Iterator<Item = Stream>) -> Result<Vec<CaptureNode>> {
    let mut common = None;
    let mut nodes = Vec::new();
    for stream in streams {
        let stream = named(stream)?;
        let CaptureStatus::Active(id) = capture.status(stream)? else { return Ok(Vec::new()) };
        if common.replace(id).is_some_and(|other| other != id) {
            return Ok(Vec::new());
        }
        nodes.extend(capture.frontier(stream)?);
    }
    Ok(nodes)
}

/// Adds all nodes that precede the stream's next work.
fn look_back(capture: &dyn Capture, stream: Stream, before: &mut FxHashSet<CaptureNode>) -> Result<()> {
    let stream = named(stream)?;
    let mut ahead = capture.frontier(stream)?;
    while let Some(node) = ahead.pop() {
        if before.insert(node) {
            ahead.extend(capture.dependencies(stream, node)?);
        }
    }
    Ok(())
}
