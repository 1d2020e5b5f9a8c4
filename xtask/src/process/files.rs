//! Files and folders: read, listed, made anew.

use super::root;
use anyhow::{Context, Result, bail};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A text; a path that is not absolute is from the workspace's root. An error names the file.
pub(crate) fn read(file: impl AsRef<Path>) -> Result<String> {
    let file = root().join(file);
    fs::read_to_string(&file).with_context(|| format!("could not read {}", file.display()))
}

/// A folder of what lies beside the repository, where it does.
pub(crate) fn shared(name: &str) -> PathBuf {
    std::env::var_os("GRANULE_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from).join(name)
}

/// What a folder holds, by name: files with this ending, or all and folders, too, where it is empty.
pub(crate) fn in_folder(folder: impl AsRef<Path>, ending: &str) -> Result<Vec<PathBuf>> {
    let folder = root().join(folder);
    let entries = fs::read_dir(&folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| ending.is_empty() || path.extension().is_some_and(|found| found == ending));
    paths.sort();
    Ok(paths)
}

/// The files of a folder and of those in it; none where there is no such folder.
pub(crate) fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if folder.is_dir() {
        for path in in_folder(folder, "")? {
            if path.is_dir() { found.extend(below(&path)?) } else { found.push(path) }
        }
    }
    Ok(found)
}

/// A path's last name, up to the first dot.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// A file or folder as the user named it, from wherever that was: commands run at the workspace's root.
pub(crate) fn named(path: &Path) -> Result<PathBuf> {
    fs::canonicalize(path).with_context(|| path.display().to_string())
}

/// Takes a folder away, where there is one.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    Ok(())
}

/// Makes a folder that is empty.
pub(crate) fn empty(folder: &Path) -> Result<()> {
    remove(folder)?;
    create(folder)
}

/// Makes a folder, where there is none.
pub(crate) fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

/// Makes a program for the shell. One that is there as it should be stays as old as it is.
pub(crate) fn script(file: &Path, lines: &str) -> Result<()> {
    let text = format!("#!/bin/sh\n{lines}\n");
    if fs::read_to_string(file).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let write = || {
        fs::create_dir_all(file.parent().unwrap_or(file))?;
        fs::write(file, text)?;
        fs::set_permissions(file, Permissions::from_mode(0o755))
    };
    write().with_context(|| file.display().to_string())
}

/// An option of tasks that write such files.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// Change nothing; fail where a file is not what would be written
    #[arg(long)]
    pub(crate) check: bool,
}

/// Makes a file of the repository what follows from its sources; to `check` is to refuse another one.
pub(crate) fn settle(name: &str, fresh: &str, check: bool, task: &str) -> Result<()> {
    let file = root().join(name);
    let there = fs::read_to_string(&file).unwrap_or_default();
    if there == fresh {
        return Ok(());
    }
    if check {
        let same = there.lines().zip(fresh.lines()).take_while(|(there, fresh)| there == fresh).count();
        let [is, due] = [&there, fresh].map(|text| text.lines().nth(same).unwrap_or("(end)"));
        bail!("{name} is out of date; run cargo xtask {task}\nline {}\n  is:  {is}\n  due: {due}", same + 1);
    }
    fs::write(&file, fresh).with_context(|| format!("could not write {}", file.display()))?;
    println!("wrote {name}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{read, settle};

    #[test]
    fn what_is_not_there_or_not_right_is_refused_or_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made");
        let name = file.to_str().unwrap();
        for (there, said) in
            [(None, "is:  (end)"), (Some("one\nother\n"), "line 2\n  is:  other\n  due: two")]
        {
            if let Some(there) = there {
                std::fs::write(&file, there).unwrap();
            }
            let error = settle(name, "one\ntwo\n", true, "codegen").unwrap_err().to_string();
            assert!(error.contains("run cargo xtask codegen") && error.contains(said), "{error}");
        }
        settle(name, "one\ntwo\n", false, "codegen").unwrap();
        assert_eq!(read(&file).unwrap(), "one\ntwo\n");
        settle(name, "one\ntwo\n", true, "codegen").unwrap();
    }
}
