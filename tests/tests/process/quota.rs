//! What processes agree on who share a device: real processes, each with the same simulated device.

use alloc_core::config::{PolicyName, strict};
use alloc_core::ledger::agreement::Quota;
use alloc_core::types::{DeviceIndex, DevicePtr, GIB, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{OpenReg, OpenRegConfig};
use granule_tests::alone::alone;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const DEVICE: DeviceIndex = DeviceIndex(0);
/// The settings of a process that is told what to do.
const TOLD: &str = "GRANULE_TEST_QUOTA";

/// One of the processes: its allocator and what it holds.
struct Tenant {
    allocator: CachingAllocator,
    stream: Stream,
    live: Vec<DevicePtr>,
}

impl Tenant {
    fn new(settings: &str) -> Result<Self, AllocError> {
        let machine = OpenReg::new(OpenRegConfig::default().devices(1).capacity(16 * GIB)).unwrap();
        let settings = strict::parse(settings, &Default::default()).unwrap().settings;
        let stream = alloc_core::backend::Backend::default_stream(&*machine, DEVICE);
        Ok(Self { allocator: CachingAllocator::new(machine, settings)?, stream, live: Vec::new() })
    }

    fn take(&mut self, bytes: u64) -> Result<(), AllocError> {
        self.live.push(self.allocator.malloc(bytes, self.stream)?);
        Ok(())
    }

    fn give(&mut self) {
        self.live.drain(..).for_each(|ptr| self.allocator.free(ptr).unwrap());
        self.allocator.empty_cache().unwrap();
    }

    fn quota(&self) -> Quota {
        self.allocator.statistics().ledger(DEVICE).unwrap().quota.unwrap()
    }

    /// Does what a line says, and answers.
    fn obey(&mut self, line: &str) -> String {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("take", mib) => match self.take(mib.parse::<u64>().unwrap() * MIB) {
                Ok(()) => "ok".into(),
                Err(error) => error.to_string().replace('\n', " "),
            },
            ("give", _) => {
                self.give();
                "ok".into()
            }
            ("press", seed) => self.press(seed.parse().unwrap()).to_string(),
            _ => format!("{line}?"),
        }
    }

    /// Takes and gives at random for a while. The guarantee can always be had. Returns how often more could not.
    fn press(&mut self, seed: u64) -> u64 {
        let (until, mut word, mut refused) = (Instant::now() + Duration::from_millis(700), seed, 0);
        while Instant::now() < until {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let chunk = 256 * MIB;
            while self.quota().claimed + chunk <= self.quota().guarantee {
                self.take(chunk).expect("within the guarantee");
            }
            for _ in 0..(word >> 60) {
                refused += u64::from(self.take(chunk).is_err());
            }
            let quota = self.quota();
            assert!(quota.claimed + quota.others <= quota.limit, "{quota:?}");
            if word >> 32 & 1 == 1 {
                self.give();
            }
        }
        refused
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        self.give();
    }
}

/// What a process does that [`Other`] starts.
#[test]
fn told() {
    let Ok(settings) = std::env::var(TOLD) else { return };
    let mut tenant = match Tenant::new(&settings) {
        Ok(tenant) => tenant,
        Err(error) => return println!("\n> {error}"),
    };
    println!("\n> ready");
    for line in std::io::stdin().lines() {
        let answer = tenant.obey(&line.unwrap());
        println!("> {answer}");
    }
}

/// Another process.
struct Other {
    child: Child,
    tells: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(root: &Path, settings: &str) -> (Self, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "quota::told", "--nocapture"]);
        command.env(TOLD, format!("{settings},system_root:{}", root.display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (tells, says) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut it = Self { child, tells, says: BufReader::new(says).lines() };
        let first = it.answer();
        (it, first)
    }

    fn ready(root: &Path, settings: &str) -> Self {
        let (it, first) = Self::start(root, settings);
        assert_eq!(first, "ready");
        it
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.tells, "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let answer = self
            .says
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix("> ").map(str::to_owned));
        answer.expect("it answers")
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }
}

