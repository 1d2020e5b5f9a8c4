//! Host memory as the operating system describes it: `/proc/meminfo`, and the limits of control groups.
//!
//! ```no_run
//! use alloc_core::system::System;
//!
//! let system = System::default();
//! let available = system.memory().map(|memory| memory.available);
//! let left = system.control_groups().left;
//! println!("{available:?} bytes available, {left} left by control groups");
//! ```

use crate::backend::{Attribute, Backend, BackendError, ErrorKind, MemoryInfo};
use crate::types::DeviceIndex;
use std::path::{Path, PathBuf};

/// Folder in which the system describes itself. Questions read small files; they do not block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    root: PathBuf,
}

/// The host's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// All there is.
    pub total: u64,
    /// Bytes that programs can have without swapping: free memory, and what the page cache would give up.
    pub available: u64,
}

/// Memory of the system that a device shares. Other devices have their own, of which only the driver gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// The host's, as on integrated devices.
    Host,
    /// A node beside the host's, as on GH200: programs and the page cache get memory of it, too.
    Node(u32),
    /// None: the firmware set an APU's memory aside, and the driver may tell a part alone.
    Aside,
}

/// Memory that a device shares, and the system that describes it.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    /// Memory that is shared.
    pub which: Shared,
    /// Figures of AMD's kernel driver, where the device is an APU.
    pub apu: Option<Apu>,
    /// Its driver is AMD's, which does not count the page cache as taken.
    is_amds: bool,
    system: System,
}

/// Memory of an AMD APU, by the kernel, in bytes. The runtime may tell a small part of it only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apu {
    /// Set aside for the device by the firmware (`mem_info_vram_total`).
    pub vram: u64,
    /// Bytes that it may take of the host's memory (`mem_info_gtt_total`).
    pub gtt: u64,
    /// Folder in which the system describes the device.
    folder: PathBuf,
}

/// Limits of all control groups that this process is in, in bytes; `u64::MAX` where none has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroups {
    /// The most that programs may use.
    pub limit: u64,
    /// Bytes that programs can still have, with the page cache that would be given up.
    pub left: u64,
    /// Files that cannot be read. A group counts as empty where its use is not known.
    pub unreadable: Vec<PathBuf>,
}

impl ControlGroups {
    /// Counts a group in.
    fn count(&mut self, system: &System, hierarchy: &Hierarchy, group: &Path) {
        let folder = Path::new(hierarchy.mount).join(group);
        let files = hierarchy.limits.iter().map(|name| folder.join(name)).filter(|file| system.has(file));
        let number = |text: &str| text.trim().parse().ok();
        let most = |text: &str| if text.trim() == "max" { Some(u64::MAX) } else { number(text) };
        let limit = files.filter_map(|file| self.read(system, file, most)).min().unwrap_or(u64::MAX);
        // The older version writes a limit beyond every machine instead of "max".
        if limit >= BEYOND {
            return;
        }
        let used = self.read(system, folder.join(hierarchy.used), number).unwrap_or(0);
        let cache = self.read(system, folder.join("memory.stat"), |stat| {
            hierarchy.cache.iter().filter_map(|name| field(stat, name)).reduce(u64::saturating_add)
        });
        let taken = used.saturating_sub(cache.unwrap_or(0));
        self.limit = self.limit.min(limit);
        self.left = self.left.min(limit.saturating_sub(taken));
    }

    /// Content of a file that should be there; notes one that does not say it.
    fn read<T>(
        &mut self,
        system: &System,
        file: PathBuf,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let read = system.text(&file).and_then(|text| parse(&text));
        if read.is_none() {
            self.unreadable.push(system.root.join(file));
        }
        read
    }
}

/// Bytes that no machine has.
const BEYOND: u64 = 1 << 60;

/// A version of control groups, with the places and names of its memory files.
struct Hierarchy {
    /// Name behind the number in a line of `/proc/self/cgroup`.
    controller: &'static str,
    mount: &'static str,
    /// Limits beyond which programs are ended, or slowed down until others give memory back.
    limits: &'static [&'static str],
    used: &'static str,
    cache: [&'static str; 2],
}

