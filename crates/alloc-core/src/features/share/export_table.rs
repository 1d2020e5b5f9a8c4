//! The ledger: blocks of an exporter that can be opened, and their holders.
//!
//! It is a memory file of the exporter, sealed so that nobody can cut it. Importers reach it through the exporter's
//! descriptor, so it has no name that could be left behind, and is out of reach once the exporter has ended. Everything
//! in it is read as if anybody had written it: numbers beyond the page are cut. At worst, nonsense makes a block be
//! refused or stay pending.
//!
//! ```text
//! words 0..8   magic, nonce, cells ever used, zeros
//! slots        the generation that is open there; 0 is none
//! cells        who holds (0: nobody), and what: slot and generation
//! ```

use super::other_process::{GONE, Process};
use crate::sync::plain::AtomicU64;
use crate::sync::{Arc, Mutex, Ordering, Rank};
use memmap2::MmapRaw;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const MAGIC: u64 = u64::from_le_bytes(*b"grledger");
const SLOTS: usize = 1 << 16;
const CELLS: usize = 1 << 16;
const FIRST_SLOT: usize = 8;
const FIRST_CELL: usize = FIRST_SLOT + SLOTS;
const WORDS: usize = FIRST_CELL + 2 * CELLS;
const BYTES: u64 = 8 * WORDS as u64;
const GENERATION_BITS: u32 = 48;
/// Interval at which requests ask if other processes are alive, while blocks wait for these.
const SELDOM: Duration = Duration::from_millis(20);

/// Cells and waiting blocks that a request can afford to look through.
const FEW: usize = 64;

/// A block in a ledger. No two of one ledger are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExportTicket {
    pub(crate) slot: u16,
    pub(crate) generation: u64,
}

impl ExportTicket {
    pub(super) fn is_sound(self) -> bool {
        (1..1 << GENERATION_BITS).contains(&self.generation)
    }

    fn to_word(self) -> u64 {
        u64::from(self.slot) << GENERATION_BITS | self.generation
    }
}

/// The file, mapped.
#[derive(Debug)]
struct Page(MmapRaw);

impl Page {
    /// Refuses a file that is not of the ledger's size, or that could be cut while it is mapped.
    fn map(file: &File) -> io::Result<Self> {
        let whole = file.metadata()?.len() == BYTES && fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        if !whole {
            return Err(io::ErrorKind::InvalidData.into());
        }
        MmapRaw::map_raw(file).map(Self)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS, "words of the page are asked for");
        let at = self.0.as_mut_ptr().cast::<u64>().wrapping_add(index);
        // SAFETY: the mapping is page-aligned, lives as long as `self`, and covers the word, since the file's size was checked
        // and is sealed; every process uses these words atomically only.
        unsafe { AtomicU64::from_ptr(at) }
    }

    fn nonce(&self) -> &AtomicU64 {
        self.word(1)
    }

    fn used(&self) -> &AtomicU64 {
        self.word(2)
    }

    /// Cells beyond were never taken.
    fn cells_used(&self) -> usize {
        usize::try_from(self.used().load(Ordering::SeqCst)).unwrap_or(CELLS).min(CELLS)
    }

    fn slot(&self, slot: u16) -> &AtomicU64 {
        self.word(FIRST_SLOT + usize::from(slot))
    }

    fn holder(&self, cell: usize) -> &AtomicU64 {
        self.word(FIRST_CELL + 2 * cell)
    }

    fn held(&self, cell: usize) -> &AtomicU64 {
        self.word(FIRST_CELL + 2 * cell + 1)
    }
}

/// State known to the exporter only.
#[derive(Debug)]
struct Slots {
    /// Slots that were used and are free again.
    vacant: Vec<u16>,
    next: usize,
    generation: u64,
    /// Time of the last question if the holders are alive.
    asked: Option<Instant>,
}

/// The exporter's end.
#[derive(Debug)]
pub(crate) struct ExportTable {
    page: Page,
    file: File,
    nonce: u64,
    exporter: Process,
    slots: Mutex<Slots>,
}

