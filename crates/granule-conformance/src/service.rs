//! What the second process does.

use crate::context::pattern;
use crate::peer::{Answer, Link, Request};
use crate::runner::run_one;
use crate::{Options, Subject, checks};
use backend_api::types::{DeviceIndex, DevicePtr, Event, Stream};
use backend_api::*;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const DEVICE: DeviceIndex = DeviceIndex(0);
/// A parent that forgot the gate must not hold the driver's thread for ever.
const LONGEST_HOLD: Duration = Duration::from_secs(20);

/// Does what the parent asks for, over a backend of its own, until the parent has gone.
pub fn serve(subject: &Subject) -> ExitCode {
    let Ok(link) = Link::standard_input() else { return ExitCode::FAILURE };
    let backend = match subject.open() {
        Ok(backend) => backend,
        Err(error) => {
            eprintln!("{} did not start in the second process: {error}", subject.name());
            return ExitCode::FAILURE;
        }
    };
    match run(&link, &backend) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Answers until the parent has gone. What was taken ends with the process.
fn run(link: &Link, backend: &Arc<dyn Backend>) -> io::Result<()> {
    let mut service = Service { backend, stream: None, event: None, gate: None };
    while let Some((request, descriptor)) = link.receive()? {
        let (answer, back) = service
            .serve(&request, descriptor)
            .unwrap_or_else(|error| (Answer::Refused { text: error.to_string() }, None));
        link.send(&answer, back.as_ref())?;
    }
    Ok(())
}

struct Service<'b> {
    backend: &'b Arc<dyn Backend>,
    stream: Option<Stream>,
    /// The event that was exported or opened.
    event: Option<Event>,
    /// Dropping it lets the stream go on.
    gate: Option<Sender<()>>,
}

