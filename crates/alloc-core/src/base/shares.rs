//! What processes that share a device have agreed on, as figures. [`agreement`](crate::ledger::agreement) says how.

use crate::base::round::format_bytes;
use std::cmp::Reverse;
use std::fmt;

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
    /// Why its terms cannot be agreed on, if so.
    pub(crate) fn problem(&self) -> Option<String> {
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
        format!("Of the others, {}", said.join(", "))
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
