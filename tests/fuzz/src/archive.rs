//! Inputs that are kept: one file for each target, in it each input behind its length (u32, little-endian).

use crate::Target;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What is kept of a target: it is in the repository, and every test run goes through it.
const MOST_BYTES: usize = 32 << 10;

/// Where a target's inputs are kept.
#[must_use]
pub fn path(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{target}.bin"))
}

/// The inputs in a file's bytes; `None` where it is cut off.
#[must_use]
pub fn unpack(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut inputs = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk()?;
        let (input, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        inputs.push(input);
        bytes = rest;
    }
    Some(inputs)
}

/// The file of inputs, shortest first.
///
/// # Panics
/// Where an input is longer than 4 GiB.
#[must_use]
pub fn pack(mut inputs: Vec<Vec<u8>>) -> Vec<u8> {
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    let length = |input: &[u8]| u32::try_from(input.len()).expect("inputs are short").to_le_bytes();
    inputs.iter().flat_map(|input| [&length(input)[..], input].concat()).collect()
}

/// A target's kept inputs. Blocks on the file.
///
/// # Errors
/// The file cannot be read, or is cut off.
pub fn kept(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let bytes = std::fs::read(path(target))?;
    let inputs = unpack(&bytes).ok_or_else(|| io::Error::other(format!("{target}.bin is cut off")))?;
    Ok(inputs.into_iter().map(<[u8]>::to_vec).collect())
}

/// Puts a target's kept inputs and seeds into a folder, one file each; says how many. Blocks on the files.
///
/// # Errors
/// A file cannot be written, or the kept ones cannot be read.
pub fn unpack_into(target: &Target, folder: &Path) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    // A new target has none.
    let kept = if path(target.name).exists() { kept(target.name)? } else { Vec::new() };
    let inputs = [kept, (target.seeds)()].concat();
    for (number, input) in inputs.iter().enumerate() {
        fs::write(folder.join(format!("kept-{number}")), input)?;
    }
    Ok(inputs.len())
}

/// Keeps the files of a folder as a target's inputs, the shortest of them where they are many; says how many. Blocks on the
/// files.
///
/// # Errors
/// A file cannot be read, or the kept ones cannot be written.
pub fn pack_from(target: &Target, folder: &Path) -> io::Result<usize> {
    let files = fs::read_dir(folder)?.map(|entry| fs::read(entry?.path()));
    let mut inputs = files.collect::<io::Result<Vec<_>>>()?;
    inputs.sort_by_key(Vec::len);
    let mut bytes = 0;
    inputs.retain(|input| {
        bytes += input.len() + size_of::<u32>();
        bytes <= MOST_BYTES
    });
    let count = inputs.len();
    fs::write(path(target.name), pack(inputs))?;
    Ok(count)
}