impl Service<'_> {
    fn stream(&mut self) -> Result<Stream> {
        match self.stream {
            Some(stream) => Ok(stream),
            None => Ok(*self.stream.insert(self.backend.create_stream(DEVICE, 0)?)),
        }
    }

    fn event(&self) -> Result<Event> {
        let none = || BackendError::new(ErrorKind::Other, 0, "event", DEVICE, "there is no event yet");
        self.event.ok_or_else(none)
    }

    fn serve(&mut self, request: &Request, descriptor: Option<OwnedFd>) -> Result<(Answer, Option<OwnedFd>)> {
        let backend = &**self.backend;
        let answer = match request {
            Request::Malloc { bytes } => Answer::Address(backend.malloc(DEVICE, *bytes)?.0),
            Request::Free { at } => {
                // SAFETY: rule 3: the parent names memory that it had taken here, and has ended its work.
                unsafe { backend.free(DEVICE, DevicePtr(*at))? };
                Answer::Done
            }
            Request::Write { at, bytes, seed } => {
                write(backend, DevicePtr(*at), &pattern(*seed, *bytes))?;
                Answer::Done
            }
            Request::Holds { at, bytes, seed } => {
                Answer::Holds(read(backend, DevicePtr(*at), *bytes)? == pattern(*seed, *bytes))
            }
            Request::ExportMemory { at } => {
                Answer::Handle(backend.ipc()?.export_memory(DevicePtr(*at))?.0.to_vec())
            }
            Request::OpenMemory { handle } => {
                let handle = IpcMemoryHandle(whole(handle)?);
                Answer::Address(backend.ipc()?.open_memory(DEVICE, &handle)?.0)
            }
            Request::CloseMemory { at } => {
                // SAFETY: rule 3: the parent names what it had opened here, and has ended its work.
                unsafe { backend.ipc()?.close_memory(DevicePtr(*at))? };
                Answer::Done
            }
            Request::ExportEvent => Answer::Handle(self.export_event()?.0.to_vec()),
            Request::RecordBehindGate => {
                self.record_behind_gate()?;
                Answer::Done
            }
            Request::OpenGate => {
                self.gate = None;
                Answer::Done
            }
            Request::OpenEvent { handle } => {
                let handle = IpcEventHandle(whole(handle)?);
                self.event = Some(backend.ipc()?.open_event(DEVICE, &handle)?);
                Answer::Done
            }
            Request::QueryEvent => Answer::Holds(backend.query_event(self.event()?)?.is_ready()),
            Request::FillAfterEvent { at, value, bytes } => {
                self.fill_after_event(DevicePtr(*at), *value, *bytes)?;
                Answer::Done
            }
            Request::QueryStream => Answer::Holds(backend.query_stream(self.stream()?)?.is_ready()),
            Request::ExportPhysical { granules, seed } => return self.export_physical(*granules, *seed),
            Request::ImportPhysical { bytes } => self.import_physical(*bytes, descriptor)?,
            Request::Check { name, deadline, patience, child } => {
                let (deadline, patience, child) = (*deadline, *patience, Some(child.clone()));
                self.check(name, &Options { deadline, patience, child, ..Options::default() })?
            }
        };
        Ok((answer, None))
    }

    fn export_event(&mut self) -> Result<IpcEventHandle> {
        let event = *self.event.insert(self.backend.create_event(DEVICE, EventFlags::INTERPROCESS)?);
        self.backend.ipc()?.export_event(event)
    }

    fn record_behind_gate(&mut self) -> Result<()> {
        let (stream, event) = (self.stream()?, self.event()?);
        let (gate, held) = channel();
        let hold = move || {
            let _ = held.recv_timeout(LONGEST_HOLD);
        };
        self.backend.launch_host_function(stream, Box::new(hold))?;
        self.gate = Some(gate);
        self.backend.record_event(event, stream)
    }

    fn fill_after_event(&mut self, at: DevicePtr, value: u8, bytes: u64) -> Result<()> {
        let (stream, event) = (self.stream()?, self.event()?);
        self.backend.wait_event(stream, event)?;
        // SAFETY: rule 2: the parent names memory that it keeps until the stream is done.
        unsafe { self.backend.memset_async(at, value, bytes, stream) }
    }

    fn check(&self, name: &str, options: &Options) -> Result<Answer> {
        let check = checks::all().find(|check| check.name == name);
        let check = check.ok_or_else(|| wrong("no such check: this is another program"))?;
        Ok(Answer::Ended(run_one(*check, self.backend, options)))
    }

    fn export_physical(&self, granules: u64, seed: u8) -> Result<(Answer, Option<OwnedFd>)> {
        let vmm = self.backend.physical_sharing()?;
        let bytes = granules * vmm.granularity(DEVICE, Granularity::Recommended)?;
        let handle = vmm.create_physical(DEVICE, bytes, HandleType::PosixFd)?;
        let at = vmm.reserve_address(DEVICE, bytes, 0, DevicePtr::NULL)?;
        // SAFETY: the reservation and the handle are new and of the same size.
        unsafe { vmm.map(at, bytes, handle)? };
        // SAFETY: the range was mapped just now.
        unsafe { vmm.set_access(at, bytes, &[DEVICE], Access::ReadWrite)? };
        write(&**self.backend, at, &pattern(seed, 4096))?;
        match vmm.export_physical(handle, HandleType::PosixFd)? {
            ShareableHandle::PosixFd(descriptor) => Ok((Answer::Address(at.0), Some(descriptor))),
            ShareableHandle::Fabric(_) => Err(wrong("a file descriptor was asked for")),
        }
    }

    fn import_physical(&self, bytes: u64, descriptor: Option<OwnedFd>) -> Result<Answer> {
        let vmm = self.backend.physical_sharing()?;
        let descriptor = descriptor.ok_or_else(|| wrong("no descriptor came along"))?;
        let shared = ShareableHandle::PosixFd(descriptor);
        let handle = vmm.import_physical(DEVICE, &shared)?;
        let at = vmm.reserve_address(DEVICE, bytes, 0, DevicePtr::NULL)?;
        // SAFETY: the reservation is new, and the parent says how large the handle is.
        unsafe { vmm.map(at, bytes, handle)? };
        // SAFETY: the range was mapped just now. The descriptor is still open, as the contract wants it.
        unsafe { vmm.set_access(at, bytes, &[DEVICE], Access::ReadWrite)? };
        drop(shared);
        // SAFETY: rule 1: imported just now; the mapping keeps the memory (I4).
        unsafe { vmm.release_physical(handle)? };
        Ok(Answer::Address(at.0))
    }
}

fn wrong(detail: &str) -> BackendError {
    BackendError::new(ErrorKind::Other, 0, "second process", DEVICE, detail)
}

fn whole(handle: &[u8]) -> Result<[u8; 64]> {
    handle.try_into().map_err(|_| wrong("a handle has 64 bytes"))
}

fn write(backend: &dyn Backend, to: DevicePtr, bytes: &[u8]) -> Result<()> {
    let from = DevicePtr(bytes.as_ptr().expose_provenance() as u64);
    // SAFETY: rule 2: the parent names live memory; the slice is read before this returns.
    unsafe { backend.copy(to, from, bytes.len() as u64, CopyKind::HostToDevice) }
}

fn read(backend: &dyn Backend, from: DevicePtr, bytes: usize) -> Result<Vec<u8>> {
    let mut read = vec![0; bytes];
    let to = DevicePtr(read.as_mut_ptr().expose_provenance() as u64);
    // SAFETY: rule 2: the parent names live memory; the vector is filled before this returns.
    unsafe { backend.copy(to, from, bytes as u64, CopyKind::DeviceToHost)? };
    Ok(read)
}
