//! Programs for ARM run on this machine: QEMU, one process for each.

use crate::process::{self, command, debian, files, target, targets};
use anyhow::{Context, Result, ensure};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "qemu-aarch64-static";
/// For C and C++.
const COMPILERS: [&str; 2] = ["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"];
/// What Debian calls them, the libraries that programs are linked with, and the emulator.
const PACKAGES: [&str; 4] =
    ["gcc-aarch64-linux-gnu", "g++-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static"];
/// Debian's libraries for ARM.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu/lib";
const LOADER: &str = "ld-linux-aarch64.so.1";
/// The largest pages that Linux has on ARM.
const LARGEST_PAGE: u64 = 64 << 10;
/// From here on its pages are this host's, whatever is asked for.
const WITHOUT_PAGES: u32 = 9;

/// The emulator, and what programs find under `/lib`.
pub(super) struct Emulator {
    root: PathBuf,
    version: u32,
}

impl Emulator {
    /// Gets what is missing. An error says why it cannot be had.
    pub(super) fn prepare() -> Result<Self> {
        targets::add(targets::AARCH64)?;
        debian::programs(&[COMPILERS[0], COMPILERS[1], PROGRAM], &PACKAGES)?;
        let said = process::output(command(PROGRAM).arg("--version"))?;
        let version = version(&said).with_context(|| format!("{PROGRAM} has no version: {said}"))?;
        let root = target().join("aarch64-root");
        lay_out(&root.join("lib")).with_context(|| root.display().to_string())?;
        Ok(Self { root, version })
    }

    /// Has a cargo command build for ARM and run what it built, each program for so long at most.
    pub(super) fn lend(&self, cargo: &mut Command, pages: u32, minutes: u32) -> Result<()> {
        ensure!(
            pages == 4096 || self.version < WITHOUT_PAGES,
            "{PROGRAM} {} has pages of 4 KiB only; those before {WITHOUT_PAGES}, as of Debian 12, have others",
            self.version
        );
        cargo
            .env(targets::variable(targets::AARCH64, "LINKER"), COMPILERS[0])
            .env(
                targets::variable(targets::AARCH64, "RUNNER"),
                format!("timeout --kill-after=10s {minutes}m {PROGRAM}"),
            )
            // For tests that compile C, and not for what runs here while building.
            .envs([("CC", COMPILERS[0]), ("CXX", COMPILERS[1])])
            .envs([("HOST_CC", "cc"), ("HOST_CXX", "c++")])
            .env("QEMU_LD_PREFIX", &self.root)
            .env("QEMU_PAGESIZE", pages.to_string());
        Ok(())
    }

    /// Has the kernel start programs for ARM in the emulator, while the answer lives.
    pub(super) fn register(&self) -> Result<Registered> {
        let why = || "the kernel was not told of programs for ARM (binfmt_misc), which tests start";
        let kernel = Path::new(KERNEL);
        if fs::read_to_string(kernel.join("qemu-aarch64")).is_ok_and(|state| state.starts_with("enabled")) {
            return Ok(Registered(None));
        }
        if !kernel.join("register").exists() {
            process::run(command("mount").args(["-t", "binfmt_misc", "binfmt_misc", KERNEL]))
                .with_context(why)?;
        }
        let entry = kernel.join(ENTRY);
        if !entry.exists() {
            let program = debian::on_path(PROGRAM).with_context(|| format!("{PROGRAM} is gone"))?;
            fs::write(kernel.join("register"), rule(&program)).with_context(why)?;
        }
        Ok(Registered(Some(entry)))
    }
}

const KERNEL: &str = "/proc/sys/fs/binfmt_misc";
const ENTRY: &str = "granule-aarch64";

/// What tells the kernel a program for ARM: the head of an ELF file of 64 bits, with the lowest byte first.
fn rule(program: &Path) -> String {
    let head = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00";
    // Any system, and both kinds of programs: at a fixed place and at any.
    let mask = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff";
    format!(":{ENTRY}:M::{head}:{mask}:{}:PF", program.display())
}

/// The kernel knows the emulator for as long as this lives; or has known it before, and goes on.
pub(super) struct Registered(Option<PathBuf>);

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(entry) = &self.0
            && let Err(error) = fs::write(entry, "-1")
        {
            println!("{}: {error}", entry.display());
        }
    }
}

/// The number before the first dot.
fn version(said: &str) -> Option<u32> {
    said.split_whitespace().skip_while(|word| *word != "version").nth(1)?.split('.').next()?.parse().ok()
}

/// A folder with the system's libraries for ARM, and a loader that finds its last page whole.
fn lay_out(folder: &Path) -> Result<()> {
    files::empty(folder)?;
    for library in files::in_folder(LIBRARIES, "")? {
        symlink(&library, folder.join(library.file_name().unwrap_or_default()))?;
    }
    let loader = folder.join(LOADER);
    let mut bytes = fs::read(&loader)?;
    fs::remove_file(&loader)?;
    end_at_a_page(&mut bytes).context("the loader is no program for ARM")?;
    fs::write(&loader, bytes)?;
    Ok(fs::set_permissions(&loader, Permissions::from_mode(0o755))?)
}

/// The loader takes its first memory from the rest of its last page, up to the end that a page of the announced size has. The
/// emulator maps pages of this host, of which the last ends earlier. So the part that is written to is made to end at a
/// page of any size, as a kernel with large pages would map it.
fn end_at_a_page(elf: &mut [u8]) -> Option<()> {
    const LOAD: u64 = 1;
    const WRITABLE: u64 = 2;
    let number = |elf: &[u8], at: usize, bytes: usize| {
        let field = elf.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0_u64, |all, byte| all << 8 | u64::from(*byte)))
    };
    let (table, entry, entries) = (number(elf, 32, 8)?, number(elf, 54, 2)?, number(elf, 56, 2)?);
    let mut at = (0..entries).map(|n| usize::try_from(table + n * entry).ok());
    let at = at.find_map(|at| {
        let at = at?;
        (number(elf, at, 4)? == LOAD && number(elf, at + 4, 4)? & WRITABLE != 0).then_some(at)
    })?;
    let (address, bytes) = (number(elf, at + 16, 8)?, number(elf, at + 40, 8)?);
    let whole = (address + bytes).checked_next_multiple_of(LARGEST_PAGE)? - address;
    elf.get_mut(at + 40..at + 48)?.copy_from_slice(&whole.to_le_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulators_version_is_read() {
        assert_eq!(version("qemu-aarch64 version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright"), Some(7));
        assert_eq!(version("qemu"), None);
    }

    #[test]
    fn the_writable_part_ends_at_a_large_page() {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[32] = 64;
        (elf[54], elf[56]) = (56, 2);
        for (n, flags, address, bytes) in [(0, 5, 0, 0x26058_u64), (1, 6, 0x3_eda0_u64, 0x25d8)] {
            let at = 64 + n * 56;
            (elf[at], elf[at + 4]) = (1, flags);
            elf[at + 16..at + 24].copy_from_slice(&address.to_le_bytes());
            elf[at + 40..at + 48].copy_from_slice(&bytes.to_le_bytes());
        }
        end_at_a_page(&mut elf).expect("it has such a part");
        let bytes = |n: usize| u64::from_le_bytes(elf[64 + n * 56 + 40..][..8].try_into().expect("8 bytes"));
        assert_eq!((bytes(0), 0x3_eda0 + bytes(1)), (0x26058, 0x5_0000));
        assert_eq!(end_at_a_page(&mut [0; 64]), None, "no such part");
        assert_eq!(end_at_a_page(&mut [0; 10]), None, "too short");
    }
}
