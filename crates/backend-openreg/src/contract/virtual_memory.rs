//! Virtual memory.

use crate::config::{Families, MemoryMode};
use crate::gate::call::Call;
use crate::memory::{Extent, index};
use crate::openreg::OpenReg;
use crate::os::SharedFile;
use crate::refusal::Refusal;
use backend_api::types::{DeviceIndex, DevicePtr, PhysicalHandle};
use backend_api::*;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// What an exported descriptor of reserved memory holds instead of bytes.
const TOKEN: &[u8; 16] = b"openreg-reserved";
const TOKEN_BYTES: usize = 48;

impl OpenReg {
    /// The device in whose addresses `at` lies; the first where it lies in none.
    pub(crate) fn device_at(&self, at: DevicePtr) -> DeviceIndex {
        let state = self.machine.lock();
        let device = state.memory.ranges.range(..=at.0).next_back().map_or(0, |(_, range)| range.device);
        DeviceIndex(device as u16)
    }

    pub(crate) fn device_of_handle(&self, handle: PhysicalHandle) -> DeviceIndex {
        let state = self.machine.lock();
        DeviceIndex(state.memory.physical.get(handle.raw).map_or(0, |physical| physical.device as u16))
    }

    /// What stands for reserved memory in another process: its size, and who it is.
    fn token(&self, bytes: u64, identity: u64) -> [u8; TOKEN_BYTES] {
        let mut token = [0; TOKEN_BYTES];
        token[..16].copy_from_slice(TOKEN);
        token[16..24].copy_from_slice(&bytes.to_le_bytes());
        token[24..32].copy_from_slice(&identity.to_le_bytes());
        token[32..36].copy_from_slice(&std::process::id().to_le_bytes());
        token[36..38].copy_from_slice(&self.names.id().0.to_le_bytes());
        token
    }
}

impl VirtualMemory for OpenReg {
    fn granularity(&self, device: DeviceIndex, _which: Granularity) -> Result<u64> {
        self.enter(Call::Granularity, device)?;
        Ok(self.config.granularity)
    }

    fn reserve_address(
        &self,
        device: DeviceIndex,
        bytes: u64,
        alignment: u64,
        hint: DevicePtr,
    ) -> Result<DevicePtr> {
        self.unsafe_call(Call::ReserveAddress, device, |mut state| {
            state.memory.reserve(index(device), bytes, alignment, hint.0).map(DevicePtr)
        })
    }

    unsafe fn release_address(&self, base: DevicePtr, bytes: u64) -> Result<()> {
        self.unsafe_call(Call::ReleaseAddress, self.device_at(base), |mut state| {
            state.memory.release_reservation(base.0, bytes)
        })
    }

    fn create_physical(
        &self,
        device: DeviceIndex,
        bytes: u64,
        handle_type: HandleType,
    ) -> Result<PhysicalHandle> {
        let created = self.unsafe_call(Call::CreatePhysical, device, |mut state| {
            if handle_type == HandleType::Fabric {
                return Err(Refusal::unsupported("there is no fabric; export as a file descriptor"));
            }
            let identity = self.names.fresh_identity();
            state
                .memory
                .create(index(device), bytes, handle_type, identity)
                .map(|raw| self.names.new_physical(raw))
        });
        if created.is_ok() {
            self.gate.charge(Call::CreatePhysical, bytes);
        }
        created
    }

    unsafe fn release_physical(&self, handle: PhysicalHandle) -> Result<()> {
        self.unsafe_call(Call::ReleasePhysical, self.device_of_handle(handle), |mut state| {
            state.memory.release_handle(self.names.physical(handle)?)
        })
    }

