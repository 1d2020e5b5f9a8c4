//! Writing files so that no half-written one is ever left behind.

use crate::failure::Failure;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that will hold a result. Made before the work, so that a bad path is noticed first.
#[derive(Debug)]
pub(crate) struct ResultFile {
    path: PathBuf,
    /// By the path's ending.
    packed: bool,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// Written beside its place, and put there when it is whole.
    Regular { unfinished: NamedTempFile, place: PathBuf },
    /// A pipe or a device, which must not be replaced.
    Special(File),
}

impl ResultFile {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let target = open(path).map_err(|error| failed(path, error))?;
        let packed = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
        Ok(Self { path: path.to_owned(), packed, target })
    }

    /// Writes what `content` has to say and puts the file in its place. Blocks on file output.
    pub(crate) fn write(
        self,
        content: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let written = match self.target {
            Target::Regular { unfinished, place } => encode(content, unfinished.as_file(), self.packed)
                .and_then(|()| unfinished.persist(place).map_err(|error| error.error))
                .map(drop),
            Target::Special(file) => encode(content, &file, self.packed),
        };
        written.map_err(|error| failed(&self.path, error))
    }
}

fn encode(
    content: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
    file: &File,
    packed: bool,
) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    if !packed {
        content(&mut file)?;
        return file.flush();
    }
    let mut encoder = GzEncoder::new(file, Compression::default());
    content(&mut encoder)?;
    encoder.finish()?.flush()
}

fn open(path: &Path) -> io::Result<Target> {
    let place = match fs::metadata(path) {
        Ok(there) if there.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(there) if !there.is_file() => return Ok(Target::Special(File::options().write(true).open(path)?)),
        // A link stays, what it leads to is replaced.
        Ok(_) => path.canonicalize()?,
        Err(_) => path.to_owned(),
    };
    let directory = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".granule-").suffix(".unfinished");
    // A result, not a secret: the user's mask decides who may read it.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    // What it says of a missing directory is clearer than what is left of tempfile's error without its path,
    // the name of an unfinished file, which means nothing to users.
    fs::metadata(directory)?;
    let unfinished = builder.tempfile_in(directory).map_err(|error| io::Error::from(error.kind()))?;
    Ok(Target::Regular { unfinished, place })
}

fn failed(path: &Path, error: io::Error) -> Failure {
    Failure::WriteFile { path: path.to_owned(), error }
}
