//! Other processes with allocators of their own (`src/bin/ipc-peer.rs`), for tests of memory that processes share.

use crate::lookalike::{real_drivers, with_lookalikes};
use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that does what it is told. Killed when this is dropped.
#[derive(Debug)]
pub struct Peer {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// A block as a process shared it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Bytes from the base at which it begins.
    pub offset: u64,
    /// In hexadecimal digits.
    pub handle: String,
}

/// A block that a process opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    number: usize,
    /// Where the memory begins that came with it.
    pub base: u64,
}

impl Peer {
    /// Starts `program` over a backend (`openreg`, `masquerade`, or `cuda` and `hip` on their lookalikes; `fabric` is `cuda` with
    /// a fabric) in a mode (`fixed`, `growable`, `uncached`, or `granule`: the policy).
    ///
    /// # Panics
    /// Where it cannot be started; all functions here panic where the process refuses what they ask.
    #[must_use]
    pub fn start(program: &str, backend: &str, mode: &str) -> Self {
        let (backend, machine) = match backend {
            "fabric" => ("cuda", "personality=fabric,devices=1,capacity=256MiB"),
            other => (other, "devices=1,capacity=256MiB"),
        };
        let mut command =
            if real_drivers() { Command::new(program) } else { with_lookalikes(program, machine) };
        command.args([backend, mode]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the program can be started");
        let to = process.stdin.take().expect("it is piped");
        let from = BufReader::new(process.stdout.take().expect("it is piped"));
        Self { process, to, from }
    }

    /// Asks, and returns the answer or the error's text.
    ///
    /// # Errors
    /// What the process refuses.
    pub fn try_ask(&mut self, request: impl Display) -> Result<String, String> {
        writeln!(self.to, "{request}").expect("the process listens");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("the process answers");
        match line.trim_end_matches('\n').split_once(' ') {
            Some(("ok", answer)) => Ok(answer.to_owned()),
            Some(("err", text)) => Err(text.to_owned()),
            _ => panic!("{request}: the process ended, or said {line:?}"),
        }
    }

    /// Asks for what must work.
    pub fn ask(&mut self, request: impl Display) -> String {
        let text = request.to_string();
        self.try_ask(request).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn number(&mut self, request: impl Display, radix: u32) -> u64 {
        u64::from_str_radix(&self.ask(request), radix).expect("a number was asked for")
    }

    /// The address of new memory.
    pub fn malloc(&mut self, bytes: u64) -> u64 {
        self.number(format_args!("malloc {bytes}"), 16)
    }

    /// Leaves free memory in pieces: see [`pieces`](crate::views::pieces).
    pub fn leave_pieces(&mut self, count: u64, mib: u64) {
        self.ask(format_args!("pieces {count} {mib}"));
    }

    /// Frees it.
    pub fn free(&mut self, at: u64) {
        self.ask(format_args!("free {at:x}"));
    }

    /// Shares a block.
    pub fn share(&mut self, at: u64) -> Shared {
        let answer = self.ask(format_args!("share {at:x}"));
        let (offset, handle) = answer.split_once(' ').expect("two words");
        Shared { offset: offset.parse().expect("a number"), handle: handle.to_owned() }
    }

    /// Opens a block.
    pub fn open(&mut self, shared: &Shared) -> Opened {
        let answer = self.ask(format_args!("open {}", shared.handle));
        let (number, base) = answer.split_once(' ').expect("two words");
        let base = u64::from_str_radix(base, 16).expect("an address");
        Opened { number: number.parse().expect("a number"), base }
    }

    /// Why a block cannot be opened.
    pub fn refusal(&mut self, shared: &Shared) -> String {
        self.try_ask(format_args!("open {}", shared.handle)).expect_err("it must not be opened")
    }

    /// Closes a block.
    pub fn close(&mut self, opened: Opened) {
        self.ask(format_args!("close {}", opened.number));
    }

    /// Writes `value` to the first 64 bytes at an address.
    pub fn write(&mut self, at: u64, value: u8) {
        self.ask(format_args!("write {at:x} {}", hex(&[value; 64])));
    }

    /// Whether the first 64 bytes at an address are `value`.
    pub fn holds(&mut self, at: u64, value: u8) -> bool {
        self.ask(format_args!("read {at:x} 64")) == hex(&[value; 64])
    }

    /// Bytes that its device has in use.
    pub fn device_bytes(&mut self) -> u64 {
        self.number("device", 10)
    }

    /// Bytes of address space that show other processes' memory.
    pub fn imported_bytes(&mut self) -> u64 {
        self.number("imported", 10)
    }

    /// Ends it at once, as a crash would.
    pub fn kill(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it is this process's child");
    }

    /// The same, but nobody asks for its end: it stays a zombie until that is returned is waited for.
    #[must_use]
    pub fn kill_unnoticed(mut self) -> impl Drop {
        self.process.kill().expect("it runs");
        self
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hexadecimal digits as bytes, if that is what they are.
#[must_use]
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