impl Drop for Other {
    /// As a crash ends it: nothing is given back.
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn own(root: &Path, settings: &str) -> Tenant {
    Tenant::new(&format!("{settings},system_root:{}", root.display())).unwrap()
}

#[test]
fn a_process_takes_what_the_guarantees_of_others_leave_and_a_crash_gives_its_share_back() {
    for policy in [PolicyName::Pytorch, PolicyName::Granule] {
        let root = TempDir::new().unwrap();
        let terms =
            |guarantee: &str| format!("policy:{policy},process_guarantee:{guarantee},processes_limit:10GiB");
        let mut other = Other::ready(root.path(), &terms("6GiB"));
        let mut us = own(root.path(), &terms("2GiB"));
        assert_eq!(us.quota().left(), 4 * GIB, "what is not guaranteed to the other one");
        us.take(4 * GIB).unwrap();
        let error = us.take(64 * MIB).unwrap_err();
        assert!(error.is_out_of_memory());
        let text = error.to_string();
        assert!(text.contains("process_guarantee") && text.contains("processes_limit"), "{text}");
        assert!(text.contains("are guaranteed 6.00 GiB more"), "{text}");
        let AllocError::OutOfMemory(report) = error else { panic!("{text}") };
        // What C, Python and PyTorch's users read first.
        for message in [report.message(), report.pytorch_message()] {
            assert!(
                message.contains("2 processes together may hold 10.00 GiB (processes_limit)"),
                "{message}"
            );
            let other = format!(
                "Of the others, process {} holds 0 bytes of 6.00 GiB guaranteed to it",
                other.child.id()
            );
            assert!(message.contains(&other), "{message}");
        }
        let remedy = "remedy: raising processes_limit (now 10.00 GiB in each process, for the least of them counts), lowering \
                      process_guarantee in them would give";
        assert!(text.contains(remedy), "{text}");
        assert_eq!(other.ask("take 6144"), "ok", "its guarantee was kept for it");
        assert!(other.ask("take 64").contains("processes_limit"), "and no more is left");
        let quota = us.quota();
        assert_eq!((quota.claimed, quota.others, quota.kept_for_others), (4 * GIB, 6 * GIB, 0));
        assert_eq!((quota.processes, quota.left()), (2, 0));
        drop(other);
        us.take(6 * GIB).expect("the share of a killed process is nobody's");
        assert_eq!((us.quota().processes, us.quota().left()), (1, 0));
    }
}

#[test]
fn what_is_given_back_is_the_others() {
    let root = TempDir::new().unwrap();
    let mut other = Other::ready(root.path(), "processes_limit:4GiB");
    let mut us = own(root.path(), "processes_limit:8GiB");
    assert_eq!(us.quota().limit, 4 * GIB, "the least that one of them says");
    us.take(3 * GIB).unwrap();
    assert!(other.ask("take 2048").contains("they hold 3.00 GiB"));
    us.give();
    assert_eq!(other.ask("take 2048"), "ok");
    assert_eq!(other.ask("give"), "ok");
    us.take(4 * GIB).unwrap();
}

#[test]
fn more_than_there_is_is_guaranteed_to_nobody() {
    let root = TempDir::new().unwrap();
    let mut other = Other::ready(root.path(), "process_guarantee:12GiB");
    let text = format!("process_guarantee:0.5,system_root:{}", root.path().display());
    let refused = Tenant::new(&text).map(drop).unwrap_err();
    assert!(matches!(refused, AllocError::Quota { device: DEVICE, .. }), "{refused}");
    assert!(refused.to_string().contains("are guaranteed 12.00 GiB more"), "{refused}");
    let who =
        format!("Of the others, process {} holds 0 bytes of 12.00 GiB guaranteed to it", other.child.id());
    assert!(refused.to_string().contains(&who), "{refused}");
    assert!(refused.to_string().contains("Set process_guarantee to 4.00 GiB or less"), "{refused}");
    let (_late, first) = Other::start(root.path(), "process_guarantee:5GiB");
    assert!(first.starts_with("quota of device 0: this process is to be guaranteed 5.00 GiB"), "{first}");
    assert_eq!(other.ask("take 8192"), "ok", "who was refused takes no part");
    drop(other);
    drop(Tenant::new(&text).expect("nobody is left who was guaranteed something"));
}

#[test]
fn guarantees_hold_and_the_limit_does_while_many_take_and_some_are_killed() {
    let root = TempDir::new().unwrap();
    let start = || Other::ready(root.path(), "process_guarantee:1GiB,processes_limit:6GiB");
    let mut processes: Vec<Other> = (0..4).map(|_| start()).collect();
    let watch = own(root.path(), "processes_limit:6GiB");
    for (seed, process) in processes.iter_mut().enumerate() {
        process.tell(&format!("press {}", 77 + 1000 * seed));
    }
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        let quota = watch.quota();
        assert!(quota.others + quota.kept_for_others <= quota.limit, "{quota:?}");
    }
    drop(processes.pop());
    let refused: u64 = processes.iter_mut().map(|process| process.answer().parse::<u64>().unwrap()).sum();
    assert!(refused > 0, "they were in one another's way");
    for process in &mut processes {
        assert_eq!(process.ask("give"), "ok");
    }
    let mut heir = start();
    assert_eq!(heir.ask("take 1024"), "ok");
}

#[test]
fn allocators_of_one_process_have_one_quota() {
    alone(|| {
        let root = TempDir::new().unwrap();
        let mut one = own(root.path(), "process_guarantee:4GiB,processes_limit:8GiB");
        let mut two = own(root.path(), "process_guarantee:4GiB");
        one.take(3 * GIB).unwrap();
        let quota = two.quota();
        assert_eq!((quota.claimed, quota.guarantee, quota.processes), (3 * GIB, 4 * GIB, 1));
        two.take(5 * GIB).unwrap();
        assert!(one.take(64 * MIB).is_err());
    });
}
