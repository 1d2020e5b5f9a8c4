//! Nodes for pinned memory in machines whose memory is nearer to some devices than to others.

use crate::backend::Backend;
use crate::error::Result;
use crate::process::system::pci_folder;
use crate::types::{DeviceIndex, DevicePtr};
use std::path::Path;

/// On which node pinned memory is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum NumaPolicy {
    /// Wherever the system puts it: usually near the processor of the thread that asks.
    #[default]
    System,
    /// Near a device, where the system says which node that is.
    NearDevice(DeviceIndex),
    /// On the node with this number.
    Node(u32),
}

/// Nodes with higher numbers are not asked for.
const MAX_NODES: u32 = 1024;
const WORDS: usize = MAX_NODES as usize / libc::c_ulong::BITS as usize;

/// A set of nodes as the system calls want it.
type Mask = [libc::c_ulong; WORDS];

/// The node that a policy means; `None` where the system decides, also because it does not say. `sysfs` is where the
/// system describes its devices.
pub(in crate::host) fn resolve(
    policy: NumaPolicy,
    backend: &dyn Backend,
    sysfs: &Path,
) -> Result<Option<u32>> {
    let node = match policy {
        NumaPolicy::System => return Ok(None),
        NumaPolicy::Node(node) => node,
        NumaPolicy::NearDevice(device) => {
            let Some(bus) = backend.properties(device)?.pci_bus_id else {
                tracing::info!(%device, "the driver has no bus id of the device; the system places pinned memory");
                return Ok(None);
            };
            match node_of(&bus, sysfs) {
                Some(node) => node,
                None => {
                    tracing::info!(%device, bus, "the system names no node for the device; it places pinned memory itself");
                    return Ok(None);
                }
            }
        }
    };
    let exists = node < MAX_NODES && sysfs.join(format!("devices/system/node/node{node}")).exists();
    if !exists {
        tracing::info!(node, "there is no such node; the system places pinned memory");
    }
    Ok(exists.then_some(node))
}

/// The node of the device on a bus; systems without nodes say -1, or nothing.
fn node_of(bus: &str, sysfs: &Path) -> Option<u32> {
    let file = sysfs.join(pci_folder(bus)?).join("numa_node");
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn mask(node: u32) -> Mask {
    let mut mask = [0; WORDS];
    mask[(node / libc::c_ulong::BITS) as usize] = 1 << (node % libc::c_ulong::BITS);
    mask
}

/// The system call's count of nodes is one too high by tradition.
const NODES: libc::c_ulong = MAX_NODES as libc::c_ulong + 1;

/// Pages of a mapping that do not exist yet come from `node`, if it has any left.
///
/// # Safety
/// The range is a mapping of the caller's, at page borders.
pub(super) unsafe fn prefer(at: DevicePtr, bytes: u64, node: u32) {
    let mask = mask(node);
    // SAFETY: the range is the caller's, and the mask is as long as it says.
    let placed = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            at.0,
            bytes,
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            NODES,
            0 as libc::c_ulong,
        )
    };
    if placed != 0 {
        tracing::info!(node, error = %std::io::Error::last_os_error(), "pinned memory could not be placed on a node");
    }
}

/// While it lives, memory that the calling thread brings into being comes from a node, if that has any left.
#[derive(Debug)]
pub(super) struct Preferring {
    mode: libc::c_int,
    before: Mask,
    // It is the thread's policy.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Preferring {
    /// `None` where the system does not offer it.
    pub(super) fn node(node: u32) -> Option<Self> {
        let (mut mode, mut before): (libc::c_int, Mask) = (0, [0; WORDS]);
        let nothing: libc::c_ulong = 0;
        // SAFETY: writes the thread's mode, and its mask, which is as long as it says.
        let asked = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                before.as_mut_ptr(),
                NODES,
                nothing,
                nothing,
            )
        };
        let mask = mask(node);
        // SAFETY: reads the mask, which is as long as it says.
        let set =
            || unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_PREFERRED, mask.as_ptr(), NODES) };
        if asked != 0 || set() != 0 {
            tracing::info!(node, error = %std::io::Error::last_os_error(), "a thread's memory cannot be placed on a node");
            return None;
        }
        Some(Self { mode, before, _thread: std::marker::PhantomData })
    }
}

impl Drop for Preferring {
    fn drop(&mut self) {
        // SAFETY: reads the mask, which is as long as it says; both are what the system said before.
        let restored =
            unsafe { libc::syscall(libc::SYS_set_mempolicy, self.mode, self.before.as_ptr(), NODES) };
        if restored != 0 {
            tracing::warn!(error = %std::io::Error::last_os_error(), "a thread's memory policy could not be restored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    #[test]
    fn a_device_is_found_by_its_bus_id_however_that_is_written() {
        let root = std::env::temp_dir().join(format!("granule-numa-{}", std::process::id()));
        write(&root, "bus/pci/devices/0000:af:00.0/numa_node", "1\n");
        write(&root, "bus/pci/devices/0000:3b:00.0/numa_node", "-1\n");
        assert_eq!(node_of("0000:AF:00.0", &root), Some(1));
        assert_eq!(node_of("00000000:af:00.0", &root), Some(1));
        assert_eq!(node_of("0000:3b:00.0", &root), None, "the system has no nodes");
        assert_eq!((node_of("0000:99:00.0", &root), node_of("17", &root)), (None, None));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_threads_policy_comes_back() {
        let mode = || {
            let (mut mode, nothing): (libc::c_int, libc::c_ulong) = (-1, 0);
            // SAFETY: writes the thread's mode alone.
            unsafe {
                libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nothing, nothing, nothing, nothing)
            };
            mode
        };
        let before = mode();
        // Machines without nodes may not offer the call.
        if let Some(preferring) = Preferring::node(0) {
            assert_eq!(mode(), libc::MPOL_PREFERRED);
            drop(preferring);
        }
        assert_eq!(mode(), before);
    }
}