    unsafe fn map(&self, at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()> {
        let mapped = self.unsafe_call(Call::Map, self.device_at(at), |mut state| {
            state.memory.map(at.0, bytes, self.names.physical(handle)?)
        });
        if mapped.is_ok() {
            self.gate.charge(Call::Map, bytes);
        }
        mapped
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let unmapped = self.unsafe_call(Call::Unmap, self.device_at(at), |mut state| {
            state.memory.whole_mappings(at.0, bytes)?;
            state.not_in_use(at.0, bytes)?;
            state.memory.unmap(at.0, bytes)
        });
        if unmapped.is_ok() {
            self.gate.charge(Call::Unmap, bytes);
        }
        unmapped
    }

    unsafe fn set_access(
        &self,
        at: DevicePtr,
        bytes: u64,
        devices: &[DeviceIndex],
        access: Access,
    ) -> Result<()> {
        let set = self.unsafe_call(Call::SetAccess, self.device_at(at), |mut state| {
            if let Some(device) = devices.iter().find(|device| device.0 >= self.config.devices) {
                return Err(Refusal::invalid(format!("there is no device {device}")));
            }
            state.memory.whole_mappings(at.0, bytes)?;
            for (_, mapping) in state.memory.mappings.range(at.0..at.0 + bytes) {
                let owner = DeviceIndex(mapping.device as u16);
                if let Some(device) =
                    devices.iter().find(|&&device| access != Access::None && !self.reaches(device, owner))
                {
                    return Err(Refusal::invalid(format!(
                        "device {device} cannot reach memory of device {owner}"
                    )));
                }
            }
            if access != Access::ReadWrite {
                state.not_in_use(at.0, bytes)?;
            }
            state.memory.set_access(at.0, bytes, devices, access);
            Ok(())
        });
        if set.is_ok() {
            self.gate.charge(Call::SetAccess, bytes);
        }
        set
    }

    fn access(&self, at: DevicePtr, device: DeviceIndex) -> Result<Access> {
        self.call(Call::GetAccess, device, |state| state.memory.access(at.0, index(device)))
    }
}

impl PhysicalSharing for OpenReg {
    fn export_physical(&self, handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle> {
        self.unsafe_call(Call::ExportPhysical, self.device_of_handle(handle), |state| {
            let physical = state.memory.handle(self.names.physical(handle)?)?;
            if handle_type != HandleType::PosixFd || physical.handle_type != HandleType::PosixFd {
                return Err(Refusal::unsupported(format!(
                    "the handle was created as {:?} and is to be exported as {handle_type:?}; both must be PosixFd",
                    physical.handle_type
                )));
            }
            let descriptor = match &physical.extent {
                Some(extent) => extent.file.duplicate()?,
                None => {
                    let token = SharedFile::create("openreg-token", TOKEN_BYTES as u64)?;
                    token.write(&self.token(physical.bytes, physical.identity), 0)?;
                    token.duplicate()?
                }
            };
            Ok(ShareableHandle::PosixFd(descriptor))
        })
    }

    fn import_physical(&self, device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle> {
        self.unsafe_call(Call::ImportPhysical, device, |mut state| {
            let ShareableHandle::PosixFd(descriptor) = shared else {
                return Err(Refusal::unsupported("there is no fabric; import a file descriptor"));
            };
            let file = SharedFile::from_file(File::from(descriptor.try_clone()?));
            let length = file.file().metadata()?.len();
            let (bytes, identity, extent) = match self.config.memory {
                MemoryMode::Reserved => {
                    let mut token = [0; TOKEN_BYTES];
                    let readable = length == TOKEN_BYTES as u64 && file.read(&mut token, 0).is_ok();
                    if !readable || &token[..16] != TOKEN {
                        return Err(Refusal::invalid("the descriptor is no exported reserved memory"));
                    }
                    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| token[at + byte]));
                    let (bytes, identity) = (word(16), word(24));
                    // Another machine's numbers mean nothing here.
                    let own = token == self.token(bytes, identity);
                    (bytes, own.then_some(identity), None)
                }
                MemoryMode::Mapped => {
                    let (known, inode) = (file.file().metadata()?, |file: &File| {
                        file.metadata().map(|found| (found.dev(), found.ino()))
                    });
                    let wanted = (known.dev(), known.ino());
                    let own = state.memory.physical.iter().find_map(|(_, physical)| {
                        let extent = physical.extent.as_ref()?;
                        (inode(extent.file.file()).ok()? == wanted).then_some(physical.identity)
                    });
                    (length, own, Some(Extent { file: Arc::new(file), offset: 0, bytes: length }))
                }
            };
            if bytes == 0 || !bytes.is_multiple_of(self.config.granularity) {
                return Err(Refusal::invalid(format!(
                    "{bytes} bytes are no multiple of this machine's granularity"
                )));
            }
            let again = identity.and_then(|identity| state.memory.adopt_again(identity));
            let raw = again.unwrap_or_else(|| {
                state.memory.adopt(index(device), bytes, extent, self.names.fresh_identity())
            });
            Ok(self.names.new_physical(raw))
        })
    }
}

impl OpenReg {
    /// Whether `from` can reach `to`'s memory at all.
    pub(crate) fn reaches(&self, from: DeviceIndex, to: DeviceIndex) -> bool {
        from == to || (self.has(Families::PEERS) && !self.config.no_peer.contains(&(from, to)))
    }
}
