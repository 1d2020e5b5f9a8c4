//! What processes tell one another through files: who lives is judged by a lock, and files that were removed are made again.

use alloc_core::CachingAllocator;
use alloc_core::config::Settings;
use alloc_core::ledger::registry;
use alloc_core::types::MIB;
use backend_openreg::OpenReg;
use granule_tests::rig::DEVICE;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// Where figures of the user's processes are.
const ROOT: &str = "GRANULE_TEST_PUBLISHED";

fn allocator(root: &Path, publish: bool) -> CachingAllocator {
    let machine = OpenReg::new(crate::calls::config()).unwrap();
    let settings = Settings { publish, system_root: root.to_owned(), ..Settings::default() };
    CachingAllocator::new(machine, settings).unwrap()
}

fn take(allocator: &CachingAllocator) {
    allocator.malloc(64 * MIB, allocator.backend().default_stream(DEVICE)).unwrap();
}

/// What other processes hold, by their numbers.
fn others(allocator: &CachingAllocator) -> Vec<(u32, u64)> {
    let told = allocator.statistics().ledger(DEVICE).unwrap();
    assert_eq!(told.process_other, 0, "none of them is this one");
    told.other_processes.iter().map(|one| (one.pid, one.granule.unwrap() / MIB)).collect()
}

fn files(root: &Path) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(registry::folder(root)) else { return Vec::new() };
    files.map(|file| file.unwrap().path()).collect()
}

/// The files of the second device say that nothing is held, and are as many.
fn processes(root: &Path) -> usize {
    files(root).len() / 2
}

/// What another process does: it takes memory, and then what it is told to.
#[test]
fn owner() {
    let Some(root) = std::env::var_os(ROOT) else { return };
    let allocator = allocator(Path::new(&root), true);
    take(&allocator);
    println!("\n> taken");
    for told in std::io::stdin().lines() {
        match &*told.unwrap() {
            "grow" => take(&allocator),
            "look" => println!("\n> {:?}", others(&allocator)),
            how @ ("fork" | "fork and end") => {
                let (mut is_there, there) = std::io::pipe().unwrap();
                // SAFETY: the child ends at once, or waits and touches nothing.
                let child = unsafe { libc::fork() };
                drop(there);
                if child == 0 && how == "fork" {
                    // SAFETY: ends a child that is forgotten.
                    unsafe { libc::alarm(60) };
                    // SAFETY: waits for a signal.
                    unsafe { libc::pause() };
                }
                if child == 0 {
                    drop(allocator);
                    // SAFETY: handlers of the end run, as they do where a child ends by itself.
                    unsafe { libc::exit(0) };
                }
                // Both have let go of it: the child runs.
                is_there.read_to_end(&mut Vec::new()).unwrap();
                if how == "fork and end" {
                    // SAFETY: the child of this process, waited for once.
                    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
                }
                println!("\n> {child}");
            }
            // The allocator is not dropped: a program's last one often is a static.
            "end" => std::process::exit(0),
            other => unreachable!("{other}"),
        }
        println!("\n> done");
    }
}

/// A process that runs [`owner`].
struct Owner {
    process: Child,
    tell: ChildStdin,
    said: BufReader<ChildStdout>,
}

impl Owner {
    fn start(root: &Path, before: &[&str]) -> Self {
        let this = std::env::current_exe().unwrap();
        let words: Vec<_> = before.iter().map(Path::new).chain([&*this]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["--exact", "published::owner", "--nocapture"]).env(ROOT, root);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (tell, said) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut owner = Self { process, tell, said: BufReader::new(said) };
        assert_eq!(owner.hears(), "taken");
        owner
    }

    fn hears(&mut self) -> String {
        let mut lines = (&mut self.said).lines().map(Result::unwrap);
        lines.find_map(|line| Some(line.strip_prefix("> ")?.to_owned())).expect("it says more")
    }

    /// What it says before it is done.
    fn does(&mut self, what: &str) -> String {
        writeln!(self.tell, "{what}").unwrap();
        let mut answer = String::new();
        loop {
            match self.hears() {
                done if done == "done" => return answer,
                other => answer = other,
            }
        }
    }

