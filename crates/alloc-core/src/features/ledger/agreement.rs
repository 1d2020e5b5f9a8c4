//! What processes of a user agree on, who share a device: each is guaranteed something, and takes more where the others'
//! guarantees leave it. No process serves the others, and none has to be there first.
//!
//! Each says its terms, and what it claims, in its published file ([`registry`](super::registry)). Whoever wants more takes a lock
//! that all of them take, sums the claims of processes that run, and writes its own. Giving back needs no lock. The kernel takes the
//! lock from a process that ends. What an ended process claimed counts until somebody would be refused: then files are
//! looked through again, and those of ended processes go.

pub use crate::base::shares::{Member, Quota, Shares};

use super::registry::{self, Entry, Open, Published, Share, Uuid};
use crate::process::own;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What processes have agreed on: of process `own`, whose allocator that asks has `share`; `entries` are the other allocators'.
fn shares(own: u32, share: Share, entries: impl Iterator<Item = Entry>) -> Shares {
    let mut limit = share.limit;
    let (mut guarantee, mut claimed) = (share.guarantee, share.claimed);
    let mut others: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for Entry { pid, share, .. } in entries {
        let Some(share) = share else { continue };
        limit = limit.min(share.limit);
        // A process is guaranteed the most that one of its allocators asks for.
        let (promised, held) = match pid == own {
            true => (&mut guarantee, &mut claimed),
            false => {
                let (promised, held) = others.entry(pid).or_default();
                (promised, held)
            }
        };
        *promised = share.guarantee.max(*promised);
        *held = held.saturating_add(share.claimed);
    }
    let member = |(pid, (guarantee, claimed))| Member { pid, guarantee, claimed };
    let others: Vec<_> = others.into_iter().map(member).collect();
    let sum = |of: fn(&Member) -> u64| others.iter().map(of).fold(0, u64::saturating_add);
    let quota = Quota {
        guarantee,
        limit,
        claimed,
        others: sum(|member| member.claimed),
        kept_for_others: sum(Member::kept),
        processes: others.len() as u64 + 1,
    };
    Shares { quota, others }
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
        own::make_folder(folder).map_err(problem)?;
        let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = OpenOptions::new();
        let lock = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = own::file(&folder.join(format!("agreement-{name}")), lock).map_err(problem)?;
        let mut it = Self { folder: folder.to_owned(), uuid, share, lock, seen: 0, members: Vec::new() };
        let held = Held::new(&it.lock).map_err(problem)?;
        it.members = members(folder, uuid, None);
        if let Some(problem) = it.shares(0).problem() {
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
        let known = count == self.seen && wanted <= self.shares(before).quota.left();
        if !known {
            self.members = members(&self.folder, self.uuid, Some(published.path()));
            self.seen = count;
        }
        let admitted = known || wanted <= self.shares(before).quota.left();
        if admitted {
            published.claim(claimed);
        }
        admitted
    }

    /// What this process may hold, with `claimed` bytes of the allocator that asks.
    pub(crate) fn shares(&self, claimed: u64) -> Shares {
        let entries = self.members.iter().filter_map(|member| member.read(self.uuid));
        shares(std::process::id(), Share { claimed, ..self.share }, entries)
    }

    /// The same, of those who agree and run now.
    pub(crate) fn latest(&mut self, published: &Published, claimed: u64) -> Quota {
        // Nobody takes while it is held: what is read of one after the other adds up to no more than they had at once.
        let _held = Held::new(&self.lock);
        self.members = members(&self.folder, self.uuid, Some(published.path()));
        self.shares(claimed).quota
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
