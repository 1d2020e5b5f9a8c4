//! The PyTorch that a program would run under.

use crate::error::{EstimateError, end_of};
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROBE: &str = include_str!("../python/probe.py");

/// A CUDA build of PyTorch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torch {
    /// The interpreter that imports it.
    pub python: PathBuf,
    /// The folder it is installed in.
    pub site: PathBuf,
    /// Its version, such as `2.15.0+cu132`.
    pub version: String,
}

#[derive(Deserialize)]
struct Found {
    python: PathBuf,
    torch: Option<FoundTorch>,
}

#[derive(Deserialize)]
struct FoundTorch {
    site: PathBuf,
    version: String,
    cuda: Option<String>,
    hip: Option<String>,
}

impl Torch {
    /// Asks a Python which PyTorch it has; the Python is a path or a name to look for in `PATH`.
    ///
    /// # Errors
    /// [`EstimateError`]: no such Python, no PyTorch, or one without CUDA.
    pub fn find(python: &OsStr) -> Result<Self, EstimateError> {
        let name = python.to_string_lossy().into_owned();
        let asked = Command::new(python).args(["-c", PROBE]).stdin(Stdio::null()).output();
        let output = asked.map_err(|error| EstimateError::Start { program: name.clone(), error })?;
        if !output.status.success() {
            return Err(EstimateError::Python { python: name, said: end_of(&output.stderr) });
        }
        // What the environment's own start-up files print comes before.
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().last().unwrap_or_default();
        let found: Found = serde_json::from_str(last)
            .map_err(|_| EstimateError::Python { python: name.clone(), said: end_of(&output.stdout) })?;
        let Some(torch) = found.torch else { return Err(EstimateError::NoTorch { python: name }) };
        match (torch.cuda, torch.hip) {
            (Some(_), None) => Ok(Self { python: found.python, site: torch.site, version: torch.version }),
            (_, hip) => {
                let how = if hip.is_some() { "for ROCm" } else { "for the CPU only" };
                Err(EstimateError::NoCuda { python: name, version: torch.version, how })
            }
        }
    }
}

/// The Python that a command runs under: the command itself, or the one that its script's first line names (`torchrun`,
/// `accelerate`), else `python3`.
#[must_use]
pub fn python_of(command: &OsStr) -> OsString {
    let path = Path::new(command);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with("python") || name.starts_with("pypy") {
        return command.to_owned();
    }
    find_program(command).and_then(|path| interpreter(&path)).unwrap_or_else(|| "python3".into())
}

/// Where the shell would find a program.
#[must_use]
pub fn find_program(command: &OsStr) -> Option<PathBuf> {
    let path = Path::new(command);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|candidate| candidate.is_file())
}

/// The Python in a script's first line.
fn interpreter(script: &Path) -> Option<OsString> {
    let mut line = String::new();
    BufReader::new(File::open(script).ok()?.take(512)).read_line(&mut line).ok()?;
    let words: Vec<_> = line.strip_prefix("#!")?.split_whitespace().collect();
    // `#!/usr/bin/env python3`, or the interpreter itself.
    let named =
        words.iter().find(|word| word.rsplit('/').next().is_some_and(|name| name.starts_with("python")))?;
    Some((*named).into())
}

#[cfg(test)]
mod tests {
    use super::python_of;
    use std::ffi::OsStr;
    use std::fs;

    #[test]
    fn the_python_of_a_command_is_found() {
        assert_eq!(python_of(OsStr::new("/opt/env/bin/python3.11")), "/opt/env/bin/python3.11");
        assert_eq!(python_of(OsStr::new("python")), "python");
        assert_eq!(python_of(OsStr::new("no-such-launcher")), "python3");
        let folder = tempfile::tempdir().unwrap();
        for (first, python) in [
            ("#!/opt/env/bin/python\nimport torch\n", "/opt/env/bin/python"),
            ("#!/usr/bin/env python3\n", "python3"),
            ("#!/bin/sh\n", "python3"),
            ("\u{0}\u{1}\u{2}binary", "python3"),
        ] {
            let script = folder.path().join("torchrun");
            fs::write(&script, first).unwrap();
            assert_eq!(python_of(script.as_os_str()), python, "{first:?}");
        }
    }
}
