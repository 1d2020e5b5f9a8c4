//! The calls of the contract by name, and how often each was made.

use std::fmt;

macro_rules! calls {
    ($($variant:ident => $name:literal,)*) => {
        /// One call of the device contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Call {
            $(#[doc = concat!("`", $name, "`.")] $variant,)*
        }

        impl Call {
            /// Every call, in the order of the contract.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name that errors and reports carry.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

calls! {
    DeviceCount => "orGetDeviceCount",
    CurrentDevice => "orGetDevice",
    SetDevice => "orSetDevice",
    HasPrimaryContext => "orDevicePrimaryCtxGetState",
    Attribute => "orDeviceGetAttribute",
    Properties => "orDeviceGetProperties",
    SynchronizeDevice => "orDeviceSynchronize",
    Malloc => "orMalloc",
    Free => "orFree",
    MemoryInfo => "orMemGetInfo",
    PointerInfo => "orPointerGetAttributes",
    AddressRange => "orMemGetAddressRange",
    Copy => "orMemcpy",
    CopyAsync => "orMemcpyAsync",
    MemsetAsync => "orMemsetAsync",
    CreateStream => "orStreamCreateWithPriority",
    DestroyStream => "orStreamDestroy",
    PriorityRange => "orDeviceGetStreamPriorityRange",
    QueryStream => "orStreamQuery",
    SynchronizeStream => "orStreamSynchronize",
    WaitEvent => "orStreamWaitEvent",
    LaunchHostFunction => "orLaunchHostFunc",
    CreateEvent => "orEventCreateWithFlags",
    DestroyEvent => "orEventDestroy",
    RecordEvent => "orEventRecord",
    QueryEvent => "orEventQuery",
    SynchronizeEvent => "orEventSynchronize",
    ElapsedMs => "orEventElapsedTime",
    HostMalloc => "orMallocHost",
    HostFree => "orFreeHost",
    Granularity => "orMemGetAllocationGranularity",
    ReserveAddress => "orMemAddressReserve",
    ReleaseAddress => "orMemAddressFree",
    CreatePhysical => "orMemCreate",
    ReleasePhysical => "orMemRelease",
    Map => "orMemMap",
    Unmap => "orMemUnmap",
    SetAccess => "orMemSetAccess",
    GetAccess => "orMemGetAccess",
    ExportPhysical => "orMemExportToShareableHandle",
    ImportPhysical => "orMemImportFromShareableHandle",
    RetainPhysical => "orMemRetainAllocationHandle",
    PhysicalProperties => "orMemGetAllocationPropertiesFromHandle",
    ExportMemory => "orGetIpcMemHandle",
    OpenMemory => "orOpenIpcMemHandle",
    CloseMemory => "orCloseIpcMemHandle",
    ExportEvent => "orGetIpcEventHandle",
    OpenEvent => "orOpenIpcEventHandle",
    CanAccessPeer => "orDeviceCanAccessPeer",
    EnablePeerAccess => "orDeviceEnablePeerAccess",
    CopyPeerAsync => "orMemcpyPeerAsync",
    CaptureStatus => "orStreamGetCaptureInfo",
    BeginCapture => "orStreamBeginCapture",
    EndCapture => "orStreamEndCapture",
    LaunchGraph => "orGraphLaunch",
    DestroyGraph => "orGraphDestroy",
    ExchangeCaptureMode => "orThreadExchangeStreamCaptureMode",
    CaptureFrontier => "orStreamGetCaptureDependencies",
    NodeDependencies => "orGraphNodeGetDependencies",
    RetainUserObject => "orGraphRetainUserObject",
    MallocAsync => "orMallocAsync",
    FreeAsync => "orFreeAsync",
    TrimPool => "orMemPoolTrimTo",
    GetPoolAttribute => "orMemPoolGetAttribute",
    SetPoolAttribute => "orMemPoolSetAttribute",
    RegisterHost => "orHostRegister",
    UnregisterHost => "orHostUnregister",
    MallocManaged => "orMallocManaged",
    Unprotect => "orMemoryUnprotect",
    Protect => "orMemoryProtect",
    HostAccessOf => "orMemoryGetProtection",
    UseMemory => "orLaunchKernel",
}

impl Call {
    /// Whether it reserves, creates, maps or shares memory, or undoes that.
    pub(crate) const fn is_about_mappings(self) -> bool {
        matches!(
            self,
            Self::ReserveAddress
                | Self::ReleaseAddress
                | Self::CreatePhysical
                | Self::ReleasePhysical
                | Self::Map
                | Self::Unmap
                | Self::SetAccess
                | Self::ExportPhysical
                | Self::ImportPhysical
        )
    }

    /// Whether it is about one device and fails when that is lost. The others are about the thread, the
    /// host, or whatever an address may be.
    pub(crate) const fn is_about_a_device(self) -> bool {
        !matches!(
            self,
            Self::DeviceCount
                | Self::CurrentDevice
                | Self::PointerInfo
                | Self::HostMalloc
                | Self::HostFree
                | Self::RegisterHost
                | Self::UnregisterHost
                | Self::ExchangeCaptureMode
                | Self::DestroyGraph
        )
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each call was made, failed calls included.
#[derive(Clone, PartialEq, Eq)]
pub struct CallCounts(pub(crate) [u64; Call::COUNT]);

impl CallCounts {
    /// How often `call` was made.
    #[must_use]
    pub const fn get(&self, call: Call) -> u64 {
        self.0[call as usize]
    }

    /// All calls together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The calls that were made at all, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Call, u64)> + '_ {
        Call::ALL.iter().map(|&call| (call, self.get(call))).filter(|&(_, count)| count > 0)
    }

    /// What was made since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].saturating_sub(earlier.0[index])))
    }
}

impl fmt::Debug for CallCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
