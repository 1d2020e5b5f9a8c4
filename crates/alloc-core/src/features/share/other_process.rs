//! Other processes: checks that one is alive, and copies of its descriptors.

use crate::error::Explanation;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A process. Its number is used again after its end; the time of its start tells those apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    pub(crate) id: u32,
    /// Start, in clock ticks since the machine was started; the lower half is kept.
    pub(crate) started: u32,
}

impl Process {
    /// This process. Refuses where /proc is another name space's: its numbers would be those of other processes.
    pub(crate) fn current() -> io::Result<Self> {
        let id = std::process::id();
        if fs::read_link("/proc/self")?.to_str() != Some(&*id.to_string()) {
            let detail = "/proc shows another PID name space than this process's";
            return Err(io::Error::new(io::ErrorKind::Unsupported, detail));
        }
        let (started, _) = read(id)?;
        Ok(Self { id, started })
    }

    /// True if it still runs. Where that cannot be known, also true.
    pub(crate) fn is_alive(self) -> bool {
        match read(self.id) {
            Ok((started, over)) => started == self.started && !over,
            Err(error) => {
                let unknown = matches!(error.kind(), io::ErrorKind::NotFound)
                    || error.raw_os_error() == Some(libc::ESRCH);
                // Other users' processes may be hidden in /proc, but not from this question.
                !unknown || is_there(self.id)
            }
        }
    }

    /// As one number that is never 0.
    pub(super) fn to_word(self) -> u64 {
        u64::from(self.id) << 32 | u64::from(self.started)
    }

    #[allow(clippy::cast_possible_truncation)] // that is what halves are
    pub(super) fn from_word(word: u64) -> Self {
        Self { id: (word >> 32) as u32, started: word as u32 }
    }

    /// Takes a copy of each of its descriptors.
    ///
    /// # Errors
    /// Reason why not.
    pub(super) fn descriptors(self, numbers: &[i32]) -> Result<Vec<OwnedFd>, Explanation> {
        let process = pidfd_open(self.id).map_err(|error| refusal("pidfd_open", ":", &error))?;
        // The descriptor is of the process that is meant, if that still runs now.
        if !self.is_alive() {
            return Err(GONE.into());
        }
        let get = |number: &i32| {
            pidfd_getfd(&process, *number).map_err(|error| refusal("pidfd_getfd", ": ", &error))
        };
        numbers.iter().map(get).collect()
    }
}

/// The text for a handle whose process is gone.
pub(super) const GONE: &str =
    "the process that shared the block has ended; its memory cannot be opened any more";

/// Start of a process, and `true` if it is over though its parent has not asked for its end yet.
#[allow(clippy::cast_possible_truncation)] // the lower half is wanted
fn read(id: u32) -> io::Result<(u32, bool)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
    parse(&text)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
        .map(|(started, over)| (started as u32, over))
}

/// True if some process has this number.
fn is_there(id: u32) -> bool {
    let Ok(id) = i32::try_from(id) else { return false };
    // SAFETY: signal 0 is sent to nobody; the call takes two numbers.
    let answer = unsafe { libc::kill(id, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Fields are counted behind the name, which may hold anything.
fn parse(text: &str) -> Option<(u64, bool)> {
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let (state, threads): (&str, u64) = (fields.first()?, fields.get(17)?.parse().ok()?);
    // The first thread may end before the others.
    let over = matches!(state, "Z" | "X") && threads <= 1;
    Some((fields.get(19)?.parse().ok()?, over))
}

/// Advice for memory that travels without descriptors. The other process's policy is not known here.
const FIXED: &str = "use policy:pytorch with expandable_segments:False in the process that shares";

fn refusal(call: &str, between: &str, error: &io::Error) -> Explanation {
    let code = error.raw_os_error();
    if code == Some(libc::ENOSYS) {
        return Explanation::with_pytorch(
            format!("the kernel has no {call}, by which growable memory goes to other processes; {FIXED}"),
            format!(
                "The kernel on this machine does not support the {call} syscall needed to use IPC for CUDA tensors when \
                 expandable_segments:True is set. Consider using expandable_segments:False via \
                 torch.cuda.memory._set_allocator_settings('expandable_segments:False') for this allocation."
            ),
        );
    }
    let advice = match code {
        Some(libc::EPERM) => format!(
            ". Let the processes trace each other (container: --cap-add=SYS_PTRACE; kernel.yama.ptrace_scope=0), or {FIXED}"
        ),
        Some(libc::EMFILE) => ". Raise the limit of open files (ulimit -n)".into(),
        Some(libc::ESRCH) => ". The process that shared the block has ended".into(),
        _ => String::new(),
    };
    // The system's text without what Rust adds to it.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    format!("{call}{between}{text}{advice}").into()
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let number =
        i32::try_from(result).ok().filter(|number| *number >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made this descriptor for this process, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn pidfd_open(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes two numbers, touches no memory of the caller's.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) })
}

fn pidfd_getfd(process: &OwnedFd, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes three numbers, touches no memory of the caller's.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::AllocError;
    use std::process::{Command, Stdio};

    #[test]
    fn names_may_hold_anything_and_a_dead_process_that_nobody_asked_about_is_over() {
        let rest = "1 1 1 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 THREADS 0 4711 0 0";
        let stat =
            |state: &str, threads: &str| format!("7 (a) b ) {state} {}", rest.replace("THREADS", threads));
        assert_eq!(parse(&stat("S", "3")), Some((4711, false)));
        assert_eq!(parse(&stat("Z", "1")), Some((4711, true)));
        assert_eq!(parse(&stat("Z", "3")), Some((4711, false)), "its other threads still run");
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn a_process_lives_until_it_is_killed_and_is_not_its_successor() {
        let me = Process::current().unwrap();
        assert!(me.is_alive());
        assert!(!Process { started: me.started.wrapping_add(1), ..me }.is_alive());
        assert!(is_there(me.id) && is_there(1) && !is_there(u32::MAX), "also where /proc says nothing");
        assert_eq!(Process::from_word(me.to_word()), me);
        let mut child = Command::new("sleep").arg("100").stdin(Stdio::null()).spawn().unwrap();
        let other = Process { id: child.id(), started: read(child.id()).unwrap().0 };
        assert!(other.is_alive());
        child.kill().unwrap();
        while other.is_alive() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!other.is_alive());
        assert_eq!(
            other.descriptors(&[0]).unwrap_err().to_string(),
            "pidfd_open:No such process. The process that shared the block has ended"
        );
    }

    #[test]
    fn the_texts_say_what_to_do_and_are_pytorchs_for_pytorch() {
        let problem = |code| refusal("pidfd_getfd", ": ", &io::Error::from_raw_os_error(code));
        let text = |code| problem(code).to_string();
        let no_call = AllocError::Open { problem: problem(libc::ENOSYS) };
        assert!(no_call.to_string().starts_with("the kernel has no pidfd_getfd"));
        assert!(!no_call.to_string().contains("torch.") && !no_call.to_string().contains("CUDA"));
        assert!(
            no_call
                .pytorch_message()
                .starts_with("The kernel on this machine does not support the pidfd_getfd syscall")
        );
        assert!(text(libc::EPERM).starts_with("pidfd_getfd: Operation not permitted. Let the processes"));
        assert_eq!(text(libc::EBADF), "pidfd_getfd: Bad file descriptor");
    }
}
