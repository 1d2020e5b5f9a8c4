//! What people see besides results: messages and progress, on standard error or for whoever listens.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::RefCell;
use std::fmt::Display;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

thread_local! {
    /// Who is told instead of standard error.
    static LISTENER: RefCell<Option<Arc<Listener>>> = const { RefCell::new(None) };
}

/// Hears what a command says while it works, for programs that have no terminal.
#[derive(Debug, Default)]
pub struct Listener {
    said: Mutex<Vec<Message>>,
    bar: Mutex<Option<ProgressBar>>,
}

/// Something that a command says beside its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `note`, `warning` or `hint`.
    pub kind: &'static str,
    /// What it says.
    pub text: String,
}

/// How far a command is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it does.
    pub what: String,
    /// Of the unit, how many are done.
    pub done: u64,
    /// How many there are; `None` where that is not known.
    pub total: Option<u64>,
}

impl Listener {
    /// What was said since the last call.
    pub fn messages(&self) -> Vec<Message> {
        std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How far the work is that began last and has not ended.
    pub fn progress(&self) -> Option<Progress> {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        (!bar.is_finished()).then(|| Progress {
            what: bar.message(),
            done: bar.position(),
            total: bar.length(),
        })
    }

    /// Does work on this thread and hears what it says.
    pub(crate) fn during<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let before = LISTENER.replace(Some(Arc::clone(self)));
        let done = work();
        LISTENER.set(before);
        done
    }

    fn say(&self, kind: &'static str, text: String) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(Message { kind, text });
    }

    /// The bar is drawn by whoever listens, if at all.
    fn follow(&self, bar: &ProgressBar) {
        bar.set_draw_target(ProgressDrawTarget::hidden());
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    }
}

fn listener() -> Option<Arc<Listener>> {
    LISTENER.with_borrow(Clone::clone)
}

/// Columns that help is made to fit, and what goes to no terminal.
pub(crate) const WIDTH: u16 = 80;

/// Columns that tables and long sentences are made to fit: those of the terminal.
pub(crate) fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| size.ws_col);
    // A terminal that says 0 does not know.
    if columns == 0 { WIDTH.into() } else { columns.into() }
}

/// Lines that fit a terminal.
pub(crate) fn wrapped(text: &str) -> String {
    textwrap::fill(text, width())
}

/// Something worth knowing.
pub(crate) fn note(text: impl Display) {
    say("note", text);
}

/// Something that is probably not meant.
pub(crate) fn warning(text: impl Display) {
    say("warning", text);
}

/// Why the command ends.
pub(crate) fn error(text: impl Display) {
    say("error", text);
}

/// What to do next.
pub(crate) fn hint(text: impl Display) {
    say("hint", text);
}

/// A closed standard error is no reason to fail.
fn say(kind: &'static str, text: impl Display) {
    if let Some(listener) = listener() {
        return listener.say(kind, text.to_string());
    }
    let _ = writeln!(std::io::stderr(), "{kind}: {text}");
}

/// A bar over `length` of some unit, which indicatif draws on a terminal only.
pub(crate) fn progress_bar(length: usize, what: &'static str, unit: &'static str) -> ProgressBar {
    let template = "{msg} [{wide_bar:.cyan/blue}] {human_pos}/{human_len} {prefix} {percent:>3}%";
    let bar = ProgressBar::new(length as u64)
        .with_message(what)
        .with_prefix(unit)
        .with_style(style(template, ProgressStyle::default_bar()));
    if let Some(listener) = listener() {
        listener.follow(&bar);
    }
    bar
}

/// Leaves the bar as it is, on a line of its own.
pub(crate) fn leave(bar: &ProgressBar) {
    let drawn = !bar.is_hidden();
    bar.abandon();
    if drawn {
        let _ = writeln!(std::io::stderr());
    }
}

/// A sign of life for work of unknown length.
pub(crate) fn spinner(what: impl Into<String>) -> ProgressBar {
    let spinner = ProgressBar::new_spinner()
        .with_message(what.into())
        .with_style(style("{spinner} {msg} {elapsed}", ProgressStyle::default_spinner()));
    match listener() {
        Some(listener) => listener.follow(&spinner),
        None => spinner.enable_steady_tick(Duration::from_millis(100)),
    }
    spinner
}

fn style(template: &str, otherwise: ProgressStyle) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or(otherwise)
}

/// How many there are of something: "1 retry", "2 retries".
pub(crate) fn counted(count: impl TryInto<u64>, one: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    match (count, one.strip_suffix("ry")) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{count} {stem}ries"),
        (_, None) => format!("{count} {one}s"),
    }
}

/// Nanoseconds in the unit that fits.
pub(crate) fn format_time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::{counted, format_time};

    #[test]
    fn one_is_one_and_more_are_many() {
        let texts = [counted(1_u64, "entry"), counted(2_u32, "entry"), counted(0_usize, "replay")];
        assert_eq!(texts, ["1 entry", "2 entries", "0 replays"]);
    }

    #[test]
    fn times_get_the_unit_that_fits() {
        let texts = [0.0, 71.26, 1500.0, 2.5e6, 3.21e9].map(format_time);
        assert_eq!(texts, ["0.0 ns", "71.3 ns", "1.5 µs", "2.5 ms", "3.21 s"]);
    }
}
