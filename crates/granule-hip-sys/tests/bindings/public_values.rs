//! Numbers of HIP 7's overlay, and of what it takes over from 6, against the public 7.14 bindings of `cubecl-hip-sys`.

use cubecl_hip_sys as public;
use granule_hip_sys::abi7;

macro_rules! same_value {
    ($($ours:ident $theirs:ident),+) => {
        $(assert_eq!(i128::from(abi7::$ours), i128::from(public::$theirs), stringify!($ours));)+
    };
}

macro_rules! same_macro {
    ($($name:ident)+) => { same_value!($($name $name),+) };
}

#[test]
fn macros_have_the_values_of_7() {
    same_macro!(
        HIP_VERSION_MAJOR HIP_VERSION_MINOR HIP_VERSION HIP_IPC_HANDLE_SIZE hipStreamNonBlocking
        hipEventDefault hipEventBlockingSync hipEventDisableTiming hipEventInterprocess
        hipEventRecordDefault hipEventRecordExternal hipEventWaitDefault hipEventWaitExternal
        hipEventReleaseToDevice hipEventReleaseToSystem hipHostAllocDefault hipHostMallocDefault
        hipHostAllocPortable hipHostMallocPortable hipHostAllocMapped hipHostMallocMapped
        hipHostAllocWriteCombined hipHostMallocWriteCombined hipHostMallocCoherent hipMemAttachGlobal
        hipMemAttachSingle hipDeviceMallocFinegrained hipMallocSignalMemory hipDeviceMallocUncached
        hipDeviceMallocContiguous hipHostRegisterPortable hipHostRegisterIoMemory
        hipExtHostRegisterCoarseGrained hipStreamWaitValueGte hipStreamWaitValueEq hipStreamWaitValueAnd
        hipStreamWaitValueNor hipHostMallocUncached
    );
}

