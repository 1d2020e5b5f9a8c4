//! The bytes of a handle.
//!
//! ```text
//! 0       3, the version
//! 1       'c': a fixed segment          'e': granules of one size, 'v': of several
//! 2       64 bytes of the driver        exporter i32, 0 u32, granule u64 ('v': 0), count u64, type i32, 0 u32,
//!                                       of a 'v' per granule its size u64,
//!                                       then per granule a descriptor's number i32 (type 1) or 64 bytes of a fabric (type 2)
//! then    Granule's own part: `OWN_BYTES`, the last 8 of them a checksum of all before
//! ```
//!
//! Up to Granule's own part PyTorch writes and reads the same, except that it leaves the two zeros uninitialised.
//! Granules of several sizes, which PyTorch has no words for, are a kind of their own that PyTorch refuses.

use super::bytes::{Reader, checksum};
use super::export_table::ExportTicket;
use super::other_process::Process;
use crate::backend::IpcMemoryHandle;
use crate::error::Explanation;

const VERSION: u8 = 3;
/// A driver's handle alone, as the oldest versions sent it.
const RAW_BYTES: usize = 64;
const GRANULES_HEADER: usize = 32;
const MAGIC: [u8; 8] = *b"granule1";
/// Length of Granule's own part.
const OWN_BYTES: usize = 8 + 16 + 8 + 4 + 4 + 4 + 8 + 2 + 8 + 4 + 8 + 8 + 8 + 8;
/// PyTorch's numbers of the two handle types.
const POSIX: i32 = 1;
const FABRIC: i32 = 2;

/// The memory that a block lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockMemory {
    /// A whole fixed segment.
    Fixed(IpcMemoryHandle),
    /// Granules: their sizes, and the numbers of the exporter's descriptors.
    Descriptors(Vec<(u64, i32)>),
    /// Granules: their sizes, and fabric handles.
    Fabric(Vec<(u64, [u8; 64])>),
}

/// Allocator whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exporter {
    /// The backend's name, and zeros.
    pub(crate) backend: [u8; 16],
    /// Identity of the device's model.
    pub(crate) model: u64,
    pub(crate) process: Process,
    /// Number of the descriptor of its ledger, and the ledger's nonce.
    pub(crate) ledger: i32,
    pub(crate) nonce: u64,
}

/// Contents of a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) memory: BlockMemory,
    pub(crate) exporter: Exporter,
    pub(crate) ticket: ExportTicket,
    /// Number that tells fixed segments of one exporter apart that had the same address.
    pub(crate) registration: u32,
    /// Bytes of the segment, or of all the granules.
    pub(crate) whole: u64,
    /// Offset of the block in it.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl BlockMemory {
    /// The sizes of its granules; none of a fixed segment.
    fn sizes(&self) -> Vec<u64> {
        match self {
            Self::Fixed(_) => Vec::new(),
            Self::Descriptors(granules) => granules.iter().map(|(bytes, _)| *bytes).collect(),
            Self::Fabric(granules) => granules.iter().map(|(bytes, _)| *bytes).collect(),
        }
    }
}

