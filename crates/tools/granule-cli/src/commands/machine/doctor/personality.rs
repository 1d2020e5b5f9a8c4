//! Which machine of those with a character of their own this one is, as far as it shows. The names are those of
//! `tests/personalities`, where each is imitated.

use super::limits::Machine;
use granule::backends::Device;
use serde::Serialize;
use std::path::Path;

/// A machine that this one resembles.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Personality {
    pub(super) name: String,
    /// Where it shows.
    pub(super) sign: String,
}

/// The variable of the simulated drivers.
const LOOKALIKE: &str = "GRANULE_LOOKALIKE";

/// What shows in this process, on these devices.
pub(super) fn found(devices: &[Device], machine: &Machine) -> Vec<Personality> {
    let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    of(devices, machine, variable, |path| Path::new(path).exists())
}

fn of(
    devices: &[Device],
    machine: &Machine,
    variable: impl Fn(&str) -> Option<String>,
    exists: impl Fn(&str) -> bool,
) -> Vec<Personality> {
    let mut found = Vec::new();
    let mut add = |name: &str, sign: String| found.push(Personality { name: name.to_owned(), sign });
    if let Some(value) = variable(LOOKALIKE) {
        let named =
            value.split(',').filter_map(|entry| entry.trim().strip_prefix("personality=")).next_back();
        add(named.unwrap_or("default"), format!("{LOOKALIKE}={value}, which simulated drivers go by"));
    }
    let kernel = machine.kernel.to_lowercase();
    let is_tegra = kernel.contains("tegra") || exists("/etc/nv_tegra_release");
    if kernel.contains("microsoft") {
        add("wsl2", format!("the kernel is {}", machine.kernel));
    }
    if is_tegra {
        add("tegra", format!("the kernel is {}, or there is /etc/nv_tegra_release", machine.kernel));
    }
    if !is_tegra && let Some(device) = devices.iter().find(|device| device.integrated) {
        add("uma", format!("device {} shares the host's memory", device.index));
    }
    if let Some(device) = devices.iter().find(|device| device.kernel_memory.is_some()) {
        add("gfx1151", format!("the driver tells a part of device {}'s memory", device.index));
    }
    let with_node = devices.iter().find_map(|device| Some((device.index, device.memory_node?)));
    if let Some((device, node)) = with_node {
        add("page64k", format!("the memory of device {device} is node {node} of the system, as on GH200"));
    } else if machine.page_bytes >= 64 << 10 {
        add("page64k", "pages of the host have 64 KiB".to_owned());
    }
    if let Some(device) =
        devices.iter().find(|device| device.name.split_whitespace().any(|word| word == "MIG"))
    {
        add("mig", format!("device {} is called {}", device.index, device.name));
    }
    for (name, variables) in [
        ("mps", &["CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"][..]),
        ("limiter", &["CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0"]),
        ("container", &["KUBERNETES_SERVICE_HOST", "container"]),
    ] {
        if let Some(set) = variables.iter().find(|name| variable(name).is_some()) {
            add(name, format!("{set} is set"));
        }
    }
    if let Some(file) = ["/.dockerenv", "/run/.containerenv"].into_iter().find(|file| exists(file)) {
        add("container", format!("there is {file}"));
    }
    found.dedup_by(|a, b| a.name == b.name);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(kernel: &str, variables: &[(&str, &str)], files: &[&str]) -> Vec<String> {
        let machine = Machine {
            kernel: kernel.into(),
            architecture: "x86_64".into(),
            page_bytes: 4096,
            memory_bytes: None,
            available_bytes: None,
            host_reserve_bytes: None,
        };
        let variable = |name: &str| {
            let set = variables.iter().find(|(set, _)| *set == name);
            set.map(|(_, value)| (*value).to_owned())
        };
        let all = of(&[], &machine, variable, |file| files.contains(&file));
        all.into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn machines_show_by_their_kernel_variables_and_files() {
        let plain = "Linux 6.8.0";
        assert!(names(plain, &[], &[]).is_empty());
        assert_eq!(names("Linux 5.15.153.1-microsoft-standard-WSL2", &[], &[]), ["wsl2"]);
        assert_eq!(names("Linux 5.15.136-tegra", &[], &[]), ["tegra"]);
        assert_eq!(names(plain, &[("container", "podman")], &["/run/.containerenv"]), ["container"]);
        assert_eq!(names(plain, &[("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps")], &[]), ["mps"]);
        assert_eq!(names(plain, &[(LOOKALIKE, "devices=1,personality=vgpu")], &[]), ["vgpu"]);
        assert_eq!(names(plain, &[(LOOKALIKE, "devices=1")], &[]), ["default"]);
    }

    /// Every name that is told has its file.
    #[test]
    fn every_machine_is_imitated() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/personalities");
        for name in
            ["wsl2", "tegra", "uma", "gfx1151", "page64k", "mig", "mps", "limiter", "container", "default"]
        {
            assert!(folder.join(format!("{name}.toml")).exists(), "{name}");
        }
    }
}
