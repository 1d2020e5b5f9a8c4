//! What processes of a user agree on, who share a device: each is guaranteed something, and takes more where the others'
//! guarantees leave it. No process serves the others, and none has to be there first.
//!
//! Each says its terms, and what it claims, in its published file ([`registry`](super::registry)). Whoever wants more takes a lock
//! that all of them take, sums the claims of processes that run, and writes its own. Giving back needs no lock. The kernel takes the
//! lock from a process that ends. What an ended process claimed counts until somebody would be refused: then files are
//! looked through again, and those of ended processes go.

use super::registry::{self, Entry, Open, Published, Share, Uuid};
use crate::base::round::format_bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a process may hold of a device by what it has agreed on with others. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// What is kept for this process (`process_guarantee`).
    pub guarantee: u64,
    /// What all who agree may hold together (`processes_limit`): the least that any of them says.
    pub limit: u64,
    /// What this process claims: holds, or is about to take.
    pub claimed: u64,
    /// What the others claim.
    pub others: u64,
    /// What is guaranteed to others, and not claimed by them yet.
    pub kept_for_others: u64,
    /// How many processes agree, this one included.
    pub processes: u64,
}

impl Quota {
    /// Of process `own`, whose allocator that asks has `share`; `entries` are the other allocators'.
    fn new(own: u32, share: Share, entries: impl Iterator<Item = Entry>) -> Self {
        let mut quota = Self {
            guarantee: share.guarantee,
            limit: share.limit,
            claimed: share.claimed,
            others: 0,
            kept_for_others: 0,
            processes: 1,
        };
        let mut others: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for Entry { pid, share, .. } in entries {
            let Some(Share { guarantee, limit, claimed }) = share else { continue };
            quota.limit = quota.limit.min(limit);
            // A process is guaranteed the most that one of its allocators asks for.
            let (promised, held) = match pid == own {
                true => (&mut quota.guarantee, &mut quota.claimed),
                false => {
                    let (promised, held) = others.entry(pid).or_default();
                    (promised, held)
                }
            };
            *promised = guarantee.max(*promised);
            *held = held.saturating_add(claimed);
        }
        for (guarantee, claimed) in others.values() {
            quota.others = quota.others.saturating_add(*claimed);
            quota.kept_for_others = quota.kept_for_others.saturating_add(guarantee.saturating_sub(*claimed));
            quota.processes += 1;
        }
        quota
    }

    /// What this process may take now.
    #[must_use]
    pub fn left(&self) -> u64 {
        let taken = self.claimed.saturating_add(self.others).saturating_add(self.kept_for_others);
        self.limit.saturating_sub(taken).max(self.guarantee.saturating_sub(self.claimed))
    }

    /// Why its terms cannot be agreed on, if so.
    fn problem(&self) -> Option<String> {
        let Self { guarantee, limit, claimed, others, kept_for_others, .. } = *self;
        let taken = others.saturating_add(kept_for_others);
        (taken.saturating_add(guarantee.max(claimed)) > limit).then(|| {
            format!(
                "this process is to be guaranteed {} (process_guarantee), other processes hold {} and are guaranteed {} more, and \
                 all of them may hold {} together (processes_limit); ask for less, or let the others free memory or end first",
                format_bytes(guarantee),
                format_bytes(others),
                format_bytes(kept_for_others),
                format_bytes(limit)
            )
        })
    }
}

/// As a limit that refuses is named.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [limit, others, kept] = [self.limit, self.others, self.kept_for_others].map(format_bytes);
        write!(
            f,
            "what other processes leave of the {limit} that {} may hold together (processes_limit): ",
            self.processes
        )?;
        write!(f, "they hold {others} and are guaranteed {kept} more (process_guarantee)")
    }
}

/// An allocator's part in what processes agree on about a device.
#[derive(Debug)]
pub(crate) struct Agreement {
    folder: PathBuf,
    uuid: Uuid,
    share: Share,
    /// Locked by whoever takes. Its contents count who came and went.
    lock: File,
    /// The count at which `members` were looked for.
    seen: u64,
    members: Vec<Open>,
}

