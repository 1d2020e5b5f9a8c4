//! A recorded run as one web page that needs nothing else: no network, no server, no framework.
//!
//! The page opens at once however long the run is, because it never looks at all of it. What it needs is cut into sections,
//! each compressed on its own, and it unpacks a section when it is first looked at:
//!
//! - `levels`: the run in bins of 2^k entries. A bin tells the moment in it at which most was live, and what was live
//!   then by category. Allocations large and long enough to be seen at that zoom come with it.
//! - `tree`: every allocation and every span, once, in the smallest of nested intervals that holds its whole life. What
//!   there was at a moment is in the few intervals around it.
//! - `classes`, `texts`: the categories of everything, and names and stacks.
//!
//! `page` puts the sections and the viewer (the files in `viewer/`) together. `comparison` does that for several runs, which
//! are told in bins alone.
//!
//! What comes from the file is data throughout: it is base64 in the page, and the page's policy forbids any other script
//! than the one this crate has written into it.

mod about;
mod bytes;
mod classes;
mod comparison;
mod contents;
mod levels;
mod lives;
mod page;
mod room;
mod section;
#[cfg(test)]
mod tests;
mod texts;
mod tree;
mod viewer;
mod what_if;

pub use comparison::{Compared, Comparison};
pub use contents::Contents;
pub use what_if::{WhatIf, WhatIfDevice, WhatIfRow};

use granule_analysis::Run;
use granule_analysis::rules::Rules;
use std::io::{self, Write};

/// Writes the page of a file's devices, the one that is shown first before the others. Uses all cores, and blocks on the output.
///
/// # Errors
///
/// Those of `out`.
pub fn write(devices: &[Report<'_>], out: &mut dyn Write) -> io::Result<()> {
    page::write(devices, out)
}

/// What a report tells.
#[derive(Debug)]
pub struct Report<'a> {
    /// The run.
    pub run: &'a Run,
    /// Heading of the page; of several devices, what to choose this one by.
    pub title: &'a str,
    /// What a request takes of the memory.
    pub rules: Rules,
    /// What the run came to, in a few sentences; may be empty.
    pub verdict: String,
    /// Why requests were refused, in the order of [`Run::refusals`]; may be fewer.
    pub reasons: Vec<String>,
    /// Bytes of the device, where they are known.
    pub capacity: Option<u64>,
    /// What else is known of the run, as name and value.
    pub facts: Vec<(String, String)>,
    /// What is not exact about it.
    pub remarks: Vec<String>,
    /// What other settings would have done.
    pub what_if: WhatIf,
}

impl Report<'_> {
    /// Writes the page of this one, as [`write()`].
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        write(std::slice::from_ref(self), out)
    }
}