impl Handle {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut to = vec![VERSION];
        match &self.memory {
            BlockMemory::Fixed(handle) => {
                to.push(b'c');
                to.extend(handle.0);
            }
            BlockMemory::Descriptors(granules) => {
                self.granules_header(&mut to, POSIX);
                to.extend(granules.iter().flat_map(|(_, number)| number.to_le_bytes()));
            }
            BlockMemory::Fabric(granules) => {
                self.granules_header(&mut to, FABRIC);
                to.extend(granules.iter().flat_map(|(_, handle)| *handle));
            }
        }
        let Exporter { backend, model, process, ledger, nonce } = self.exporter;
        to.extend(MAGIC);
        to.extend(backend);
        to.extend(model.to_le_bytes());
        to.extend(process.id.to_le_bytes());
        to.extend(process.started.to_le_bytes());
        to.extend(ledger.to_le_bytes());
        to.extend(nonce.to_le_bytes());
        to.extend(self.ticket.slot.to_le_bytes());
        to.extend(self.ticket.generation.to_le_bytes());
        to.extend(self.registration.to_le_bytes());
        to.extend(self.whole.to_le_bytes());
        to.extend(self.offset.to_le_bytes());
        to.extend(self.bytes.to_le_bytes());
        to.extend(checksum(&to).to_le_bytes());
        to
    }

    fn granules_header(&self, to: &mut Vec<u8>, kind: i32) {
        let sizes = self.memory.sizes();
        let only = sizes.first().copied().filter(|first| sizes.iter().all(|size| size == first));
        to.push(if only.is_some() { b'e' } else { b'v' });
        to.extend(self.exporter.process.id.to_le_bytes());
        to.extend([0; 4]);
        to.extend(only.unwrap_or(0).to_le_bytes());
        to.extend((sizes.len() as u64).to_le_bytes());
        to.extend(kind.to_le_bytes());
        to.extend([0; 4]);
        if only.is_none() {
            to.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
        }
    }

    /// Reads a handle. Any bytes may be given.
    ///
    /// # Errors
    /// Problem with the bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Explanation> {
        let refuse = |text: &str| Err(Explanation::from(text));
        if bytes.len() == RAW_BYTES {
            return refuse(
                "these 64 bytes are a driver's own memory handle, or come from an old version; they do not say which block \
                 they stand for. Export the block with Granule's `share` in the process that owns it",
            );
        }
        let [version, kind, body @ ..] = bytes else {
            return refuse("the handle is cut off: it has less than 2 bytes");
        };
        if *version > VERSION {
            return Err(Explanation::with_pytorch(
                "the handle was made by a newer version than this one; use one version in both processes",
                "received sharable handle from a future version of torch that this version does not know how to handle",
            ));
        }
        if *version < VERSION {
            return Err(format!(
                "the handle has version {version}, which nobody writes any more; use one version in both processes"
            )
            .into());
        }
        let (memory, own) = match kind {
            b'c' => fixed(body)?,
            b'e' => granules(body, false)?,
            b'v' => granules(body, true)?,
            _ => return refuse("unexpected or illformed shareable handle type"),
        };
        if own.len() != OWN_BYTES || !own.starts_with(&MAGIC) {
            return Err(Explanation::with_pytorch(
                "the handle has no part of Granule's: it was cut off, or made by another allocator. Use Granule in both \
                 processes",
                "the handle has no part of Granule's: it was cut off, or made by another allocator (PyTorch's own?). Use \
                 Granule in both processes",
            ));
        }
        let (before, sum) = bytes.split_at(bytes.len() - 8);
        if sum != checksum(before).to_le_bytes() {
            return refuse("the handle was damaged on its way: its checksum does not match");
        }
        let handle = Self::own_part(memory, own).filter(Self::is_sound);
        handle.ok_or_else(|| "the handle contradicts itself; it was not made by Granule".into())
    }

    fn own_part(memory: BlockMemory, own: &[u8]) -> Option<Self> {
        let mut from = Reader::new(own);
        from.array::<8>()?;
        let backend = from.array()?;
        let model = from.u64()?;
        let process = Process { id: from.u32()?, started: from.u32()? };
        let exporter = Exporter { backend, model, process, ledger: from.i32()?, nonce: from.u64()? };
        let ticket = ExportTicket { slot: from.u16()?, generation: from.u64()? };
        let (registration, whole) = (from.u32()?, from.u64()?);
        Some(Self { memory, exporter, ticket, registration, whole, offset: from.u64()?, bytes: from.u64()? })
    }

    fn is_sound(&self) -> bool {
        let granules = match &self.memory {
            BlockMemory::Fixed(_) => Some(self.whole),
            growable => growable
                .sizes()
                .into_iter()
                .try_fold(0, |sum: u64, size| sum.checked_add(size).filter(|_| size > 0)),
        };
        let end = self.offset.checked_add(self.bytes);
        self.bytes > 0
            && granules == Some(self.whole)
            && end.is_some_and(|end| end <= self.whole)
            && self.ticket.is_sound()
            && i32::try_from(self.exporter.process.id).is_ok_and(|id| id > 0)
            && self.exporter.ledger >= 0
    }
}

fn cut() -> String {
    "the handle is cut off: what it announces is not there".into()
}

fn fixed(body: &[u8]) -> Result<(BlockMemory, &[u8]), String> {
    let (handle, rest) = body.split_first_chunk().ok_or_else(cut)?;
    Ok((BlockMemory::Fixed(IpcMemoryHandle(*handle)), rest))
}

