//! What the simulated devices say about themselves.

use crate::config::Families;
use crate::memory::DeviceMemory;
use crate::openreg::OpenReg;
use crate::refusal::{Answer, Refusal};
use backend_api::types::DeviceIndex;
use backend_api::{Attribute, DeviceProperties, MemoryInfo};

const WARP_SIZE: u32 = 32;

impl OpenReg {
    pub(crate) fn attribute_of(&self, attribute: Attribute) -> Answer<i64> {
        let family = |family| Ok(i64::from(self.has(family)));
        match attribute {
            Attribute::ComputeCapabilityMajor => Ok(1),
            Attribute::ComputeCapabilityMinor => Ok(0),
            Attribute::MultiprocessorCount => Ok(i64::from(self.config.concurrency)),
            Attribute::WarpSize => Ok(i64::from(WARP_SIZE)),
            Attribute::VirtualMemoryManagement | Attribute::PosixFileDescriptorHandles => {
                family(Families::VIRTUAL_MEMORY)
            }
            Attribute::FabricHandles | Attribute::GpuDirectRdmaWithVirtualMemory | Attribute::Integrated => {
                Ok(0)
            }
            Attribute::MemoryNode => Ok(-1),
            other => Err(Refusal::unsupported(format!("the simulated devices have no answer to {other:?}"))),
        }
    }
}

pub(crate) fn properties(device: DeviceIndex, memory: &str, capacity: u64) -> DeviceProperties {
    let mut uuid = *b"granule-openreg\0";
    uuid[15] = device.0 as u8;
    DeviceProperties {
        name: format!("OpenReg simulated accelerator ({memory} memory)"),
        uuid: Some(uuid),
        pci_bus_id: Some(format!("0000:{:02x}:00.0", device.0 + 1)),
        total_memory: capacity,
        warp_size: WARP_SIZE,
    }
}

pub(crate) fn memory_info(memory: &DeviceMemory) -> MemoryInfo {
    MemoryInfo { free: memory.capacity.saturating_sub(memory.used), total: memory.capacity }
}

/// PyTorch's openreg library has three names.
pub(crate) const fn error_name(code: i32) -> &'static str {
    match code {
        0 => "orSuccess",
        1 => "orErrorUnknown",
        2 => "orErrorNotReady",
        _ => "unknown",
    }
}