const HIERARCHIES: [Hierarchy; 2] = [
    Hierarchy {
        controller: "",
        mount: "sys/fs/cgroup",
        limits: &["memory.max", "memory.high"],
        used: "memory.current",
        cache: ["active_file", "inactive_file"],
    },
    Hierarchy {
        controller: "memory",
        mount: "sys/fs/cgroup/memory",
        limits: &["memory.limit_in_bytes"],
        used: "memory.usage_in_bytes",
        cache: ["total_active_file", "total_inactive_file"],
    },
];

impl Default for System {
    /// This machine's.
    fn default() -> Self {
        Self::at("/")
    }
}

impl System {
    /// A system whose `proc` and `sys` are in the folder `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Problem with the folder `root`, and the remedy; `None` for one that is there.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if self.root.is_dir() {
            return None;
        }
        let root = self.root.display();
        Some(format!(
            "system_root:{root}: there is no such folder; name one that has proc and sys, or remove the option for this machine's own"
        ))
    }

    /// Reason why the memory that a device shares is not known, or not all of its limits, if so.
    #[must_use]
    pub fn unknown_memory(&self, shared: Shared) -> Option<String> {
        let (known, file) = match shared {
            Shared::Host => (self.memory().is_some(), "proc/meminfo".to_owned()),
            Shared::Node(node) => (self.node(node).is_some(), node_file(node)),
            Shared::Aside => return None,
        };
        if !known {
            return Some(format!(
                "{} does not say what memory there is: of devices that share it, what can be had is what the driver says, and host_reserve is not kept",
                self.root.join(file).display()
            ));
        }
        let unreadable = (shared == Shared::Host).then(|| self.control_groups().unreadable)?;
        let files: Vec<_> = unreadable.iter().map(|file| file.display().to_string()).collect();
        (!files.is_empty()).then(|| {
            let files = files.join(", ");
            format!("{files} cannot be read: not all that control groups allow of the host's memory is known")
        })
    }

    /// The host's memory; `None` where the system does not say.
    #[must_use]
    pub fn memory(&self) -> Option<HostMemory> {
        let text = self.text("proc/meminfo")?;
        let kib = |name| field(&text, name);
        Some(HostMemory {
            total: kib("MemTotal:")?.saturating_mul(1024),
            available: kib("MemAvailable:")?.saturating_mul(1024),
        })
    }

    /// Memory of one of the system's nodes; `None` where the system does not say. Free memory and the page cache count
    /// as available.
    #[must_use]
    pub fn node(&self, node: u32) -> Option<HostMemory> {
        let text = self.text(node_file(node))?;
        // Each line begins with the node.
        let lines: Vec<&str> =
            text.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap_or_default()).collect();
        let text = lines.join("\n");
        let bytes = |name| Some(field(&text, name)?.saturating_mul(1024));
        let cache = ["Active(file):", "Inactive(file):"].into_iter().filter_map(bytes).sum();
        Some(HostMemory { total: bytes("MemTotal:")?, available: bytes("MemFree:")?.saturating_add(cache) })
    }

    /// Limits of the control groups that this process is in.
    #[must_use]
    pub fn control_groups(&self) -> ControlGroups {
        let mut groups = ControlGroups { limit: u64::MAX, left: u64::MAX, unreadable: Vec::new() };
        let file = PathBuf::from("proc/self/cgroup");
        if !self.has(&file) {
            return groups;
        }
        let is_whole = |text: &str| text.lines().all(|line| line.matches(':').count() > 1);
        let lines = groups.read(self, file, |text| is_whole(text).then(|| text.to_owned()));
        for line in lines.unwrap_or_default().lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let of_line = |one: &&Hierarchy| controllers.split(',').any(|name| name == one.controller);
            if let Some(hierarchy) = HIERARCHIES.iter().find(of_line) {
                // The limits of a group hold for all groups in it. In a container the path may be one of the host's,
                // which is not there; the mount itself then is the container's group.
                let group = Path::new(path.trim_start_matches('/'));
                group.ancestors().for_each(|group| groups.count(self, hierarchy, group));
            }
        }
        groups
    }

    /// Host memory within the limits of control groups: total and available bytes for programs.
    pub(crate) fn within_groups(&self) -> Option<HostMemory> {
        let HostMemory { total, available } = self.memory()?;
        let ControlGroups { limit, left, .. } = self.control_groups();
        Some(HostMemory { total: total.min(limit), available: available.min(left) })
    }

    /// Kernel's figures of the device at this place on the bus.
    fn apu(&self, bus: &str) -> Option<Apu> {
        let folder = Path::new("sys").join(pci_folder(bus)?);
        let total = |name| self.bytes(folder.join(name));
        let (vram, gtt) = (total("mem_info_vram_total")?, total("mem_info_gtt_total")?);
        Some(Apu { vram, gtt, folder })
    }

    /// A number of bytes that a machine can have.
    fn bytes(&self, file: PathBuf) -> Option<u64> {
        self.text(file)?.trim().parse().ok().filter(|bytes| *bytes < BEYOND)
    }

    /// False only for a file that is not there: one that cannot be looked at may be.
    fn has(&self, file: &Path) -> bool {
        !matches!(self.root.join(file).try_exists(), Ok(false))
    }

    fn text(&self, file: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.root.join(file)).ok()
    }
}

