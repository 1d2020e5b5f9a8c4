//! Rules by which a driver refuses calls.

use super::words::{Vendor, amount, no_call};
use crate::{Answer, Code, contexts};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// One rule. Conditions on arguments exclude one another; without any, it is about every call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Rule {
    calls: Vec<String>,
    answer: i32,
    /// Only memory that was made so.
    made_with: Option<With>,
    /// Only requests of more than this.
    above: Option<String>,
    /// Only requests beyond this in all: of the device's memory, or of page-locked memory.
    beyond: Option<String>,
    /// Only so many times.
    first: Option<u64>,
    /// Only on threads without a current context.
    #[serde(default)]
    without_context: bool,
    /// After a refusal of a size, so many calls answer the same, whatever they ask for.
    #[serde(default)]
    repeats: u64,
    #[serde(skip)]
    struck: Arc<AtomicU64>,
    /// How often it is still repeated.
    #[serde(skip)]
    left: Arc<AtomicU64>,
}

/// A property of physical memory.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum With {
    Rdma,
    Descriptor,
    Fabric,
}

/// How physical memory was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    /// For network cards.
    pub rdma: bool,
    /// The handle types that were asked for, as the driver numbers them: 1 descriptors, 8 fabric.
    pub handle_types: u32,
}

impl Made {
    const fn has(self, property: With) -> bool {
        match property {
            With::Rdma => self.rdma,
            With::Descriptor => self.handle_types & 1 != 0,
            With::Fabric => self.handle_types & 8 != 0,
        }
    }
}

impl Rule {
    /// Whether the rule makes sense.
    pub(crate) fn check(&self, vendor: &Vendor) -> Result<(), String> {
        let all = |known: &[&str]| self.calls.iter().all(|call| known.contains(&call.as_str()));
        let known = (vendor.calls)();
        if let Some(unknown) = self.calls.iter().find(|call| !known.contains(&call.as_str())) {
            return Err(no_call(unknown, vendor));
        }
        let conditions =
            [self.made_with.is_some(), self.above.is_some(), self.beyond.is_some(), self.without_context];
        if conditions.iter().filter(|there| **there).count() > 1 {
            return Err(format!("{:?}: one of made-with, above, beyond and without-context", self.calls));
        }
        if self.repeats > 0 && self.above.is_none() && self.beyond.is_none() {
            return Err(format!("{:?}: only refusals of sizes (above, beyond) are repeated", self.calls));
        }
        for text in [&self.above, &self.beyond].into_iter().flatten() {
            amount(text, 0).ok_or_else(|| format!("`{text}` is no size: write 75% or 2GiB"))?;
            if !all(vendor.sized) {
                return Err(format!(
                    "{:?} cannot depend on sizes; these can: {}",
                    self.calls,
                    vendor.sized.join(", ")
                ));
            }
        }
        if self.made_with.is_some() && !all(vendor.about_memory) {
            let can = vendor.about_memory.join(", ");
            return Err(format!("{:?} cannot depend on how memory was made; these can: {can}", self.calls));
        }
        Ok(())
    }

    fn is_about(&self, function: &str) -> bool {
        self.calls.iter().any(|call| call == function)
    }

    fn strike(&self) -> Answer {
        let is_first = self.first.is_none_or(|first| self.struck.fetch_add(1, Ordering::Relaxed) < first);
        if is_first { Err(Code(self.answer)) } else { Ok(()) }
    }

    pub(crate) fn of_call(&self, function: &str) -> Answer {
        let plain = self.made_with.is_none() && self.above.is_none() && self.beyond.is_none();
        let strikes = plain && (!self.without_context || contexts::current_device().is_err());
        if strikes && self.is_about(function) { self.strike() } else { Ok(()) }
    }

    /// Whether this call is one that the last refusal is repeated for.
    fn is_repeated(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    pub(crate) fn of_size(
        &self,
        function: &str,
        bytes: u64,
        held: impl Fn() -> Answer<(u64, u64)>,
    ) -> Answer {
        if self.above.is_none() && self.beyond.is_none() || !self.is_about(function) {
            return Ok(());
        }
        if self.is_repeated() {
            return Err(Code(self.answer));
        }
        let (held, total) = held()?;
        let over = |limit: &Option<String>, bytes: u64| {
            limit.as_deref().and_then(|text| amount(text, total)).is_some_and(|limit| bytes > limit)
        };
        let strikes = over(&self.above, bytes) || over(&self.beyond, held.saturating_add(bytes));
        let answer = if strikes { self.strike() } else { Ok(()) };
        if answer.is_err() {
            self.left.store(self.repeats, Ordering::Relaxed);
        }
        answer
    }

    pub(crate) fn of_memory(&self, function: &str, made: Made) -> Answer {
        let strikes = self.made_with.is_some_and(|property| made.has(property));
        if strikes && self.is_about(function) { self.strike() } else { Ok(()) }
    }
}

/// Page-locked ranges of the process: bytes by base.
static PINNED: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Mutex::default);

fn pinned() -> MutexGuard<'static, HashMap<u64, u64>> {
    PINNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that are page-locked.
pub(super) fn pinned_bytes() -> u64 {
    pinned().values().sum()
}

/// A range is page-locked, or with 0 bytes not any more.
pub(crate) fn pin(base: u64, bytes: u64) {
    if bytes == 0 {
        pinned().remove(&base);
    } else {
        pinned().insert(base, bytes);
    }
}

/// How live physical memory was made, by a number of the vendor's: a handle, or the address where it is mapped.
#[derive(Debug)]
pub struct Makings(LazyLock<Mutex<HashMap<u64, Made>>>);

impl Makings {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Made>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it was made; without anything where nobody said.
    pub fn of(&self, number: u64) -> Made {
        self.lock().get(&number).copied().unwrap_or_default()
    }

    /// From now on the number stands for this.
    pub fn remember(&self, number: u64, made: Made) {
        self.lock().insert(number, made);
    }

    /// The same, where it stands for nothing yet.
    pub fn remember_new(&self, number: u64, made: Made) {
        self.lock().entry(number).or_insert(made);
    }

    /// The number stands for nothing any more.
    pub fn forget(&self, number: u64) {
        self.lock().remove(&number);
    }
}

impl Default for Makings {
    fn default() -> Self {
        Self::new()
    }
}
