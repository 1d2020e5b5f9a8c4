//! What a native file asks of the machine that loads it.

use crate::process::{self, command};
use anyhow::{Context, Result, ensure};
use std::path::Path;

pub(crate) struct Needs {
    /// As `readelf` calls the processor: `AArch64`.
    pub(super) processor: String,
    /// The latest version of glibc that a symbol is asked of: 2 and 28 of `GLIBC_2.28`.
    pub(super) glibc: (u32, u32),
}

impl Needs {
    pub(crate) fn of(file: &Path) -> Result<Self> {
        let mut readelf = command("readelf");
        readelf.args(["-W", "--file-header", "--version-info"]).arg(file).env("LC_ALL", "C");
        Self::read(&process::output(&mut readelf)?).with_context(|| file.display().to_string())
    }

    /// Refuses what asks for a later glibc than this one.
    pub(crate) fn run_with(&self, glibc: (u32, u32)) -> Result<()> {
        let ((asked, its), (major, minor)) = (self.glibc, glibc);
        ensure!(self.glibc <= glibc, "it asks for glibc {asked}.{its}, and may have {major}.{minor} only");
        Ok(())
    }

    fn read(said: &str) -> Result<Self> {
        let processor = said.lines().find_map(|line| line.trim().strip_prefix("Machine:"));
        let processor = processor.context("readelf names no processor")?.trim().to_owned();
        let mut glibc = None;
        for line in said.lines() {
            let Some((_, needed)) = line.split_once("Name: GLIBC_") else { continue };
            let name = needed.split_whitespace().next().unwrap_or_default();
            let version = version(name).with_context(|| format!("GLIBC_{name} is no version"))?;
            glibc = glibc.max(Some(version));
        }
        Ok(Self { processor, glibc: glibc.context("no symbol of glibc is asked for")? })
    }
}

/// Of `2.17` or `2.2.5`.
fn version(name: &str) -> Option<(u32, u32)> {
    let mut numbers = name.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "ELF Header:\n  Machine:                           AArch64\n\
        Version symbols section '.gnu.version' contains 2 entries:\n\
        \x20 000:   0 (*local*)       2 (GLIBC_2.33)\n\
        Version needs section '.gnu.version_r' contains 1 entry:\n\
        \x20 0x0010:   Name: GLIBC_2.9  Flags: none  Version: 4\n\
        \x20 0x0020:   Name: GLIBC_2.28  Flags: none  Version: 3\n\
        \x20 0x0030:   Name: GLIBC_2.2.5  Flags: none  Version: 2\n";

    #[test]
    fn the_latest_version_counts_as_numbers_do() {
        let needs = Needs::read(SAID).expect("both are said");
        assert_eq!((needs.processor.as_str(), needs.glibc), ("AArch64", (2, 28)));
        needs.run_with((2, 28)).expect("as late as that");
        let refused = needs.run_with((2, 9)).expect_err("later").to_string();
        assert!(refused.contains("glibc 2.28, and may have 2.9"), "{refused}");
    }

    #[test]
    fn what_has_no_number_is_refused() {
        assert!(Needs::read(&SAID.replace("2.28", "ABI_DT_RELR")).is_err());
        assert!(Needs::read(&SAID.replace("Machine:", "Class:")).is_err());
        assert!(Needs::read("Machine: AArch64").is_err());
    }
}
