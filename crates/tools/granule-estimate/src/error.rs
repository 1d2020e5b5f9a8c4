//! What ends an estimate early, in words a user can act on.

use std::io;
use std::path::PathBuf;

/// Why a program could not be run or recorded.
#[derive(Debug, thiserror::Error)]
pub enum EstimateError {
    /// A program is not there, or does not start.
    #[error("{program}: {error}")]
    Start {
        /// As it was given.
        program: String,
        /// What the system says.
        error: io::Error,
    },
    /// Python did not say what was asked.
    #[error("{python} could not be asked for its PyTorch: {said}")]
    Python {
        /// The interpreter.
        python: String,
        /// The end of what it said.
        said: String,
    },
    /// No PyTorch there.
    #[error("{python} has no PyTorch")]
    NoTorch {
        /// The interpreter.
        python: String,
    },
    /// A PyTorch without CUDA.
    #[error("{python} has torch {version}, which is built {how}, and the simulated drivers are NVIDIA's")]
    NoCuda {
        /// The interpreter.
        python: String,
        /// Of PyTorch.
        version: String,
        /// `for the CPU only` or `for ROCm`.
        how: &'static str,
    },
    /// No place for what is built.
    #[error("neither XDG_CACHE_HOME nor HOME says where to keep the simulated drivers")]
    NoCache,
    /// The crate was built without its feature `driver`, or for another machine than the one that built it.
    #[error("this build has no simulated driver")]
    NoDriver,
    /// The simulated drivers were not built.
    #[error("the simulated drivers could not be built: {said}")]
    Build {
        /// The end of what the build said.
        said: String,
    },
    /// A signal came before the program was run.
    #[error("interrupted while the simulated drivers were being built; nothing of them is left")]
    Interrupted {
        /// The signal's number.
        signal: i32,
    },
    /// A file or folder of this crate's own could not be written or read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A recording is not a trace.
    #[error("the recording {name} is damaged: {error}")]
    Recording {
        /// The file's name.
        name: String,
        /// Where and why.
        error: granule_snapshot::trace::TraceError,
    },
}

impl EstimateError {
    /// An error of a file.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }

    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Start { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "give the command as you would without granule, after --; --python names another Python".into()
            }
            Self::NoTorch { .. } => "activate the environment that your script runs in, or name its Python: \
                                     granule estimate --python PATH -- ..."
                .into(),
            Self::NoCuda { .. } => {
                "install a CUDA build of PyTorch in an environment of its own, which needs no GPU: \
                 python -m venv cuda && cuda/bin/pip install torch --index-url https://download.pytorch.org/whl/cu132, \
                 and name it with --python cuda/bin/python"
                    .into()
            }
            Self::NoDriver => "build it on the machine that runs it: cargo build --release --features full".into(),
            Self::NoCache => "set HOME or XDG_CACHE_HOME".into(),
            Self::File { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                "let XDG_CACHE_HOME name a folder of your own".into()
            }
            Self::Build { said } if said.contains("is missing: install") => {
                "they are compiled once for each PyTorch; on Debian and Ubuntu: apt install g++ binutils".into()
            }
            Self::Build { said } if said.contains("recorder does not compile") => {
                "this release of PyTorch has another allocator interface; the one that is tested is 2.15".into()
            }
            _ => return None,
        })
    }
}

/// The end of what a program said, on one line if it is short.
pub(crate) fn end_of(said: &[u8]) -> String {
    const LINES: usize = 12;
    let text = String::from_utf8_lossy(said);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    if last.is_empty() { "it said nothing".into() } else { last.join("\n  ") }
}
