//! Messages between two processes.

use super::ChildCommand;
use crate::Outcome;
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// No message is longer.
const LONGEST: usize = 16 << 10;

/// What a child is asked to do. Memory is that of the child's first device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Take device memory: `Address`.
    Malloc { bytes: u64 },
    /// Give device memory back.
    Free { at: u64 },
    /// Write the pattern of `seed`.
    Write { at: u64, bytes: usize, seed: u8 },
    /// Whether the pattern of `seed` is there: `Holds`.
    Holds { at: u64, bytes: usize, seed: u8 },
    /// Export memory: `Handle`.
    ExportMemory { at: u64 },
    /// Open exported memory: `Address`.
    OpenMemory { handle: Vec<u8> },
    /// Close opened memory.
    CloseMemory { at: u64 },
    /// Create exportable physical memory of `granules` recommended granules, write the pattern of `seed` to
    /// it, and export it: `Address` and a descriptor.
    ExportPhysical { granules: u64, seed: u8 },
    /// Run a check of the kit; `child` starts a second process from there: `Ended`.
    Check { name: String, deadline: Duration, patience: Duration, child: ChildCommand },
    /// Import the physical memory of the descriptor sent along, and map it: `Address`.
    ImportPhysical { bytes: u64 },
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// Where.
    Address(u64),
    /// How a check ended.
    Ended(Outcome),
    /// Yes or no.
    Holds(bool),
    /// 64 bytes for the other process.
    Handle(Vec<u8>),
    /// The backend refused.
    Refused {
        /// The whole error.
        text: String,
    },
}

/// One end of a conversation.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Link {
    /// Both ends; the second is for the child.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// The child's end.
    pub(crate) fn standard_input() -> io::Result<Self> {
        io::stdin().as_fd().try_clone_to_owned().map(Self)
    }

    /// Sends a message.
    pub(crate) fn send(&self, message: &impl Serialize, descriptor: Option<&OwnedFd>) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.map(AsFd::as_fd);
        if !along.push(SendAncillaryMessage::ScmRights(descriptors.as_slice())) {
            return Err(io::Error::other("a descriptor does not fit into a message"));
        }
        // The other process may have died: that is an error here, not a signal.
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut along, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// From now on, who waits for a message waits no longer than this.
    pub(super) fn limit(&self, limit: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, Some(limit))?)
    }

    /// Waits for a message; `None` where the other process has gone.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut bytes = vec![0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        // A signal, such as a profiler's, ends no wait.
        let got = retry_on_intr(|| recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut along, flags));
        let length = match got {
            Ok(got) => got.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        if length == 0 {
            return Ok(None);
        }
        let descriptor = along.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Ok(Some((serde_json::from_slice(&bytes[..length])?, descriptor)))
    }
}