impl SharedMemory {
    /// Memory that a device shares, as the driver and the system describe it; `None` for a device with its own. Calls
    /// the driver.
    #[must_use]
    pub fn of(system: &System, backend: &dyn Backend, device: DeviceIndex) -> Option<Self> {
        let failed = |error: &BackendError| {
            backend.clear_error();
            if error.kind != ErrorKind::NotSupported {
                tracing::warn!(
                    %device,
                    %error,
                    "the driver does not say if the device shares the host's memory; the driver's figures count, and \
                     host_reserve is not kept"
                );
            }
        };
        let asked = |attribute| backend.attribute(device, attribute).inspect_err(failed).ok();
        let system = system.clone();
        if asked(Attribute::Integrated) != Some(1) {
            let node = u32::try_from(asked(Attribute::MemoryNode)?).ok()?;
            return Some(Self { which: Shared::Node(node), apu: None, is_amds: false, system });
        }
        let properties = backend.properties(device).inspect_err(|_| backend.clear_error()).ok();
        let bus = properties.and_then(|properties| properties.pci_bus_id);
        let apu = bus.as_ref().and_then(|bus| system.apu(bus));
        let is_amds = backend.name().starts_with("hip");
        if apu.is_none() && is_amds {
            tracing::warn!(
                %device,
                bus,
                "the system does not say what memory the device has, in mem_info_vram_total and mem_info_gtt_total of \
                 sys/bus/pci/devices; what the driver says counts"
            );
        }
        // MI300A has no VRAM, and its GTT is of the whole machine. The driver tells each device's part of that.
        let apu = apu.filter(|apu| apu.vram > 0);
        // KFD takes all of an APU's memory from the larger of the two (`apu_prefer_gtt`, since Linux 6.10). What the
        // firmware set aside is not the host's.
        let is_aside = apu.as_ref().is_some_and(|apu| apu.vram >= apu.gtt);
        Some(Self { which: if is_aside { Shared::Aside } else { Shared::Host }, apu, is_amds, system })
    }

    /// Free and total bytes of the device, for which the driver reports `driver`.
    ///
    /// A node's memory is the device's own: control groups do not limit what the driver gives of it.
    #[must_use]
    pub fn obtainable(&self, driver: MemoryInfo) -> MemoryInfo {
        match self.which {
            Shared::Host => self.of_host(driver),
            Shared::Node(node) => {
                let available = self.system.node(node).map_or(0, |memory| memory.available);
                MemoryInfo { free: driver.free.max(available.min(driver.total)), ..driver }
            }
            Shared::Aside => self.apu.as_ref().map_or(driver, |Apu { vram, folder, .. }| {
                let used = self.system.bytes(folder.join("mem_info_vram_used")).unwrap_or(*vram);
                MemoryInfo {
                    free: driver.free.max(vram.saturating_sub(used)),
                    total: driver.total.max(*vram),
                }
            }),
        }
    }