    fn ends(mut self) {
        writeln!(self.tell, "end").unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

#[test]
fn files_that_were_removed_are_made_again_and_nothing_stays_after_an_exit() {
    let root = TempDir::new().unwrap();
    let reader = allocator(root.path(), false);
    let mut owner = Owner::start(root.path(), &[]);
    let pid = owner.process.id();
    assert_eq!((others(&reader), processes(root.path())), (vec![(pid, 64)], 1));
    files(root.path()).iter().for_each(|file| std::fs::remove_file(file).unwrap());
    assert_eq!(others(&reader), []);
    owner.does("grow");
    assert_eq!(others(&reader), [(pid, 128)]);
    std::fs::remove_dir_all(root.path().join("run")).unwrap();
    assert_eq!(others(&reader), []);
    owner.does("grow");
    assert_eq!(others(&reader), [(pid, 192)]);
    // One that has its name is another's.
    let name = files(root.path()).remove(0);
    std::fs::rename(&name, root.path().join("moved")).unwrap();
    std::fs::write(&name, "another's").unwrap();
    owner.does("grow");
    assert_eq!(
        (others(&reader), std::fs::read(root.path().join("moved")).unwrap().len()),
        (vec![(pid, 256)], 32)
    );
    owner.ends();
    assert_eq!(files(root.path()), Vec::<PathBuf>::new());
}

#[test]
fn a_forked_child_neither_keeps_its_parents_files_nor_removes_them() {
    let root = TempDir::new().unwrap();
    let reader = allocator(root.path(), false);
    let mut owner = Owner::start(root.path(), &[]);
    let pid = owner.process.id();
    owner.does("fork and end");
    assert_eq!(others(&reader), [(pid, 64)]);
    let child: i32 = owner.does("fork").parse().unwrap();
    assert_eq!(others(&reader), [(pid, 64)]);
    owner.process.kill().unwrap();
    owner.process.wait().unwrap();
    // SAFETY: asks whether the process is there.
    assert_eq!(unsafe { libc::kill(child, 0) }, 0, "the child lives");
    assert_eq!(processes(root.path()), 1, "nobody has looked");
    assert_eq!((others(&reader), files(root.path()).len()), (Vec::new(), 0), "a reader removes them");
    // SAFETY: the child was made for this.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

#[test]
fn processes_of_another_pid_name_space_leave_one_anothers_files() {
    let ways = [&["-pf", "--mount-proc"][..], &["-pf", "-U", "--map-current-user", "--mount-proc"]];
    let works = |way: &&[&str]| {
        let ran = Command::new("unshare").args(*way).arg("true").stderr(Stdio::null()).status();
        ran.is_ok_and(|status| status.success())
    };
    let Some(way) = ways.into_iter().find(works) else {
        println!("skipped: unshare makes no PID name space here");
        return;
    };
    let root = TempDir::new().unwrap();
    let reader = allocator(root.path(), false);
    let mut owner = Owner::start(root.path(), &[]);
    let mut apart = Owner::start(root.path(), &[&["unshare"], way].concat());
    let pid = owner.process.id();
    assert_eq!(apart.does("look"), format!("[({pid}, 64)]"), "it sees the one that is no process to it");
    let [(first, 64), (second, 64)] = others(&reader)[..] else { panic!("{:?}", others(&reader)) };
    assert!(first == pid && second < 10, "{first}, and {second} by its own count");
    owner.does("grow");
    assert_eq!(apart.does("look"), format!("[({pid}, 128)]"));
    // Two processes with one number are two.
    let mut third = Owner::start(root.path(), &[&["unshare"], way].concat());
    assert_eq!(third.does("look"), format!("[({pid}, 128), ({second}, 64)]"));
    assert_eq!(others(&reader).len(), 3);
    third.ends();
    apart.ends();
    owner.ends();
    assert_eq!(files(root.path()), Vec::<PathBuf>::new());
}