impl ExportTable {
    /// A new one, of this process. Calls the system, no driver.
    pub(crate) fn new() -> io::Result<Self> {
        let exporter = Process::current()?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("granule-shared-blocks", flags)?);
        file.set_len(BYTES)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let page = Page::map(&file)?;
        // Random, as the keys of hash maps are.
        let nonce = RandomState::new().hash_one(exporter);
        page.nonce().store(nonce, Ordering::SeqCst);
        page.word(0).store(MAGIC, Ordering::SeqCst);
        let slots = Slots { vacant: Vec::new(), next: 0, generation: 0, asked: None };
        Ok(Self { page, file, nonce, exporter, slots: Mutex::new(Rank::Registry, slots) })
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    pub(crate) fn exporter(&self) -> Process {
        self.exporter
    }

    /// The number of its descriptor in this process.
    pub(crate) fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Lets a block be opened from here on; `None` where no more blocks can be shared at the same time.
    pub(crate) fn open(&self) -> Option<ExportTicket> {
        let mut slots = self.slots.lock();
        let slot = match slots.vacant.pop() {
            Some(slot) => slot,
            None => {
                let slot = u16::try_from(slots.next).ok()?;
                slots.next += 1;
                slot
            }
        };
        slots.generation += 1;
        let ticket = ExportTicket { slot, generation: slots.generation };
        self.page.slot(slot).store(ticket.generation, Ordering::SeqCst);
        Some(ticket)
    }

    /// Closes the block: nobody can open it any more. Closing twice is fine.
    pub(crate) fn close(&self, ticket: ExportTicket) {
        let mut slots = self.slots.lock();
        let slot = self.page.slot(ticket.slot);
        // Nobody but this process writes here; a nonsense value stays, and its slot is not used again.
        if slot.load(Ordering::SeqCst) == ticket.generation {
            slot.store(0, Ordering::SeqCst);
            slots.vacant.push(ticket.slot);
        }
    }

    /// Closes the block if nobody alive has it open; returns if it is closed.
    pub(crate) fn withdraw(&self, ticket: ExportTicket) -> bool {
        if self.holds(true).contains(ticket) {
            return false;
        }
        // A free meanwhile waits, and finds it open or withdrawn.
        let mut slots = self.slots.lock();
        let slot = self.page.slot(ticket.slot);
        if slot.compare_exchange(ticket.generation, 0, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return true;
        }
        // A process that noted it before saw it open.
        let is_noted = |cell| {
            self.page.holder(cell).load(Ordering::SeqCst) != 0
                && self.page.held(cell).load(Ordering::SeqCst) == ticket.to_word()
        };
        if (0..self.page.cells_used()).any(is_noted) {
            slot.store(ticket.generation, Ordering::SeqCst);
            return false;
        }
        slots.vacant.push(ticket.slot);
        true
    }

    /// True if a process that is alive holds a block. Asks only about processes that hold it.
    pub(crate) fn is_held(&self, ticket: ExportTicket) -> bool {
        (0..self.page.cells_used()).any(|cell| {
            let holder = self.page.holder(cell).load(Ordering::SeqCst);
            holder != 0
                && self.page.held(cell).load(Ordering::SeqCst) == ticket.to_word()
                && (Process::from_word(holder).is_alive() || !self.free_cell(cell, holder))
        })
    }

