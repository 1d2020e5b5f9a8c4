//! What processes of a user agree on, who share a device: each is guaranteed something, and takes more where the others'
//! guarantees leave it. No process serves the others, and none has to be there first.
//!
//! Each says its terms, and what it claims, in its published file ([`registry`](super::registry)). Whoever wants more takes a lock
//! that all of them take, sums the claims of processes that run, and writes its own. Giving back needs no lock. The kernel takes the
//! lock from a process that ends. What an ended process claimed counts until somebody would be refused: then files are
//! looked through again, and those of ended processes go.

use super::registry::{self, Entry, Open, Published, Share, Uuid};
use crate::base::round::format_bytes;
use std::cmp::Reverse;
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

/// A process that agrees on a device with others. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The process.
    pub pid: u32,
    /// What is kept for it.
    pub guarantee: u64,
    /// What it claims: holds, or is about to take.
    pub claimed: u64,
}

impl Member {
    /// What is guaranteed to it, and not claimed by it yet.
    #[must_use]
    pub const fn kept(&self) -> u64 {
        self.guarantee.saturating_sub(self.claimed)
    }
}

/// What is agreed on, and by whom: a quota with the processes behind its sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// This process's quota.
    pub quota: Quota,
    /// The other processes, by number.
    pub others: Vec<Member>,
}

impl Shares {
    /// Of process `own`, whose allocator that asks has `share`; `entries` are the other allocators'.
    fn new(own: u32, share: Share, entries: impl Iterator<Item = Entry>) -> Self {
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
        Self { quota, others }
    }

    /// Why its terms cannot be agreed on, if so.
    fn problem(&self) -> Option<String> {
        let Quota { guarantee, limit, claimed, others, kept_for_others, .. } = self.quota;
        let taken = others.saturating_add(kept_for_others);
        if taken.saturating_add(guarantee.max(claimed)) <= limit {
            return None;
        }
        let [wanted, limit] = [guarantee, limit].map(format_bytes);
        Some(if self.others.is_empty() {
            format!(
                "this process is to be guaranteed {wanted} (process_guarantee), and may hold {limit} at most (processes_limit, or \
                 all memory of the device): set process_guarantee to no more than that"
            )
        } else {
            format!(
                "this process is to be guaranteed {wanted} (process_guarantee), other processes hold {} and are guaranteed {} more, \
                 and all of them may hold {limit} together (processes_limit). {}. Set process_guarantee to {} or less, raise \
                 processes_limit in all of them, or let the others free memory or end first",
                format_bytes(others),
                format_bytes(kept_for_others),
                self.by_process(),
                format_bytes(self.quota.limit.saturating_sub(taken))
            )
        })
    }

    /// Who has what, most first. Beyond a few, the rest together.
    fn by_process(&self) -> String {
        const NAMED: usize = 4;
        let mut members = self.others.clone();
        members.sort_by_key(|member| Reverse(member.claimed.max(member.guarantee)));
        let one = |member: &Member| {
            let [claimed, guarantee] = [member.claimed, member.guarantee].map(format_bytes);
            format!("process {} holds {claimed} of {guarantee} guaranteed to it", member.pid)
        };
        let mut said: Vec<_> = members.iter().take(NAMED).map(one).collect();
        if let Some(more) = members.len().checked_sub(NAMED).filter(|more| *more > 0) {
            let held = members[NAMED..].iter().map(|member| member.claimed).fold(0, u64::saturating_add);
            said.push(format!("{more} more hold {}", format_bytes(held)));
        }
        let text = said.join(", ");
        text.strip_prefix('p').map_or_else(String::new, |rest| format!("P{rest}"))
    }

    /// What would let this process have more.
    pub(crate) fn way_out(&self) -> String {
        let kept = if self.quota.kept_for_others > 0 { ", lowering process_guarantee in them" } else { "" };
        let least =
            if self.quota.processes > 1 { " in each process, for the least of them counts" } else { "" };
        let others =
            if self.quota.others > 0 { ", or letting the others give memory back (empty_cache)" } else { "" };
        format!("raising processes_limit (now {}{least}){kept}{others}", format_bytes(self.quota.limit))
    }
}

/// Why a request is refused by it.
impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quota { limit, claimed, processes, .. } = self.quota;
        let [limit, claimed, left] = [limit, claimed, self.quota.left()].map(format_bytes);
        let who =
            if processes == 1 { "it alone".to_owned() } else { format!("{processes} processes together") };
        write!(
            f,
            "The quota of this process refuses it: {who} may hold {limit} (processes_limit), this one holds {claimed} and may take \
             {left} more."
        )?;
        if self.others.is_empty() { Ok(()) } else { write!(f, " {}.", self.by_process()) }
    }
}

impl Quota {
    /// What this process may take now.
    #[must_use]
    pub fn left(&self) -> u64 {
        let taken = self.claimed.saturating_add(self.others).saturating_add(self.kept_for_others);
        self.limit.saturating_sub(taken).max(self.guarantee.saturating_sub(self.claimed))
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
        Shares::new(std::process::id(), Share { claimed, ..self.share }, entries)
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
