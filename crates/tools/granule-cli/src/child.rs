//! A program of the user's that this command runs.

use crate::failure::Failure;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::{ptr, thread};

/// Says that a program is not there, before anything is made for it.
pub(crate) fn must_be_there(program: &OsStr) -> Result<(), Failure> {
    match granule_estimate::find_program(program) {
        Some(_) => Ok(()),
        None => Err(Failure::Program {
            program: program.to_string_lossy().into_owned(),
            error: rustix::io::Errno::NOENT.into(),
        }),
    }
}

/// Runs the program to its end, with this command's input and output. Signals that a person or a job manager sends to this
/// command are the program's.
pub(crate) fn run(command: &mut Command) -> Result<ExitStatus, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Failure::Program { program: program.clone(), error };
    // Before the program starts: from here on a signal does not end this command, which waits for the program. What a
    // terminal's keys send, the program gets from the terminal.
    let passed_on = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
    let mut signals =
        Signals::new(passed_on.into_iter().filter(|number| !is_ignored(*number))).map_err(failed)?;
    let mut child = command.spawn().map_err(failed)?;
    let handle = signals.handle();
    let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let passing = thread::spawn(move || {
        for number in &mut signals {
            let forwarded =
                (number != SIGINT && number != SIGQUIT).then(|| Signal::from_named_raw(number)).flatten();
            if let Some((process, signal)) = process.zip(forwarded) {
                // It may be over already.
                let _ = kill_process(process, signal);
            }
        }
    });
    let status = child.wait();
    handle.close();
    let _ = passing.join();
    status.map_err(failed)
}

/// Whether who started this command made it ignore a signal, as `nohup` does. It stays ignored, here and in programs that this
/// command runs: ask before a handler is put in its place.
pub(crate) fn is_ignored(number: i32) -> bool {
    let mut current = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call changes nothing, and writes the present one to its third argument.
    let asked = unsafe { libc::sigaction(number, ptr::null(), current.as_mut_ptr()) };
    // SAFETY: a call that succeeded has written it.
    asked == 0 && unsafe { current.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// The program's exit code; as a shell has it, 128 and the signal's number where a signal ended it.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
