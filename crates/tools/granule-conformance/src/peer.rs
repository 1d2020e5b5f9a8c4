//! The second process, as the first one has it: this program again, over a backend of its own.
//!
//! Parent and child talk over a socket that the child has as its standard input, so that whatever a driver or
//! a test harness prints does not disturb them. The parent sends one request at a time, the child does it
//! and sends an answer; a file descriptor may travel with either.

mod link;

pub(crate) use link::{Answer, Link, Request};

use crate::{Outcome, Stop};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MARK: &str = "GRANULE_CONFORMANCE_CHILD";
/// How long a child has beyond the deadline of a check, which it holds itself: to start, and to answer.
const TO_ANSWER: Duration = Duration::from_secs(10);
/// How long a killed child has to end. A driver may hold it for longer than anybody waits.
const TO_END: Duration = Duration::from_secs(10);

/// How to start this program again so that it reaches [`serve`](crate::child::serve).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildCommand {
    /// This executable, where none is named.
    program: Option<PathBuf>,
    arguments: Vec<String>,
}

impl ChildCommand {
    /// This program with arguments that lead it to [`serve`](crate::child::serve) with the same subject. Where `--backtrace` is
    /// among them, it prints a stack where a check panics.
    pub fn with_arguments(arguments: impl IntoIterator<Item = String>) -> Self {
        Self { program: None, arguments: arguments.into_iter().collect() }
    }

    /// The same, started by another name than that of the executable: an interpreter finds its packages by what it was called.
    #[must_use]
    pub fn by(self, program: impl Into<PathBuf>) -> Self {
        Self { program: Some(program.into()), ..self }
    }

    /// Starts a child.
    pub(crate) fn start(&self) -> Result<Peer, Stop> {
        let (link, theirs) = Link::pair()?;
        let program = self.program.clone().map_or_else(std::env::current_exe, Ok)?;
        let child = Command::new(program)
            .args(&self.arguments)
            .env(MARK, "1")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Peer { child: Some(child), link })
    }
}

/// Whether this process was started as a child.
#[must_use]
pub fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// The parent's end of the conversation. The child is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    /// None once it was killed.
    child: Option<Child>,
    link: Link,
}

impl Peer {
    /// Has something done, with a descriptor on the way there and on the way back.
    pub(crate) fn exchange(
        &mut self,
        request: &Request,
        descriptor: Option<&OwnedFd>,
    ) -> Result<(Answer, Option<OwnedFd>), Stop> {
        self.link.send(request, descriptor)?;
        let answer = self.link.receive()?;
        answer.ok_or_else(|| Stop::Failed("the second process ended without an answer".into()))
    }

    /// Has something done that must work.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer, Stop> {
        match self.exchange(request, None)? {
            (Answer::Refused { text }, _) => Err(Stop::Failed(format!("in the second process: {text}"))),
            (answer, _) => Ok(answer),
        }
    }

    /// Has a check run there. Where it ended the process or made it deaf, that is its failure, and nobody is left.
    pub(crate) fn check(
        mut self,
        name: &str,
        deadline: Duration,
        patience: Duration,
        command: &ChildCommand,
    ) -> (Outcome, Option<Self>) {
        let request = Request::Check { name: name.to_owned(), deadline, patience, child: command.clone() };
        let limit = deadline.saturating_add(TO_ANSWER);
        let answer = self.link.limit(limit).and_then(|()| self.link.send(&request, None));
        let why = match answer.and_then(|()| self.link.receive()) {
            Ok(Some((Answer::Ended(outcome), _))) => return (outcome, Some(self)),
            Ok(Some((answer, _))) => format!("no check ran: {answer:?}"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                format!("its process was deaf for {} s ({})", limit.as_secs_f32(), self.end())
            }
            Ok(None) | Err(_) => format!(
                "it ended its process ({}): memory was given back that queued work still used, here or in a check \
                 before, or the driver gave up",
                self.end()
            ),
        };
        (Outcome::Failed(why), None)
    }

    /// Kills the child, as a crash would, and says how it ended. One that does not is left behind.
    fn end(&mut self) -> String {
        let Some(mut child) = self.child.take() else { return String::new() };
        let _ = child.kill();
        let start = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) if start.elapsed() < TO_END => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) => return "it cannot be killed".into(),
                Err(error) => return error.to_string(),
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.end();
    }
}