    /// Memory of a device whose memory is the host's. Drivers but AMD's count the page cache as taken, which the system
    /// gives up on demand. They know no control groups, and of an APU maybe a part alone.
    fn of_host(&self, driver: MemoryInfo) -> MemoryInfo {
        let memory = self.system.memory();
        let available = memory.map_or(0, |memory| memory.available);
        let ControlGroups { limit, left, .. } = self.system.control_groups();
        let (mut had, mut total) = (if self.is_amds { 0 } else { available }, driver.total.min(limit));
        if let Some(Apu { gtt, folder, .. }) = &self.apu {
            let host = memory.map_or(u64::MAX, |memory| memory.total);
            total = total.max((*gtt).min(host).min(limit));
            let used = self.system.bytes(folder.join("mem_info_gtt_used")).unwrap_or(0);
            had = available.min(gtt.saturating_sub(used));
        }
        MemoryInfo { free: driver.free.max(had).min(left).min(total), total }
    }

    /// The system, where its memory is the host's.
    pub(crate) fn host(&self) -> Option<&System> {
        (self.which == Shared::Host).then_some(&self.system)
    }

    /// Reason why the memory is not known, if so.
    pub(crate) fn unknown(&self) -> Option<String> {
        self.system.unknown_memory(self.which)
    }
}

/// Folder that describes a device at this place on the bus, below `sys`.
pub(crate) fn pci_folder(bus: &str) -> Option<String> {
    let (domain, rest) = bus.split_once(':')?;
    // Some drivers write the domain with eight digits.
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let is_place = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let rest = rest.to_ascii_lowercase();
    rest.bytes().all(is_place).then(|| format!("bus/pci/devices/{domain:04x}:{rest}"))
}

fn node_file(node: u32) -> String {
    format!("sys/devices/system/node/node{node}/meminfo")
}