impl Agreement {
    /// Agrees to `share`, with all who have agreed before, or says why not. May block on the file system.
    pub(crate) fn join(folder: &Path, uuid: Uuid, share: Share) -> Result<(Self, Published), String> {
        let problem = |error: io::Error| {
            format!(
                "other processes cannot be told of it in {} ({error}); let XDG_RUNTIME_DIR name a folder that is this user's \
                 alone, or leave process_guarantee and processes_limit unset",
                folder.display()
            )
        };
        registry::make_folder(folder).map_err(problem)?;
        let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = OpenOptions::new();
        let lock = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(folder.join(format!("agreement-{name}"))).map_err(problem)?;
        let mut it = Self { folder: folder.to_owned(), uuid, share, lock, seen: 0, members: Vec::new() };
        let held = Held::new(&it.lock).map_err(problem)?;
        it.members = members(folder, uuid, None);
        if let Some(problem) = it.quota(0).problem() {
            return Err(problem);
        }
        let published = Published::new(folder, uuid, Some(share)).map_err(problem)?;
        held.count().map_err(problem)?;
        drop(held);
        Ok((it, published))
    }

    /// Claims `claimed` bytes in all, where what is agreed admits that they grow so. Waits for other processes that claim at
    /// this moment: each of them reads a few words meanwhile.
    pub(crate) fn claim(&mut self, published: &Published, before: u64, claimed: u64) -> bool {
        let held = Held::new(&self.lock);
        if let Err(error) = &held {
            tracing::warn!(%error, "the lock of processes that share a device cannot be had; two of them may take the same bytes");
        }
        let count = held.as_ref().map_or(self.seen, Held::counted);
        let wanted = claimed.saturating_sub(before);
        let known = count == self.seen && wanted <= self.quota(before).left();
        if !known {
            self.members = members(&self.folder, self.uuid, Some(published.path()));
            self.seen = count;
        }
        let admitted = known || wanted <= self.quota(before).left();
        if admitted {
            published.claim(claimed);
        }
        admitted
    }

    /// What this process may hold, with `claimed` bytes of the allocator that asks.
    pub(crate) fn quota(&self, claimed: u64) -> Quota {
        let entries = self.members.iter().filter_map(|member| member.read(self.uuid));
        Quota::new(std::process::id(), Share { claimed, ..self.share }, entries)
    }

    /// The same, of those who agree and run now.
    pub(crate) fn latest(&mut self, published: &Published, claimed: u64) -> Quota {
        // Nobody takes while it is held: what is read of one after the other adds up to no more than they had at once.
        let _held = Held::new(&self.lock);
        self.members = members(&self.folder, self.uuid, Some(published.path()));
        self.quota(claimed)
    }
}

/// Files of those who agree and run, without the file `own`.
fn members(folder: &Path, uuid: Uuid, own: Option<&Path>) -> Vec<Open> {
    let agrees = |file: &Open| file.read(uuid).is_some_and(|entry| entry.share.is_some());
    registry::files(folder, own).into_iter().filter(agrees).collect()
}

/// The lock of a device's processes, until this is dropped.
struct Held<'a>(&'a File);

impl<'a> Held<'a> {
    fn new(file: &'a File) -> io::Result<Self> {
        loop {
            match file.lock() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map(|()| Self(file)),
            }
        }
    }

    /// How many have come.
    fn counted(&self) -> u64 {
        let mut bytes = [0; 8];
        // A new file has no count yet.
        let read = self.0.read_at(&mut bytes, 0).unwrap_or(0);
        if read == bytes.len() { u64::from_le_bytes(bytes) } else { 0 }
    }

    /// Somebody has come: others look for members again.
    fn count(&self) -> io::Result<()> {
        self.0.write_all_at(&(self.counted() + 1).to_le_bytes(), 0)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the lock of processes that share a device is held until this process lets it go");
        }
    }
}
