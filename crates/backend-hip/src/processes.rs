//! What each process has of a device, as the kernel's driver shows it in files: AMD's management libraries read the same.

use std::fs;
use std::path::{Path, PathBuf};

/// What processes have of the device at this place on the bus (`0000:c1:00.0`), in bytes, by number. `system_root` is `/`, but for
/// tests.
///
/// # Errors
/// Why it is not known, and what to do.
pub fn processes(system_root: &Path, bus_id: &str) -> Result<Vec<(u32, u64)>, String> {
    let driver = system_root.join("sys/class/kfd/kfd");
    let device = device(&driver, bus_id)?;
    let folder = driver.join("proc");
    let unknown = |error| format!("{}: {error}: what processes use is not known", folder.display());
    let all = fs::read_dir(&folder).map_err(unknown)?.filter_map(Result::ok);
    let of_process = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // One that has ended meanwhile has no files.
        let text = fs::read_to_string(entry.path().join(format!("vram_{device}"))).ok()?;
        Some((pid, text.trim().parse().ok()?))
    };
    Ok(all.filter_map(of_process).collect())
}

/// The driver's number of the device.
fn device(driver: &Path, bus_id: &str) -> Result<u64, String> {
    let nodes = driver.join("topology/nodes");
    let missing = |error| {
        format!(
            "{}: {error}: what processes use is not known. The kernel's driver amdgpu shows it; in a container /sys has to be the \
             host's",
            nodes.display()
        )
    };
    let wanted = location(bus_id).ok_or_else(|| format!("`{bus_id}` is no place on the bus"))?;
    let all = fs::read_dir(&nodes).map_err(missing)?.filter_map(Result::ok).map(|entry| entry.path());
    let number = |node: &PathBuf| fs::read_to_string(node.join("gpu_id")).ok()?.trim().parse().ok();
    all.filter(|node| place(node) == Some(wanted))
        .find_map(|node| number(&node))
        .ok_or_else(|| format!("no device in {} lies at {bus_id}", nodes.display()))
}

/// Domain and place of a node.
fn place(node: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(node.join("properties")).ok()?;
    let of = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse::<u64>().ok()
    };
    Some((of("domain").unwrap_or(0), of("location_id")?))
}

/// Domain, and bus, device and function in one number.
fn location(bus_id: &str) -> Option<(u64, u64)> {
    let (front, function) = bus_id.split_once('.')?;
    let mut parts = front.split(':').map(|part| u64::from_str_radix(part, 16).ok());
    let (domain, bus, device) = (parts.next()??, parts.next()??, parts.next()??);
    Some((domain, bus << 8 | device << 3 | u64::from_str_radix(function, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_is_found_with_what_it_has_of_the_device() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = root.path().join("sys/class/kfd/kfd").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let absent = processes(root.path(), "0000:c1:00.0").unwrap_err();
        assert!(absent.contains("amdgpu") && absent.contains("not known"), "{absent}");
        for (node, number, location) in [("0", "0", "0"), ("1", "51234", "49408"), ("2", "777", "256")] {
            write(&format!("topology/nodes/{node}/gpu_id"), number);
            let properties = format!("cpu_cores_count 0\nlocation_id {location}\ndomain 0\n");
            write(&format!("topology/nodes/{node}/properties"), &properties);
        }
        write("proc/4711/vram_51234", "1048576\n");
        write("proc/4711/vram_777", "5\n");
        write("proc/12/vram_777", "7\n");
        assert_eq!(processes(root.path(), "0000:c1:00.0"), Ok(vec![(4711, 1 << 20)]));
        let mut second = processes(root.path(), "0000:01:00.0").unwrap();
        second.sort_unstable();
        assert_eq!(second, [(12, 7), (4711, 5)]);
        assert!(processes(root.path(), "0000:02:00.0").unwrap_err().contains("no device"));
        assert!(processes(root.path(), "somewhere").unwrap_err().contains("no place on the bus"));
    }
}