    /// Takes a cell from a process that has ended. Its successor may take the cell at the same time; then it keeps it.
    fn free_cell(&self, cell: usize, holder: u64) -> bool {
        self.page.holder(cell).compare_exchange(holder, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// [`holds`](Self::holds), for a request that has this many blocks waiting. `None` where a look costs more than a
    /// request should pay, and was done a short while ago.
    pub(crate) fn holds_in_passing(&self, waiting: usize) -> Option<HeldTickets> {
        let is_due = || self.slots.lock().asked.is_none_or(|asked| asked.elapsed() >= SELDOM);
        (self.page.cells_used() + waiting <= FEW || is_due()).then(|| self.holds(false))
    }

    /// Tickets that other processes hold. Asks if those are alive only if `now`, or after a while: else the dead hold,
    /// too.
    pub(crate) fn holds(&self, now: bool) -> HeldTickets {
        let asks = {
            let mut slots = self.slots.lock();
            let due = now || slots.asked.is_none_or(|asked| asked.elapsed() >= SELDOM);
            if due {
                slots.asked = Some(Instant::now());
            }
            due
        };
        let mut alive: FxHashMap<u64, bool> = FxHashMap::default();
        let mut held = FxHashSet::default();
        for cell in 0..self.page.cells_used() {
            let holder = self.page.holder(cell).load(Ordering::SeqCst);
            if holder == 0 {
                continue;
            }
            if asks && !*alive.entry(holder).or_insert_with(|| Process::from_word(holder).is_alive()) {
                self.free_cell(cell, holder);
                continue;
            }
            held.insert(self.page.held(cell).load(Ordering::SeqCst));
        }
        HeldTickets(held)
    }
}

impl Drop for ExportTable {
    fn drop(&mut self) {
        // Processes that have it mapped see that it is over.
        self.page.nonce().store(0, Ordering::SeqCst);
    }
}

/// The tickets that other processes hold.
#[derive(Debug)]
pub(crate) struct HeldTickets(FxHashSet<u64>);

impl HeldTickets {
    pub(crate) fn contains(&self, ticket: ExportTicket) -> bool {
        self.0.contains(&ticket.to_word())
    }
}

/// An importer's end.
#[derive(Debug)]
pub(crate) struct LedgerView {
    page: Page,
    exporter: Process,
    nonce: u64,
}

impl LedgerView {
    /// Reaches the ledger of another process.
    ///
    /// # Errors
    /// Reason why it cannot be reached.
    pub(crate) fn open(exporter: Process, descriptor: i32, nonce: u64) -> Result<Self, String> {
        if !exporter.is_alive() {
            return Err(GONE.into());
        }
        let path = format!("/proc/{}/fd/{descriptor}", exporter.id);
        // Only a file of the right size is opened: opening other things may have effects.
        let page = std::fs::metadata(&path).and_then(|found| {
            if !found.is_file() || found.len() != BYTES {
                return Err(io::ErrorKind::InvalidData.into());
            }
            Page::map(&File::options().read(true).write(true).open(&path)?)
        });
        let page = page.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => OVER.to_owned(),
            io::ErrorKind::PermissionDenied => format!(
                "process {} may not be looked into ({error}): let both processes be of one user, or share a container's \
                 process names and rights",
                exporter.id
            ),
            _ => format!("process {}, which shared the block, cannot be reached: {error}", exporter.id),
        })?;
        if page.word(0).load(Ordering::SeqCst) != MAGIC || page.nonce().load(Ordering::SeqCst) != nonce {
            return Err(OVER.into());
        }
        Ok(Self { page, exporter, nonce })
    }

    /// True if it is that ledger of that process.
    pub(crate) fn is_of(&self, exporter: Process, nonce: u64) -> bool {
        (self.exporter, self.nonce) == (exporter, nonce)
    }

    /// Notes that `me` holds a block, then looks if it can still be opened.
    ///
    /// # Errors
    /// Reason why it cannot be.
    pub(crate) fn hold(self: &Arc<Self>, me: Process, ticket: ExportTicket) -> Result<HeldBlock, String> {
        let cell = self.take_cell(me).ok_or(
            "65536 blocks of the process that shared this one are open already; close some, or share fewer and larger blocks",
        )?;
        let holding = HeldBlock { view: Arc::clone(self), cell, me };
        self.page.held(cell).store(ticket.to_word(), Ordering::SeqCst);
        if self.page.slot(ticket.slot).load(Ordering::SeqCst) != ticket.generation {
            return Err(STALE.into());
        }
        if self.page.nonce().load(Ordering::SeqCst) != self.nonce {
            return Err(OVER.into());
        }
        if !self.exporter.is_alive() {
            return Err(GONE.into());
        }
        Ok(holding)
    }