/// Granules of one size, or of several, whose sizes are told one by one.
fn granules(body: &[u8], several: bool) -> Result<(BlockMemory, &[u8]), String> {
    let (header, rest) = body.split_at_checked(GRANULES_HEADER).ok_or_else(cut)?;
    let mut header = Reader::new(header);
    let mut fields = || {
        header.array::<8>()?; // the exporter's process is in Granule's own part, too
        Some((header.u64()?, header.u64()?, header.i32()?))
    };
    let (granule, count, kind) = fields().ok_or_else(cut)?;
    if count == 0 {
        return Err("IPC share header describes an empty expandable segment".into());
    }
    let each = match kind {
        POSIX => 4,
        FABRIC => 64,
        _ => return Err(format!("Unknown Expandable_Segments_Handle_Type in IPC share header: {kind}")),
    };
    // Nothing is reserved for handles that are not there.
    let length = |each: usize| usize::try_from(count).ok().and_then(|count| count.checked_mul(each));
    let sizes = if several { length(8) } else { Some(0) };
    let (sizes, rest) = sizes.and_then(|length| rest.split_at_checked(length)).ok_or_else(cut)?;
    let (list, own) = length(each).and_then(|length| rest.split_at_checked(length)).ok_or_else(cut)?;
    let told = sizes.as_chunks().0;
    let size = |n: usize| told.get(n).map_or(granule, |size| u64::from_le_bytes(*size));
    let memory = if kind == POSIX {
        let numbers = list.as_chunks().0.iter().enumerate();
        BlockMemory::Descriptors(numbers.map(|(n, number)| (size(n), i32::from_le_bytes(*number))).collect())
    } else {
        let handles = list.as_chunks().0.iter().enumerate();
        BlockMemory::Fabric(handles.map(|(n, handle)| (size(n), *handle)).collect())
    };
    Ok((memory, own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn handle(memory: BlockMemory, whole: u64) -> Handle {
        let process = Process { id: 4711, started: 99 };
        let exporter = Exporter { backend: [7; 16], model: 5, process, ledger: 9, nonce: 0x1234_5678_9abc };
        let ticket = ExportTicket { slot: 3, generation: 17 };
        Handle { memory, exporter, ticket, registration: 2, whole, offset: 512, bytes: 1024 }
    }

    fn each_kind() -> [Handle; 5] {
        let granule = 2 << 20;
        let numbers = vec![(granule, 4), (granule, 5), (granule, 6)];
        let handles = vec![(granule, [1; 64]), (granule, [2; 64])];
        let several = vec![(3 * granule, 4), (granule, 7)];
        let several_fabric = vec![(granule, [3; 64]), (granule, [1; 64]), (2 * granule, [2; 64])];
        [
            handle(BlockMemory::Fixed(IpcMemoryHandle([8; 64])), 2 << 20),
            handle(BlockMemory::Descriptors(numbers), 3 * granule),
            handle(BlockMemory::Fabric(handles), 2 * granule),
            handle(BlockMemory::Descriptors(several), 4 * granule),
            handle(BlockMemory::Fabric(several_fabric), 4 * granule),
        ]
    }

    #[test]
    fn what_is_written_is_read_and_begins_as_pytorch_writes_it() {
        for one in each_kind() {
            let bytes = one.to_bytes();
            assert_eq!(Handle::from_bytes(&bytes), Ok(one));
        }
        let [fixed, descriptors, _, several, _] = each_kind().map(|one| one.to_bytes());
        assert_eq!((fixed.len() - OWN_BYTES, &fixed[..3]), (66, &[3, b'c', 8][..]));
        assert_eq!(descriptors.len() - OWN_BYTES, 2 + 32 + 12);
        assert_eq!(&descriptors[2..6], &4711_i32.to_le_bytes());
        assert_eq!(&descriptors[6..10], &[0; 4], "padding is zero, so the bytes are the same each time");
        assert_eq!((descriptors[1], &descriptors[10..18]), (b'e', &(2_u64 << 20).to_le_bytes()[..]));
        assert_eq!(&descriptors[34..38], &4_i32.to_le_bytes());
        assert_eq!(several.len() - OWN_BYTES, 2 + 32 + 16 + 8);
        assert_eq!((several[1], &several[10..18]), (b'v', &[0; 8][..]), "PyTorch has no such kind");
        assert_eq!(&several[34..42], &(6_u64 << 20).to_le_bytes());
        assert_eq!(&several[50..54], &4_i32.to_le_bytes());
    }

    #[test]
    fn every_flipped_or_missing_byte_is_refused() {
        for one in each_kind() {
            let bytes = one.to_bytes();
            for at in 0..bytes.len() {
                for flip in [1, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= flip;
                    assert!(Handle::from_bytes(&damaged).is_err(), "byte {at} flipped by {flip:#x}");
                }
                assert!(Handle::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(Handle::from_bytes(&longer).is_err());
        }
    }

    #[test]
    fn sums_that_match_do_not_make_nonsense_good() {
        let [mut fixed, mut descriptors, _, mut several, _] = each_kind();
        fixed.bytes = fixed.whole;
        assert!(Handle::from_bytes(&fixed.to_bytes()).is_err(), "a block reaches beyond its segment");
        descriptors.whole += 512;
        assert!(Handle::from_bytes(&descriptors.to_bytes()).is_err(), "granules are whole");
        several.memory = BlockMemory::Descriptors(vec![(u64::MAX, 4), (1 << 23, 5), (1, 6)]);
        assert!(Handle::from_bytes(&several.to_bytes()).is_err(), "sizes that add up beyond all numbers");
        several.memory = BlockMemory::Descriptors(vec![(1 << 23, 4), (0, 5)]);
        assert!(Handle::from_bytes(&several.to_bytes()).is_err(), "a granule without bytes");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Handle::from_bytes(&bytes);
        }

        /// Bytes that look right at the beginning and at the end, with a matching sum.
        #[test]
        fn almost_right_bytes_are_read_or_refused(
            kind in 0..5_usize,
            changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = each_kind()[kind].to_bytes();
            let end = bytes.len() - 8;
            for (at, byte) in changes {
                bytes[at as usize % end] = byte;
            }
            let sum = checksum(&bytes[..end]).to_le_bytes();
            bytes[end..].copy_from_slice(&sum);
            if let Ok(handle) = Handle::from_bytes(&bytes) {
                prop_assert!(handle.is_sound());
            }
        }
    }
}
