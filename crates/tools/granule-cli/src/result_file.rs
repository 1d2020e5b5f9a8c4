//! Writing files so that no half-written one is ever left behind, however the command ends.

use crate::failure::Failure;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open as open_at};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
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
    /// Without a name until it is whole: what ends the command before leaves nothing.
    Unnamed { unfinished: File, place: PathBuf },
    /// Where the file system has no such files: beside its place, and put there when it is whole.
    Named { unfinished: NamedTempFile, place: PathBuf },
    /// A pipe or a device, which must not be replaced.
    Special(File),
}

impl ResultFile {
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let target = open(path).map_err(|error| failed(path, error))?;
        let packed = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
        Ok(Self { path: path.to_owned(), packed, target })
    }

    /// As [`ResultFile::create`], of a file that is not there yet, or may be replaced.
    pub(crate) fn create_new(path: &Path, replace: bool) -> Result<Self, Failure> {
        if !replace && path.is_file() {
            return Err(Failure::Exists(path.to_owned()));
        }
        Self::create(path)
    }

    /// Writes what `content` has to say and puts the file in its place. Blocks on file output.
    pub(crate) fn write(
        self,
        content: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.fill(content)?.put()
    }

    /// Writes what `content` has to say; the file is not yet in its place. Blocks on file output.
    pub(crate) fn fill(
        self,
        content: impl FnOnce(&mut (dyn Write + Send)) -> io::Result<()>,
    ) -> Result<WholeFile, Failure> {
        let file = match &self.target {
            Target::Unnamed { unfinished, .. } => unfinished,
            Target::Named { unfinished, .. } => unfinished.as_file(),
            Target::Special(file) => file,
        };
        encode(content, file, self.packed).map_err(|error| failed(&self.path, error))?;
        Ok(WholeFile(self))
    }
}

/// The first name of no file, here: with a number where there is one already.
pub(crate) fn fresh(stem: &str, ending: &str) -> PathBuf {
    let numbered = (2..).map(|number: u64| format!("{stem}-{number}{ending}"));
    let names = std::iter::once(format!("{stem}{ending}")).chain(numbered).map(PathBuf::from);
    // A link that leads nowhere is there, too.
    names.into_iter().find(|path| path.symlink_metadata().is_err()).unwrap_or_default()
}

/// A file that only has to be put in its place.
#[derive(Debug)]
pub(crate) struct WholeFile(ResultFile);

impl WholeFile {
    pub(crate) fn put(self) -> Result<(), Failure> {
        let ResultFile { path, target, .. } = self.0;
        let put = match target {
            Target::Unnamed { unfinished, place } => name(&unfinished, &place),
            Target::Named { unfinished, place } => {
                unfinished.persist(place).map(drop).map_err(|error| error.error)
            }
            Target::Special(_) => Ok(()),
        };
        put.map_err(|error| failed(&path, error))
    }
}

/// Gives a file without a name this one, in the place of what has it.
fn name(file: &File, place: &Path) -> io::Result<()> {
    let link = |to: &Path| {
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)
    };
    match link(place) {
        Err(error) if error == rustix::io::Errno::EXIST => {}
        done => return Ok(done?),
    }
    // A name is not taken from a file by a link, but by a rename.
    let beside =
        tempfile::Builder::new().prefix(".granule-").make_in(folder(place), |path| Ok(link(path)?))?;
    fs::rename(beside.path(), place)
}

fn folder(place: &Path) -> &Path {
    place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
    let directory = folder(&place);
    // What it says of a missing directory is clearer than what is left of tempfile's error without its path,
    // the name of an unfinished file, which means nothing to users.
    fs::metadata(directory)?;
    // A result, not a secret: the user's mask decides who may read it.
    let mode = Mode::from_raw_mode(0o666);
    if let Ok(unfinished) = open_at(directory, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
        return Ok(Target::Unnamed { unfinished: unfinished.into(), place });
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".granule-").suffix(".unfinished");
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let unfinished = builder.tempfile_in(directory).map_err(|error| io::Error::from(error.kind()))?;
    Ok(Target::Named { unfinished, place })
}

fn failed(path: &Path, error: io::Error) -> Failure {
    Failure::WriteFile { path: path.to_owned(), error }
}