    /// A cell that nobody holds, or else one whose holder is dead.
    fn take_cell(&self, me: Process) -> Option<usize> {
        let take = |cell: &usize, from: u64| {
            let taken = self.page.holder(*cell).compare_exchange(
                from,
                me.to_word(),
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            taken.is_ok()
        };
        let vacant = (0..CELLS).find(|cell| take(cell, 0));
        let cell = vacant.or_else(|| {
            (0..CELLS).find(|cell| {
                let holder = self.page.holder(*cell).load(Ordering::SeqCst);
                !Process::from_word(holder).is_alive() && take(cell, holder)
            })
        })?;
        self.page.used().fetch_max(cell as u64 + 1, Ordering::SeqCst);
        Some(cell)
    }
}

const STALE: &str =
    "the block was freed since this handle was made; share it again, and keep it until it is opened";
const OVER: &str = "the allocator that shared the block is gone, and its memory cannot be opened any more";

/// A block that this process holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct HeldBlock {
    view: Arc<LedgerView>,
    cell: usize,
    me: Process,
}

impl Drop for HeldBlock {
    fn drop(&mut self) {
        // A child that inherited this holds nothing.
        if std::process::id() == self.me.id {
            self.view.page.held(self.cell).store(0, Ordering::SeqCst);
            self.view.page.holder(self.cell).store(0, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ends() -> (ExportTable, Arc<LedgerView>) {
        let ledger = ExportTable::new().unwrap();
        let view = LedgerView::open(ledger.exporter(), ledger.descriptor(), ledger.nonce()).unwrap();
        (ledger, Arc::new(view))
    }

    #[test]
    fn a_block_is_held_until_the_holding_ends_and_never_opened_after_it_was_closed() {
        let (ledger, view) = both_ends();
        let me = Process::current().unwrap();
        let (one, other) = (ledger.open().unwrap(), ledger.open().unwrap());
        let holding = view.hold(me, one).unwrap();
        assert!(ledger.holds(true).contains(one) && !ledger.holds(true).contains(other));
        ledger.close(one);
        assert_eq!(view.hold(me, one).unwrap_err(), STALE);
        assert!(ledger.holds(true).contains(one), "closed for new openings, held all the same");
        let again = ledger.open().unwrap();
        assert_eq!((again.slot, again.generation), (one.slot, 3), "the slot is another block's now");
        assert!(!ledger.holds(true).contains(again));
        drop(holding);
        assert!(!ledger.holds(true).contains(one));
        let holding = view.hold(me, other).unwrap();
        assert!(!ledger.withdraw(other) && view.hold(me, other).is_ok(), "what is held stays open");
        drop(holding);
        assert!(ledger.withdraw(other) && view.hold(me, other).is_err());
        assert!(view.hold(me, again).is_ok() && view.hold(me, one).is_err());
        drop(ledger);
        assert_eq!(view.hold(me, again).unwrap_err(), OVER);
    }

    /// A free during a withdrawal that leaves a block open, because somebody has opened it, closes the block for good.
    #[test]
    fn what_is_closed_stays_closed_whoever_withdraws_at_the_same_time() {
        let (ledger, view) = both_ends();
        let me = Process::current().unwrap();
        // Makes the search for holders slow.
        view.page.used().store(CELLS as u64, Ordering::SeqCst);
        let pause = |duration| {
            let begun = Instant::now();
            while begun.elapsed() < duration {
                std::hint::spin_loop();
            }
        };
        for (held, closed) in (0..600).map(|n| (n % 30 * 5, n / 30 * 10)) {
            let ticket = ledger.open().unwrap();
            let begun = AtomicU64::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    begun.store(1, Ordering::SeqCst);
                    ledger.withdraw(ticket)
                });
                while begun.load(Ordering::SeqCst) == 0 {
                    std::hint::spin_loop();
                }
                pause(Duration::from_micros(held));
                let holding = view.hold(me, ticket);
                pause(Duration::from_micros(closed));
                ledger.close(ticket);
                drop(holding);
            });
            assert_ne!(ledger.page.slot(ticket.slot).load(Ordering::SeqCst), ticket.generation, "open again");
        }
    }

    #[test]
    fn requests_look_through_many_cells_seldom() {
        let (ledger, view) = both_ends();
        let ticket = ledger.open().unwrap();
        let _holding = view.hold(Process::current().unwrap(), ticket).unwrap();
        for _ in 0..3 {
            assert!(ledger.holds_in_passing(1).is_some_and(|held| held.contains(ticket)), "few are no price");
        }
        let begun = Instant::now();
        assert!(ledger.holds(true).contains(ticket));
        let put_off = ledger.holds_in_passing(FEW).is_none();
        assert!(put_off || begun.elapsed() >= SELDOM, "many are not looked through again at once");
        std::thread::sleep(SELDOM);
        view.page.used().store(CELLS as u64, Ordering::SeqCst);
        assert!(ledger.holds_in_passing(1).is_some_and(|held| held.contains(ticket)), "they are due");
    }

    #[test]
    fn the_dead_hold_nothing_and_their_cells_are_used_again() {
        let (ledger, view) = both_ends();
        let ticket = ledger.open().unwrap();
        let me = Process::current().unwrap();
        let former = Process { started: me.started ^ 1, ..me };
        std::mem::forget(view.hold(former, ticket).unwrap());
        let begun = Instant::now();
        assert!(ledger.holds(true).0.is_empty(), "the dead were asked for");
        std::mem::forget(view.hold(former, ticket).unwrap());
        let kept = ledger.holds(false).contains(ticket);
        // A busy machine may take so long that they are due again.
        assert!(kept || begun.elapsed() >= SELDOM, "and are not each time");
        for cell in 0..CELLS {
            view.page.holder(cell).store(former.to_word(), Ordering::SeqCst);
        }
        let holding = view.hold(me, ticket).unwrap();
        assert_eq!(holding.cell, 0);
        for cell in 0..CELLS {
            view.page.holder(cell).store(me.to_word(), Ordering::SeqCst);
        }
        assert!(view.hold(me, ticket).unwrap_err().starts_with("65536 blocks"));
    }

    #[test]
    fn nonsense_in_the_page_is_survived() {
        let (ledger, view) = both_ends();
        let ticket = ledger.open().unwrap();
        for word in 2..WORDS {
            view.page.word(word).store(u64::MAX - word as u64, Ordering::SeqCst);
        }
        assert!(!ledger.holds(true).contains(ticket), "no such processes");
        assert_eq!(view.hold(Process::current().unwrap(), ticket).unwrap_err(), STALE);
        ledger.close(ticket);
        assert_ne!(ledger.open().unwrap().slot, ticket.slot, "a slot that was written to is not used again");
    }

    #[test]
    fn what_is_no_ledger_is_not_mapped() {
        let (ledger, _) = both_ends();
        let me = ledger.exporter();
        let refused = |process, descriptor, nonce| LedgerView::open(process, descriptor, nonce).unwrap_err();
        assert_eq!(refused(me, ledger.descriptor(), ledger.nonce() ^ 1), OVER);
        assert_eq!(refused(me, i32::MAX, ledger.nonce()), OVER);
        assert_eq!(refused(me, 0, ledger.nonce()), OVER, "standard input");
        let unsealed = File::from(memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap());
        unsealed.set_len(BYTES).unwrap();
        assert_eq!(refused(me, unsealed.as_raw_fd(), ledger.nonce()), OVER);
        assert_eq!(
            refused(Process { started: me.started ^ 1, ..me }, ledger.descriptor(), ledger.nonce()),
            GONE
        );
    }

    #[test]
    fn every_slot_can_be_open_and_one_more_is_refused() {
        let ledger = ExportTable::new().unwrap();
        let tickets: Vec<_> = std::iter::from_fn(|| ledger.open()).collect();
        assert_eq!(tickets.len(), SLOTS);
        ledger.close(tickets[9]);
        ledger.close(tickets[9]);
        assert_eq!(ledger.open().map(|ticket| ticket.slot), Some(9));
        assert_eq!(ledger.open(), None);
    }
}