/// There the names of constants begin with their enumeration's.
#[test]
fn enumerations_have_the_values_of_7() {
    same_value!(
        hipMemoryTypeUnregistered hipMemoryType_hipMemoryTypeUnregistered,
        hipMemoryTypeHost hipMemoryType_hipMemoryTypeHost,
        hipMemoryTypeDevice hipMemoryType_hipMemoryTypeDevice,
        hipMemoryTypeManaged hipMemoryType_hipMemoryTypeManaged,
        hipMemoryTypeArray hipMemoryType_hipMemoryTypeArray,
        hipMemoryTypeUnified hipMemoryType_hipMemoryTypeUnified, hipSuccess hipError_t_hipSuccess,
        hipErrorInvalidValue hipError_t_hipErrorInvalidValue,
        hipErrorOutOfMemory hipError_t_hipErrorOutOfMemory,
        hipErrorMemoryAllocation hipError_t_hipErrorMemoryAllocation,
        hipErrorNotInitialized hipError_t_hipErrorNotInitialized,
        hipErrorInitializationError hipError_t_hipErrorInitializationError,
        hipErrorDeinitialized hipError_t_hipErrorDeinitialized,
        hipErrorProfilerDisabled hipError_t_hipErrorProfilerDisabled,
        hipErrorProfilerNotInitialized hipError_t_hipErrorProfilerNotInitialized,
        hipErrorProfilerAlreadyStarted hipError_t_hipErrorProfilerAlreadyStarted,
        hipErrorProfilerAlreadyStopped hipError_t_hipErrorProfilerAlreadyStopped,
        hipErrorInvalidConfiguration hipError_t_hipErrorInvalidConfiguration,
        hipErrorInvalidPitchValue hipError_t_hipErrorInvalidPitchValue,
        hipErrorInvalidSymbol hipError_t_hipErrorInvalidSymbol,
        hipErrorInvalidDevicePointer hipError_t_hipErrorInvalidDevicePointer,
        hipErrorInvalidMemcpyDirection hipError_t_hipErrorInvalidMemcpyDirection,
        hipErrorInsufficientDriver hipError_t_hipErrorInsufficientDriver,
        hipErrorMissingConfiguration hipError_t_hipErrorMissingConfiguration,
        hipErrorPriorLaunchFailure hipError_t_hipErrorPriorLaunchFailure,
        hipErrorInvalidDeviceFunction hipError_t_hipErrorInvalidDeviceFunction,
        hipErrorNoDevice hipError_t_hipErrorNoDevice,
        hipErrorInvalidDevice hipError_t_hipErrorInvalidDevice,
        hipErrorInvalidImage hipError_t_hipErrorInvalidImage,
        hipErrorInvalidContext hipError_t_hipErrorInvalidContext,
        hipErrorContextAlreadyCurrent hipError_t_hipErrorContextAlreadyCurrent,
        hipErrorMapFailed hipError_t_hipErrorMapFailed,
        hipErrorMapBufferObjectFailed hipError_t_hipErrorMapBufferObjectFailed,
        hipErrorUnmapFailed hipError_t_hipErrorUnmapFailed,
        hipErrorArrayIsMapped hipError_t_hipErrorArrayIsMapped,
        hipErrorAlreadyMapped hipError_t_hipErrorAlreadyMapped,
        hipErrorNoBinaryForGpu hipError_t_hipErrorNoBinaryForGpu,
        hipErrorAlreadyAcquired hipError_t_hipErrorAlreadyAcquired,
        hipErrorNotMapped hipError_t_hipErrorNotMapped,
        hipErrorNotMappedAsArray hipError_t_hipErrorNotMappedAsArray,
        hipErrorNotMappedAsPointer hipError_t_hipErrorNotMappedAsPointer,
        hipErrorECCNotCorrectable hipError_t_hipErrorECCNotCorrectable,
        hipErrorUnsupportedLimit hipError_t_hipErrorUnsupportedLimit,
        hipErrorContextAlreadyInUse hipError_t_hipErrorContextAlreadyInUse,
        hipErrorPeerAccessUnsupported hipError_t_hipErrorPeerAccessUnsupported,
        hipErrorInvalidKernelFile hipError_t_hipErrorInvalidKernelFile,
        hipErrorInvalidGraphicsContext hipError_t_hipErrorInvalidGraphicsContext,
        hipErrorInvalidSource hipError_t_hipErrorInvalidSource,
        hipErrorFileNotFound hipError_t_hipErrorFileNotFound,
        hipErrorSharedObjectSymbolNotFound hipError_t_hipErrorSharedObjectSymbolNotFound,
        hipErrorSharedObjectInitFailed hipError_t_hipErrorSharedObjectInitFailed,
        hipErrorOperatingSystem hipError_t_hipErrorOperatingSystem,
        hipErrorInvalidHandle hipError_t_hipErrorInvalidHandle,
        hipErrorInvalidResourceHandle hipError_t_hipErrorInvalidResourceHandle,
        hipErrorIllegalState hipError_t_hipErrorIllegalState,
        hipErrorNotFound hipError_t_hipErrorNotFound, hipErrorNotReady hipError_t_hipErrorNotReady,
        hipErrorIllegalAddress hipError_t_hipErrorIllegalAddress,
        hipErrorLaunchOutOfResources hipError_t_hipErrorLaunchOutOfResources,
        hipErrorLaunchTimeOut hipError_t_hipErrorLaunchTimeOut,
        hipErrorPeerAccessAlreadyEnabled hipError_t_hipErrorPeerAccessAlreadyEnabled,
        hipErrorPeerAccessNotEnabled hipError_t_hipErrorPeerAccessNotEnabled,
        hipErrorSetOnActiveProcess hipError_t_hipErrorSetOnActiveProcess,
        hipErrorContextIsDestroyed hipError_t_hipErrorContextIsDestroyed,
        hipErrorAssert hipError_t_hipErrorAssert,
        hipErrorHostMemoryAlreadyRegistered hipError_t_hipErrorHostMemoryAlreadyRegistered,
        hipErrorHostMemoryNotRegistered hipError_t_hipErrorHostMemoryNotRegistered,
        hipErrorLaunchFailure hipError_t_hipErrorLaunchFailure,
        hipErrorCooperativeLaunchTooLarge hipError_t_hipErrorCooperativeLaunchTooLarge,
        hipErrorNotSupported hipError_t_hipErrorNotSupported,
        hipErrorStreamCaptureUnsupported hipError_t_hipErrorStreamCaptureUnsupported,
        hipErrorStreamCaptureInvalidated hipError_t_hipErrorStreamCaptureInvalidated,
        hipErrorStreamCaptureMerge hipError_t_hipErrorStreamCaptureMerge,
        hipErrorStreamCaptureUnmatched hipError_t_hipErrorStreamCaptureUnmatched,
        hipErrorStreamCaptureUnjoined hipError_t_hipErrorStreamCaptureUnjoined,
        hipErrorStreamCaptureIsolation hipError_t_hipErrorStreamCaptureIsolation,
        hipErrorStreamCaptureImplicit hipError_t_hipErrorStreamCaptureImplicit,
        hipErrorCapturedEvent hipError_t_hipErrorCapturedEvent,
        hipErrorStreamCaptureWrongThread hipError_t_hipErrorStreamCaptureWrongThread,
        hipErrorGraphExecUpdateFailure hipError_t_hipErrorGraphExecUpdateFailure,
        hipErrorInvalidChannelDescriptor hipError_t_hipErrorInvalidChannelDescriptor,
        hipErrorInvalidTexture hipError_t_hipErrorInvalidTexture,
        hipErrorUnknown hipError_t_hipErrorUnknown,
        hipErrorRuntimeMemory hipError_t_hipErrorRuntimeMemory,
        hipErrorRuntimeOther hipError_t_hipErrorRuntimeOther, hipErrorTbd hipError_t_hipErrorTbd,
        hipErrorInvalidResourceType hipError_t_hipErrorInvalidResourceType,
        hipErrorInvalidResourceConfiguration hipError_t_hipErrorInvalidResourceConfiguration,
        hipErrorStreamDetached hipError_t_hipErrorStreamDetached,
        hipErrorInvalidClusterSize hipError_t_hipErrorInvalidClusterSize,
        hipDeviceAttributeCanMapHostMemory hipDeviceAttribute_t_hipDeviceAttributeCanMapHostMemory,
        hipDeviceAttributeConcurrentManagedAccess hipDeviceAttribute_t_hipDeviceAttributeConcurrentManagedAccess,
        hipDeviceAttributeIntegrated hipDeviceAttribute_t_hipDeviceAttributeIntegrated,
        hipDeviceAttributeComputeCapabilityMajor hipDeviceAttribute_t_hipDeviceAttributeComputeCapabilityMajor,
        hipDeviceAttributeManagedMemory hipDeviceAttribute_t_hipDeviceAttributeManagedMemory,
        hipDeviceAttributeComputeCapabilityMinor hipDeviceAttribute_t_hipDeviceAttributeComputeCapabilityMinor,
        hipDeviceAttributeMultiprocessorCount hipDeviceAttribute_t_hipDeviceAttributeMultiprocessorCount,
        hipDeviceAttributePciBusId hipDeviceAttribute_t_hipDeviceAttributePciBusId,
        hipDeviceAttributePciDeviceId hipDeviceAttribute_t_hipDeviceAttributePciDeviceId,
        hipDeviceAttributePciDomainID hipDeviceAttribute_t_hipDeviceAttributePciDomainID,
        hipDeviceAttributeTotalGlobalMem hipDeviceAttribute_t_hipDeviceAttributeTotalGlobalMem,
        hipDeviceAttributeUnifiedAddressing hipDeviceAttribute_t_hipDeviceAttributeUnifiedAddressing,
        hipDeviceAttributeWarpSize hipDeviceAttribute_t_hipDeviceAttributeWarpSize,
        hipDeviceAttributeMemoryPoolsSupported hipDeviceAttribute_t_hipDeviceAttributeMemoryPoolsSupported,
        hipDeviceAttributeVirtualMemoryManagementSupported hipDeviceAttribute_t_hipDeviceAttributeVirtualMemoryManagementSupported,
        hipDeviceAttributeHostRegisterSupported hipDeviceAttribute_t_hipDeviceAttributeHostRegisterSupported,
        hipDeviceAttributeCanUseStreamWaitValue hipDeviceAttribute_t_hipDeviceAttributeCanUseStreamWaitValue,
        hipDeviceAttributeHostNumaId hipDeviceAttribute_t_hipDeviceAttributeHostNumaId,
        hipDeviceAttributeDmaBufSupported hipDeviceAttribute_t_hipDeviceAttributeDmaBufSupported,
        hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported hipDeviceAttribute_t_hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported,
        hipDeviceAttributeHandleTypeFabricSupported hipDeviceAttribute_t_hipDeviceAttributeHandleTypeFabricSupported,
        HIP_GET_PROC_ADDRESS_SUCCESS hipDriverProcAddressQueryResult_HIP_GET_PROC_ADDRESS_SUCCESS,
        HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND hipDriverProcAddressQueryResult_HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
        HIP_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT hipDriverProcAddressQueryResult_HIP_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        hipMemcpyHostToHost hipMemcpyKind_hipMemcpyHostToHost,
        hipMemcpyHostToDevice hipMemcpyKind_hipMemcpyHostToDevice,
        hipMemcpyDeviceToHost hipMemcpyKind_hipMemcpyDeviceToHost,
        hipMemcpyDeviceToDevice hipMemcpyKind_hipMemcpyDeviceToDevice,
        hipMemcpyDefault hipMemcpyKind_hipMemcpyDefault,
        hipMemcpyDeviceToDeviceNoCU hipMemcpyKind_hipMemcpyDeviceToDeviceNoCU,
        HIP_POINTER_ATTRIBUTE_CONTEXT hipPointer_attribute_HIP_POINTER_ATTRIBUTE_CONTEXT,
        HIP_POINTER_ATTRIBUTE_MEMORY_TYPE hipPointer_attribute_HIP_POINTER_ATTRIBUTE_MEMORY_TYPE,
        HIP_POINTER_ATTRIBUTE_DEVICE_POINTER hipPointer_attribute_HIP_POINTER_ATTRIBUTE_DEVICE_POINTER,
        HIP_POINTER_ATTRIBUTE_HOST_POINTER hipPointer_attribute_HIP_POINTER_ATTRIBUTE_HOST_POINTER,
        HIP_POINTER_ATTRIBUTE_P2P_TOKENS hipPointer_attribute_HIP_POINTER_ATTRIBUTE_P2P_TOKENS,
        HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS hipPointer_attribute_HIP_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        HIP_POINTER_ATTRIBUTE_BUFFER_ID hipPointer_attribute_HIP_POINTER_ATTRIBUTE_BUFFER_ID,
        HIP_POINTER_ATTRIBUTE_IS_MANAGED hipPointer_attribute_HIP_POINTER_ATTRIBUTE_IS_MANAGED,
        HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL hipPointer_attribute_HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE hipPointer_attribute_HIP_POINTER_ATTRIBUTE_IS_LEGACY_HIP_IPC_CAPABLE,
        HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR hipPointer_attribute_HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        HIP_POINTER_ATTRIBUTE_RANGE_SIZE hipPointer_attribute_HIP_POINTER_ATTRIBUTE_RANGE_SIZE,
        HIP_POINTER_ATTRIBUTE_MAPPED hipPointer_attribute_HIP_POINTER_ATTRIBUTE_MAPPED,
        HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES hipPointer_attribute_HIP_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        HIP_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE hipPointer_attribute_HIP_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
        HIP_POINTER_ATTRIBUTE_ACCESS_FLAGS hipPointer_attribute_HIP_POINTER_ATTRIBUTE_ACCESS_FLAGS,
        HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE hipPointer_attribute_HIP_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
        hipMemLocationTypeInvalid hipMemLocationType_hipMemLocationTypeInvalid,
        hipMemLocationTypeDevice hipMemLocationType_hipMemLocationTypeDevice,
        hipMemLocationTypeNone hipMemLocationType_hipMemLocationTypeNone,
        hipMemLocationTypeHost hipMemLocationType_hipMemLocationTypeHost,
        hipMemLocationTypeHostNuma hipMemLocationType_hipMemLocationTypeHostNuma,
        hipMemLocationTypeHostNumaCurrent hipMemLocationType_hipMemLocationTypeHostNumaCurrent,
        hipMemAccessFlagsProtNone hipMemAccessFlags_hipMemAccessFlagsProtNone,
        hipMemAccessFlagsProtRead hipMemAccessFlags_hipMemAccessFlagsProtRead,
        hipMemAccessFlagsProtReadWrite hipMemAccessFlags_hipMemAccessFlagsProtReadWrite,
        hipMemAllocationTypeInvalid hipMemAllocationType_hipMemAllocationTypeInvalid,
        hipMemAllocationTypePinned hipMemAllocationType_hipMemAllocationTypePinned,
        hipMemAllocationTypeMax hipMemAllocationType_hipMemAllocationTypeMax,
        hipMemAllocationTypeManaged hipMemAllocationType_hipMemAllocationTypeManaged,
        hipMemAllocationTypeUncached hipMemAllocationType_hipMemAllocationTypeUncached,
        hipMemHandleTypeNone hipMemAllocationHandleType_hipMemHandleTypeNone,
        hipMemHandleTypePosixFileDescriptor hipMemAllocationHandleType_hipMemHandleTypePosixFileDescriptor,
        hipMemHandleTypeWin32 hipMemAllocationHandleType_hipMemHandleTypeWin32,
        hipMemHandleTypeWin32Kmt hipMemAllocationHandleType_hipMemHandleTypeWin32Kmt,
        hipMemHandleTypeFabric hipMemAllocationHandleType_hipMemHandleTypeFabric,
        hipStreamCaptureModeGlobal hipStreamCaptureMode_hipStreamCaptureModeGlobal,
        hipStreamCaptureModeThreadLocal hipStreamCaptureMode_hipStreamCaptureModeThreadLocal,
        hipStreamCaptureModeRelaxed hipStreamCaptureMode_hipStreamCaptureModeRelaxed,
        hipStreamCaptureStatusNone hipStreamCaptureStatus_hipStreamCaptureStatusNone,
        hipStreamCaptureStatusActive hipStreamCaptureStatus_hipStreamCaptureStatusActive,
        hipStreamCaptureStatusInvalidated hipStreamCaptureStatus_hipStreamCaptureStatusInvalidated,
        hipUserObjectNoDestructorSync hipUserObjectFlags_hipUserObjectNoDestructorSync,
        hipGraphUserObjectMove hipUserObjectRetainFlags_hipGraphUserObjectMove,
        hipGraphInstantiateFlagAutoFreeOnLaunch hipGraphInstantiateFlags_hipGraphInstantiateFlagAutoFreeOnLaunch,
        hipGraphInstantiateFlagUpload hipGraphInstantiateFlags_hipGraphInstantiateFlagUpload,
        hipGraphInstantiateFlagDeviceLaunch hipGraphInstantiateFlags_hipGraphInstantiateFlagDeviceLaunch,
        hipGraphInstantiateFlagUseNodePriority hipGraphInstantiateFlags_hipGraphInstantiateFlagUseNodePriority,
        hipMemAllocationGranularityMinimum hipMemAllocationGranularity_flags_hipMemAllocationGranularityMinimum,
        hipMemAllocationGranularityRecommended hipMemAllocationGranularity_flags_hipMemAllocationGranularityRecommended,
        hipMemRangeHandleTypeDmaBufFd hipMemRangeHandleType_hipMemRangeHandleTypeDmaBufFd,
        hipMemRangeFlagDmaBufMappingTypePcie hipMemRangeFlags_hipMemRangeFlagDmaBufMappingTypePcie
    );
}

#[test]
fn what_graphs_hold_has_the_numbers_of_7() {
    same_value!(
        hipGraphMemAttrUsedMemCurrent hipGraphMemAttributeType_hipGraphMemAttrUsedMemCurrent,
        hipGraphMemAttrUsedMemHigh hipGraphMemAttributeType_hipGraphMemAttrUsedMemHigh,
        hipGraphMemAttrReservedMemCurrent hipGraphMemAttributeType_hipGraphMemAttrReservedMemCurrent,
        hipGraphMemAttrReservedMemHigh hipGraphMemAttributeType_hipGraphMemAttrReservedMemHigh
    );
}
