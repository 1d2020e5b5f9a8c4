//! A process with an allocator, which does what it is told on its standard input: the tests of memory that several
//! processes share start some of these. `ipc-peer openreg|masquerade|cuda|hip fixed|growable|uncached|granule`; the last is
//! the `granule` policy, the others are PyTorch's.
//!
//! Each line is a request, each answer a line: `ok ...`, or `err` and a text, PyTorch's behind
//! Granule's.

use alloc_core::AllocError;
use alloc_core::backend::Backend;
use alloc_core::config::Settings;
use alloc_core::share::ImportedMemory;
use alloc_core::types::{DevicePtr, MIB};
use backend_cuda::Cuda;
use backend_hip::Hip;
use backend_openreg::{Clock, MemoryMode, OpenRegConfig};
use granule_tests::Allocator;
use granule_tests::bytes::Bytes;
use granule_tests::peer::{hex, unhex};
use granule_tests::policy::{GranulePolicy, Policy, PytorchPolicy};
use granule_tests::rig::{DEVICE, Rig};
use granule_tests::views::pieces;
use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;

type Answer = Result<String, Box<dyn Error>>;

struct Service {
    backend: Arc<dyn Backend>,
    allocator: Allocator,
    imports: Vec<Option<Arc<ImportedMemory>>>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let served = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [backend, mode @ "granule"] => Service::new::<GranulePolicy>(backend, mode).map(Service::run),
        [backend, mode] => Service::new::<PytorchPolicy>(backend, mode).map(Service::run),
        _ => Err("usage: ipc-peer openreg|masquerade|cuda|hip fixed|growable|uncached|granule".into()),
    };
    if let Err(error) = served {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}

impl Service {
    fn new<P: Policy>(backend: &str, mode: &str) -> Result<Self, Box<dyn Error>> {
        let config = OpenRegConfig::default().devices(1).capacity(256 * MIB);
        let config = config.memory(MemoryMode::Mapped).clock(Clock::Workers);
        let backend: Arc<dyn Backend> = match backend {
            "openreg" => Rig::openreg(config).backend,
            "masquerade" => Rig::hip_as_cuda(config).backend,
            "cuda" => Cuda::load()?,
            "hip" => Hip::load()?,
            other => return Err(format!("no such backend: {other}").into()),
        };
        let (expandable_segments, caching) = (mode == "growable", mode != "uncached");
        let settings = Settings { expandable_segments, caching, ..Settings::default() };
        let allocator = Arc::new(granule_tests::made::<P>(backend.clone(), settings)?);
        Ok(Self { backend, allocator, imports: Vec::new() })
    }

    fn run(mut self) {
        for line in stdin().lock().lines().map_while(Result::ok) {
            let answer = match self.serve(&line) {
                Ok(answer) => format!("ok {answer}"),
                Err(error) => {
                    let pytorchs = error.downcast_ref::<AllocError>().map(AllocError::pytorch_message);
                    format!("err {error} {}", pytorchs.unwrap_or_default()).replace('\n', " ")
                }
            };
            // The other end may have gone.
            if writeln!(stdout(), "{answer}").is_err() {
                break;
            }
        }
    }

    fn serve(&mut self, line: &str) -> Answer {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words[..] {
            ["malloc", bytes] => {
                let stream = self.backend.default_stream(DEVICE);
                format!("{:x}", self.allocator.malloc(bytes.parse()?, stream)?.0)
            }
            ["pieces", count, mib] => {
                let stream = self.backend.default_stream(DEVICE);
                pieces(&self.allocator, stream, count.parse()?, mib.parse()?);
                String::new()
            }
            ["free", at] => self.allocator.free(address(at)?).map(|()| String::new())?,
            ["share", at] => {
                let shared = self.allocator.sharing().share(address(at)?)?;
                format!("{} {}", shared.offset, hex(&shared.handle))
            }
            ["open", handle] => {
                let opened = self.allocator.sharing().open(DEVICE, &unhex(handle).ok_or("no hex")?)?;
                let base = opened.base().0;
                self.imports.push(Some(opened));
                format!("{} {base:x}", self.imports.len() - 1)
            }
            ["close", number] => {
                let import = self.imports.get_mut(number.parse::<usize>()?).and_then(Option::take);
                drop(import.ok_or("no such import")?);
                String::new()
            }
            ["write", at, bytes] => {
                Bytes(&*self.backend).write(address(at)?, &unhex(bytes).ok_or("no hex")?);
                String::new()
            }
            ["read", at, count] => hex(&Bytes(&*self.backend).read(address(at)?, count.parse()?)),
            ["poll"] => self.allocator.poll(DEVICE).map(|()| String::new())?,
            ["empty"] => self.allocator.empty_cache().map(|()| String::new())?,
            ["imported"] => self.allocator.sharing().imported_bytes(DEVICE)?.to_string(),
            ["device"] => {
                let memory = self.backend.memory_info(DEVICE)?;
                (memory.total - memory.free).to_string()
            }
            ["check"] => {
                self.allocator.check_invariants();
                String::new()
            }
            _ => return Err(format!("not understood: {line}").into()),
        })
    }
}

fn address(text: &str) -> Result<DevicePtr, Box<dyn Error>> {
    Ok(DevicePtr(u64::from_str_radix(text, 16)?))
}
