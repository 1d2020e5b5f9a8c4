//! What people see besides results: messages and progress, on standard error or for whoever listens.

use granule_analysis::replay::whatif::Doubt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::cell::RefCell;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use textwrap::core::display_width;

thread_local! {
    /// Who is told instead of standard error.
    static LISTENER: RefCell<Option<Arc<Listener>>> = const { RefCell::new(None) };
}

/// Hears what a command says while it works, for programs that have no terminal.
#[derive(Debug, Default)]
pub struct Listener {
    said: Mutex<Vec<Message>>,
    /// The bar is drawn, too.
    draws: bool,
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
    /// One that hears messages, and leaves progress to the terminal.
    pub(crate) fn beside_a_terminal() -> Self {
        Self { draws: true, ..Self::default() }
    }

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
        if !self.draws {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
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

/// As [`wrapped`]; in a file it stays one line, for programs that read it.
pub(crate) fn fitted(line: &str) -> String {
    if io::stdout().is_terminal() { wrapped(line) } else { line.to_owned() }
}

/// Whether colours are shown there, and wanted.
pub(crate) fn is_coloured(stream: &impl IsTerminal) -> bool {
    let unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    stream.is_terminal() && unset("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// What is painted, by the character that begins it in text for [`Visible`], with what the terminal is told.
const PAINT: [(u8, &[u8]); 3] = [(END, b"\x1b[0m"), (2, b"\x1b[1m"), (3, b"\x1b[32m")];
const END: u8 = 1;

/// What decides.
pub(crate) fn strong(text: &str) -> String {
    painted(2, text)
}

/// What is to be pasted.
pub(crate) fn to_paste(text: &str) -> String {
    painted(3, text)
}

/// In lines of their own, so that whatever shows one of them shows it so.
fn painted(begin: u8, text: &str) -> String {
    if !is_coloured(&io::stdout()) {
        return text.to_owned();
    }
    let line = |line: &str| format!("{}{line}{}", char::from(begin), char::from(END));
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// What fits on a line.
pub(crate) fn cut(line: &str) -> String {
    cut_to(line, width())
}

/// What fits so many columns.
pub(crate) fn cut_to(line: &str, width: usize) -> String {
    if display_width(line) <= width {
        return line.to_owned();
    }
    let mut kept = String::new();
    for character in line.chars() {
        if display_width(&kept) + display_width(character.encode_utf8(&mut [0; 4])) >= width {
            break;
        }
        kept.push(character);
    }
    kept + "…"
}

/// What comes before an answer that says nothing of the program, if it is one.
pub(crate) fn doubt(doubt: Option<&Doubt>, out: &mut dyn Write) -> io::Result<()> {
    doubt.map_or(Ok(()), |doubt| writeln!(out, "{}\n", strong(&wrapped(&doubt.text))))
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
pub(crate) fn say(kind: &'static str, text: impl Display) {
    if let Some(listener) = listener() {
        return listener.say(kind, text.to_string());
    }
    let (stderr, mut said) = (io::stderr().lock(), format!("{kind}: {text}"));
    // In a file each is one line.
    if let Ok(size) = rustix::termios::tcgetwinsize(&stderr)
        && size.ws_col > 0
    {
        said = textwrap::fill(&said, usize::from(size.ws_col));
    }
    let _ = writeln!(Visible::new(stderr, false), "{said}");
}

/// Text for a terminal, where what files say may be in it: characters that could command the terminal, or turn the order in which
/// text is read, become visible. Lines and tabs stay.
#[derive(Debug)]
pub(crate) struct Visible<W> {
    inner: W,
    /// The bytes of a character whose others have not come.
    begun: Vec<u8>,
    /// Some of them paint.
    paints: bool,
}

impl<W> Visible<W> {
    pub(crate) fn new(inner: W, paints: bool) -> Self {
        Self { inner, begun: Vec::new(), paints }
    }

    fn show(&self, character: char, shown: &mut Vec<u8>) {
        let paint = PAINT.iter().find(|(begins, _)| self.paints && char::from(*begins) == character);
        match (character, paint) {
            (_, Some((_, told))) => shown.extend_from_slice(told),
            ('\n' | '\t', _) => shown.push(character as u8),
            _ if character.is_control() || turns_the_order(character) => {
                shown.extend(format!("\\u{{{:x}}}", u32::from(character)).bytes());
            }
            _ => shown.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Marks, embeddings, overrides and isolates of text that is read from the right.
fn turns_the_order(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let mut shown = Vec::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            chunk.valid().chars().for_each(|character| self.show(character, &mut shown));
            let rest = chunk.invalid();
            let begins = std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
            if begins && chunks.peek().is_none() {
                self.begun = rest.to_vec();
            } else {
                shown.extend_from_slice(rest);
            }
        }
        self.inner.write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
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
    if listener().is_some() {
        return bar.finish_and_clear();
    }
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
    use super::{Visible, counted, format_time};
    use std::io::Write;

    #[test]
    fn control_characters_become_visible_and_other_text_stays() {
        let text = "µ é 𝄞\t\u{1b}]0;x\u{7}\u{9b}2J\r\u{7f}\u{a0}\u{202e}yp.niart\u{2069}\n";
        let shown = "µ é 𝄞\t\\u{1b}]0;x\\u{7}\\u{9b}2J\\u{d}\\u{7f}\u{a0}\\u{202e}yp.niart\\u{2069}\n";
        let broken = (
            &b"\xc2\x1b\xe2\x80\x1b\x9b\xe2\xc2\x9b\n"[..],
            &b"\xc2\\u{1b}\xe2\x80\\u{1b}\x9b\xe2\\u{9b}\n"[..],
        );
        for (text, shown) in [(text.as_bytes(), shown.as_bytes()), broken] {
            for at_once in [1, 2, 100] {
                let mut visible = Visible::new(Vec::new(), false);
                text.chunks(at_once).for_each(|bytes| visible.write_all(bytes).unwrap());
                assert_eq!(visible.inner.escape_ascii().to_string(), shown.escape_ascii().to_string());
            }
        }
    }

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
