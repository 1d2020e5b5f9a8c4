//! The hash of a trace.

use anyhow::{Context, Result, bail};
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// The SHA-256 of what the program asked for.
pub(super) fn hash_of(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut text = String::new();
    let read = MultiGzDecoder::new(BufReader::new(file)).read_to_string(&mut text);
    read.with_context(|| format!("{} is no trace", path.display()))?;
    hash(&text).with_context(|| format!("{} is no trace", path.display()))
}

/// The header is left out: it says how a trace was made. Frees between which nothing is asked for are sorted: containers
/// hashed by address let go of their tensors in an order that varies. A policy that hands out the last freed block first may
/// place a block elsewhere for it, so figures are those of the traces that are kept.
fn hash(text: &str) -> Result<String> {
    let Some(("#", _)) = text.lines().next().and_then(|header| header.split_once(' ')) else {
        bail!("the first line is no header")
    };
    let (mut hasher, mut frees) = (Sha256::new(), Vec::new());
    for line in text.lines().skip(1) {
        if let Some(id) = line.strip_prefix("f ") {
            frees.push(id.parse::<u64>().with_context(|| format!("'{line}' frees nothing"))?);
        } else {
            settle(&mut hasher, &mut frees);
            hasher.update(line);
            hasher.update("\n");
        }
    }
    settle(&mut hasher, &mut frees);
    let mut digits = String::new();
    for byte in hasher.finalize() {
        write!(digits, "{byte:02x}")?;
    }
    Ok(digits)
}

fn settle(hasher: &mut Sha256, frees: &mut Vec<u64>) {
    frees.sort_unstable();
    for id in frees.drain(..) {
        hasher.update(format!("f {id}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::{hash, hash_of};
    use crate::bench::corpus::folder::COMMITTED;

    /// Bytes of all committed traces together.
    const ALL: u64 = 5_000_000;

    #[test]
    fn a_hash_is_that_of_the_requests() {
        let one = hash("# {\"torch\": 1}\na 0 8 0\na 1 8 0\nf 1\nf 0\ni 1\n").unwrap();
        assert_eq!(one, hash("# {}\na 0 8 0\na 1 8 0\nf 0\nf 1\ni 1\n").unwrap());
        for other in [
            "# {}\na 0 8 0\na 1 9 0\nf 0\nf 1\ni 1\n",
            "# {}\na 0 8 0\na 1 8 0\nf 0\ni 1\nf 1\n",
            "# {}\na 0 8 0\na 1 8 0\nf 0\nf 1\n",
        ] {
            assert_ne!(one, hash(other).unwrap(), "{other}");
        }
        assert_eq!(
            hash("# {}\n").unwrap(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for text in ["", "a 0 8 0\n", "# {}\nf x\n"] {
            assert!(hash(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_traces_of_this_repository_are_their_recipes() {
        let folder = crate::bench::corpus::folder();
        let mut total = 0;
        for recipe in folder.recipes().unwrap() {
            let Some(path) = folder.trace(&recipe.name) else { continue };
            assert_eq!(Some(hash_of(&path).unwrap()), recipe.hash, "{}", recipe.name);
            let size = std::fs::metadata(&path).unwrap().len();
            if path.starts_with(crate::process::root().join("tests/corpus")) {
                assert!(size <= COMMITTED, "{} has {size} bytes", recipe.name);
                total += size;
            }
        }
        assert!(total <= ALL, "the traces have {total} bytes");
        assert!(total > 0, "no trace is here");
    }
}