/// The number behind a name, in lines of a name and a number.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_whitespace).find_map(|mut words| {
        let found = words.next() == Some(name);
        found.then_some(words)
    })?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const GIB: u64 = 1 << 30;

    fn imitated(files: &[(&str, &str)]) -> (TempDir, System) {
        let root = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().expect("it is in a folder")).expect("a folder");
            std::fs::write(file, text).expect("a file");
        }
        let system = System::at(root.path());
        (root, system)
    }

    fn host(system: &System) -> SharedMemory {
        SharedMemory { which: Shared::Host, apu: None, is_amds: false, system: system.clone() }
    }

    const MEMORY: (&str, &str) =
        ("proc/meminfo", "MemTotal:       8388608 kB\nMemFree:  1024 kB\nMemAvailable:    4194304 kB\n");

    #[test]
    fn what_the_system_gives_up_can_be_had_up_to_what_there_is() {
        let (_root, system) = imitated(&[MEMORY]);
        let free = |free, total| host(&system).obtainable(MemoryInfo { free, total }).free;
        assert_eq!(free(GIB, 8 * GIB), 4 * GIB, "the page cache is not taken");
        assert_eq!(free(5 * GIB, 8 * GIB), 5 * GIB, "the driver knows of more");
        assert_eq!(free(GIB, 3 * GIB), 3 * GIB, "there is no more");
        let (_root, silent) = imitated(&[]);
        let driver = MemoryInfo { free: GIB, total: 8 * GIB };
        let unlimited = ControlGroups { limit: u64::MAX, left: u64::MAX, unreadable: Vec::new() };
        assert_eq!((host(&silent).obtainable(driver), silent.control_groups()), (driver, unlimited));
    }

    #[test]
    fn a_nodes_page_cache_is_not_taken_and_no_group_limits_it() {
        let text = "Node 7 MemTotal:        8388608 kB\nNode 7 MemFree:  1048576 kB\nNode 7 Active(file):    2097152 kB\n\
                    Node 7 Inactive(file):  1048576 kB\nNode 7 Shmem:  5 kB\n";
        let (_root, system) = imitated(&[
            MEMORY,
            ("sys/devices/system/node/node7/meminfo", text),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/memory.current", "0\n"),
        ]);
        assert_eq!(system.node(7), Some(HostMemory { total: 8 * GIB, available: 4 * GIB }));
        let of = |node, free, total| {
            let driver = MemoryInfo { free, total };
            SharedMemory { which: Shared::Node(node), ..host(&system) }.obtainable(driver)
        };
        assert_eq!(of(7, GIB, 8 * GIB), MemoryInfo { free: 4 * GIB, total: 8 * GIB });
        assert_eq!(of(7, 5 * GIB, 8 * GIB).free, 5 * GIB, "the driver knows of more");
        assert_eq!(of(7, GIB, 3 * GIB).free, 3 * GIB, "there is no more");
        assert_eq!(of(6, GIB, 8 * GIB).free, GIB, "nobody says");
        assert_eq!(system.unknown_memory(Shared::Node(7)), None);
        assert!(system.unknown_memory(Shared::Node(6)).is_some_and(|why| why.contains("node/node6/meminfo")));
    }

    #[test]
    fn the_tightest_groups_count_and_their_page_cache_does_not() {
        let (root, system) = imitated(&[
            MEMORY,
            ("proc/self/cgroup", "0::/pod/job\n"),
            ("sys/fs/cgroup/pod/memory.max", "3221225472\n"),
            ("sys/fs/cgroup/pod/memory.current", "2147483648\n"),
            (
                "sys/fs/cgroup/pod/memory.stat",
                "anon 5\nactive_file 536870912\ninactive_file 536870912\nshmem 9\n",
            ),
            ("sys/fs/cgroup/pod/job/memory.max", "max\n"),
            ("sys/fs/cgroup/pod/job/memory.current", "2147483648\n"),
        ]);
        let groups = |limit, left| ControlGroups { limit, left, unreadable: Vec::new() };
        assert_eq!(system.control_groups(), groups(3 * GIB, 2 * GIB));
        let had = host(&system).obtainable(MemoryInfo { free: GIB, total: 8 * GIB });
        assert_eq!(had, MemoryInfo { free: 2 * GIB, total: 3 * GIB });
        for (name, text) in [
            ("max", "2684354560\n"),
            ("current", "268435456\n"),
            ("stat", "active_file 18446744073709551615\ninactive_file 9\n"),
        ] {
            std::fs::write(root.path().join(format!("sys/fs/cgroup/pod/job/memory.{name}")), text)
                .expect("a file");
        }
        let (limit, left) = (2 * GIB + GIB / 2, 2 * GIB);
        assert_eq!(system.control_groups(), groups(limit, left), "each is of another group");
    }

    /// The limit is known where the use is not.
    #[test]
    fn files_of_groups_that_cannot_be_read_are_named() {
        let (root, system) = imitated(&[
            MEMORY,
            ("proc/self/cgroup", "0::/job\n"),
            ("sys/fs/cgroup/job/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/job/memory.high", "1 GiB\n"),
            ("sys/fs/cgroup/job/memory.current", "-1\n"),
            ("sys/fs/cgroup/job/memory.stat", "anon 7\n"),
        ]);
        let groups = system.control_groups();
        assert_eq!((groups.limit, groups.left), (GIB, GIB));
        let names = ["high", "current", "stat"];
        let files = names.map(|name| root.path().join(format!("sys/fs/cgroup/job/memory.{name}")));
        assert_eq!(groups.unreadable, files);
        let why = system.unknown_memory(Shared::Host).expect("not all is known");
        assert!(files.iter().all(|file| why.contains(&*file.to_string_lossy())), "{why}");
        assert_eq!(system.unknown_memory(Shared::Aside), None);
    }

    #[test]
    fn the_older_version_and_a_path_of_the_host_are_understood() {
        let (_root, system) = imitated(&[
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/of-the-host\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 536870912\n"),
        ]);
        let groups = ControlGroups { limit: 2 * GIB, left: GIB + GIB / 2, unreadable: Vec::new() };
        assert_eq!(system.control_groups(), groups);
        let (_root, unlimited) = imitated(&[
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"),
        ]);
        let groups = ControlGroups { limit: u64::MAX, left: u64::MAX, unreadable: Vec::new() };
        assert_eq!(unlimited.control_groups(), groups);
    }
}
