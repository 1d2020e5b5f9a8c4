//! What the second process does.

use crate::context::pattern;
use crate::peer::{Answer, Link, Request};
use crate::runner::{keep_panics, run_one};
use crate::{Hold, Options, Subject, checks};
use backend_api::types::{DeviceIndex, DevicePtr};
use backend_api::*;
use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;

const DEVICE: DeviceIndex = DeviceIndex(0);
/// The argument of a second process that prints the stack of a panic.
pub const BACKTRACE: &str = "--backtrace";

/// Does what the parent asks for, over a backend of its own, until the parent has gone.
pub fn serve(subject: &Subject) -> ExitCode {
    let Ok(link) = Link::standard_input() else { return ExitCode::FAILURE };
    keep_panics(std::env::args().any(|word| word == BACKTRACE));
    let backend = match subject.open() {
        Ok(backend) => backend,
        Err(error) => {
            eprintln!("{} did not start in the second process: {error}", subject.name());
            return ExitCode::FAILURE;
        }
    };
    match run(&link, &Service { backend, hold: subject.hold }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Answers until the parent has gone. What was taken ends with the process.
fn run(link: &Link, service: &Service) -> io::Result<()> {
    while let Some((request, descriptor)) = link.receive()? {
        let (answer, back) = service
            .serve(&request, descriptor)
            .unwrap_or_else(|error| (Answer::Refused { text: error.to_string() }, None));
        link.send(&answer, back.as_ref())?;
    }
    Ok(())
}

struct Service {
    backend: Arc<dyn Backend>,
    hold: Option<Hold>,
}

impl Service {
    fn serve(&self, request: &Request, descriptor: Option<OwnedFd>) -> Result<(Answer, Option<OwnedFd>)> {
        let backend = &*self.backend;
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
            Request::ExportPhysical { granules, seed } => return self.export_physical(*granules, *seed),
            Request::ImportPhysical { bytes } => self.import_physical(*bytes, descriptor)?,
            Request::Check { name, deadline, patience, child } => {
                let (deadline, patience, child) = (*deadline, *patience, Some(child.clone()));
                self.check(name, &Options { deadline, patience, child, ..Options::default() })?
            }
        };
        Ok((answer, None))
    }

    fn check(&self, name: &str, options: &Options) -> Result<Answer> {
        let check = checks::all().find(|check| check.name == name);
        let check = check.ok_or_else(|| wrong("no such check: this is another program"))?;
        Ok(Answer::Ended(run_one(*check, &self.backend, self.hold, options)))
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
        write(&*self.backend, at, &pattern(seed, 4096))?;
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
