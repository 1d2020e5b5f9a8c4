//! The backend of a mutant: a right one before which some methods have a rule of their own.

use super::{Call, Mutant, Rule};
use backend_api::types::*;
use backend_api::*;
use granule_conformance::interpose::Hook;
use std::any::Any;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

/// What stands between a mutant's callers and the right backend.
#[derive(Debug)]
pub(super) struct Wrong {
    rules: &'static Rules,
    inner: Arc<dyn Backend>,
    /// How often a rule counted.
    pub(super) turns: AtomicU32,
    /// What rules remember, one value of a type.
    pub(super) kept: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl Wrong {
    pub(super) fn new(rules: &'static Rules, inner: Arc<dyn Backend>) -> Self {
        Self { rules, inner, turns: AtomicU32::new(0), kept: Mutex::default() }
    }

    /// The answer to a call: by its rule, or else by the right backend.
    fn answer<'a, A>(
        &'a self,
        rule: Option<Rule<A>>,
        arguments: Arguments<'a>,
        next: &'a dyn Fn(&mut Arguments<'a>) -> A,
    ) -> A {
        let mut call = Call { inner: &*self.inner, arguments, next, wrong: self };
        match rule {
            Some(rule) => rule(&mut call),
            None => call.go(),
        }
    }
}

/// One side of a copy between devices.
type Side = (DeviceIndex, DevicePtr);

const DEVICE: DeviceIndex = DeviceIndex(0);
const BACKEND: BackendId = BackendId(0);
const EVENT: Event = Event { raw: 0, device: DEVICE, backend: BACKEND };
static SHARED: ShareableHandle = ShareableHandle::Fabric([0; 64]);

/// The contract as mutants see it. For each method a rule that a mutant may have for it, the function that gives a
/// mutant one, and the call itself.
macro_rules! contract {
    (
        arguments { $($(#[$doc:meta])? $argument:ident: $type:ty = $none:expr,)+ }
        families { $($trait_of_family:ident $family:ident $hook:ident $without:ident;)+ }
        safe { $($trait:ident.$safe:ident($($of_safe:ident: $type_of_safe:ty),*) -> $safely:ty;)+ }
        unsafe { $($unsafe_trait:ident.$unsafe:ident($($of_unsafe:ident: $type_of_unsafe:ty),*) -> $unsafely:ty;)+ }
    ) => {
        /// The arguments of all methods, under the contract's names but for those that two types have.
        pub(crate) struct Arguments<'a> {
            $($(#[$doc])? pub(crate) $argument: $type,)+
        }

        impl Arguments<'_> {
            /// Those of a method that has none.
            const NONE: Self = Self { $($argument: $none,)+ };
        }

        /// What a mutant does instead of the right backend; of families, why they are said to be absent.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Rules {
            enter: Option<Rule<Result<()>>>,
            launch_host_function: Option<Rule<Result<()>>>,
            $($family: Option<&'static str>,)+
            $($safe: Option<Rule<$safely>>,)+
            $($unsafe: Option<Rule<$unsafely>>,)+
        }

        impl Rules {
            pub(super) const NONE: Self = Self {
                enter: None,
                launch_host_function: None,
                $($family: None,)+
                $($safe: None,)+
                $($unsafe: None,)+
            };
        }

        impl Mutant {
            /// A rule for what comes before every method.
            pub(crate) const fn enter(mut self, rule: Rule<Result<()>>) -> Self {
                self.rules.enter = Some(rule);
                self
            }

            pub(crate) const fn launch_host_function(mut self, rule: Rule<Result<()>>) -> Self {
                self.rules.launch_host_function = Some(rule);
                self
            }

            $(pub(crate) const fn $without(mut self, reason: &'static str) -> Self {
                self.rules.$family = Some(reason);
                self
            })+

            $(pub(crate) const fn $safe(mut self, rule: Rule<$safely>) -> Self {
                self.rules.$safe = Some(rule);
                self
            })+

            $(pub(crate) const fn $unsafe(mut self, rule: Rule<$unsafely>) -> Self {
                self.rules.$unsafe = Some(rule);
                self
            })+
        }

        #[allow(unused_variables, reason = "some methods have no arguments")]
        impl Hook for Wrong {
            fn enter(&self, method: &'static str) -> Result<()> {
                self.answer(self.rules.enter, Arguments { method, ..Arguments::NONE }, &|_| Ok(()))
            }

            fn launch_host_function(
                &self,
                inner: &dyn Backend,
                stream: Stream,
                function: HostFunction,
            ) -> Result<()> {
                let arguments = Arguments { stream, function: Some(function), ..Arguments::NONE };
                self.answer(self.rules.launch_host_function, arguments, &|it| {
                    let function = it.function.take().expect("a function is launched once");
                    inner.launch_host_function(it.stream, function)
                })
            }

            $(fn $hook<'a>(
                &self,
                inner: &'a dyn Backend,
            ) -> std::result::Result<&'a dyn $trait_of_family, Unsupported> {
                match self.rules.$family {
                    Some(reason) => Err(Unsupported { family: stringify!($family), reason: reason.into() }),
                    None => inner.$family(),
                }
            })+

            // Also where virtual memory is said to be absent.
            fn physical_sharing_family<'a>(
                &self,
                inner: &'a dyn Backend,
            ) -> std::result::Result<&'a dyn PhysicalSharing, Unsupported> {
                inner.physical_sharing()
            }

            $(fn $safe(&self, inner: &dyn $trait, $($of_safe: $type_of_safe),*) -> $safely {
                let arguments = Arguments { $($of_safe,)* ..Arguments::NONE };
                self.answer(self.rules.$safe, arguments, &|it| inner.$safe($(it.$of_safe),*))
            })+

            $(unsafe fn $unsafe(&self, inner: &dyn $unsafe_trait, $($of_unsafe: $type_of_unsafe),*) -> $unsafely {
                let arguments = Arguments { $($of_unsafe,)* ..Arguments::NONE };
                self.answer(self.rules.$unsafe, arguments, &|it| {
                    // SAFETY: rules 1 to 3 are the caller's promise. What a rule makes of the arguments is a part of
                    // it, or such that the simulator refuses it.
                    unsafe { inner.$unsafe($(it.$of_unsafe),*) }
                })
            })+
        }
    };
}

contract! {
    arguments {
        /// Of [`Hook::enter`]: the trait and name of the method called.
        method: &'static str = "",
        access: Access = Access::None,
        alignment: u64 = 0,
        at: DevicePtr = DevicePtr::NULL,
        attribute: Attribute = Attribute::WarpSize,
        base: DevicePtr = DevicePtr::NULL,
        bytes: u64 = 0,
        code: i32 = 0,
        device: DeviceIndex = DEVICE,
        devices: &'a [DeviceIndex] = &[],
        dst: DevicePtr = DevicePtr::NULL,
        end: Event = EVENT,
        event: Event = EVENT,
        /// Of memory that another process exported.
        exported: &'a IpcMemoryHandle = &IpcMemoryHandle([0; 64]),
        flags: EventFlags = EventFlags::empty(),
        from: DeviceIndex = DEVICE,
        /// Taken by the one who runs it.
        function: Option<HostFunction> = None,
        graph: Graph = Graph { raw: 0, backend: BACKEND },
        handle: PhysicalHandle = PhysicalHandle { raw: 0, backend: BACKEND },
        handle_type: HandleType = HandleType::None,
        hint: DevicePtr = DevicePtr::NULL,
        host_flags: HostFlags = HostFlags::empty(),
        kind: CopyKind = CopyKind::HostToHost,
        mode: CaptureMode = CaptureMode::Global,
        node: CaptureNode = CaptureNode(0),
        peer_dst: Side = (DEVICE, DevicePtr::NULL),
        peer_src: Side = (DEVICE, DevicePtr::NULL),
        priority: i32 = 0,
        ptr: DevicePtr = DevicePtr::NULL,
        shared: &'a ShareableHandle = &SHARED,
        src: DevicePtr = DevicePtr::NULL,
        start: Event = EVENT,
        stream: Stream = Stream { raw: 0, device: DEVICE, backend: BACKEND },
        to: DeviceIndex = DEVICE,
        value: u8 = 0,
        which: Granularity = Granularity::Minimum,
    }
    families {
        Peers peers peers_family without_peers;
        PinnedHost pinned_host pinned_host_family without_pinned_host;
        VirtualMemory virtual_memory virtual_memory_family without_virtual_memory;
    }
    safe {
        Backend.id() -> BackendId;
        Backend.kind() -> DeviceKind;
        Backend.name() -> &'static str;
        Backend.error_name(code: i32) -> String;
        Backend.clear_error() -> ();
        Backend.device_count() -> Result<u16>;
        Backend.current_device() -> Result<DeviceIndex>;
        Backend.set_device(device: DeviceIndex) -> Result<()>;
        Backend.has_primary_context(device: DeviceIndex) -> Result<bool>;
        Backend.attribute(device: DeviceIndex, attribute: Attribute) -> Result<i64>;
        Backend.properties(device: DeviceIndex) -> Result<DeviceProperties>;
        Backend.synchronize_device(device: DeviceIndex) -> Result<()>;
        Backend.malloc(device: DeviceIndex, bytes: u64) -> Result<DevicePtr>;
        Backend.memory_info(device: DeviceIndex) -> Result<MemoryInfo>;
        Backend.pointer_info(ptr: DevicePtr) -> Result<PointerInfo>;
        Backend.address_range(ptr: DevicePtr) -> Result<AddressRange>;
        Backend.default_stream(device: DeviceIndex) -> Stream;
        Backend.create_stream(device: DeviceIndex, priority: i32) -> Result<Stream>;
        Backend.priority_range(device: DeviceIndex) -> Result<PriorityRange>;
        Backend.query_stream(stream: Stream) -> Result<Readiness>;
        Backend.synchronize_stream(stream: Stream) -> Result<()>;
        Backend.wait_event(stream: Stream, event: Event) -> Result<()>;
        Backend.create_event(device: DeviceIndex, flags: EventFlags) -> Result<Event>;
        Backend.record_event(event: Event, stream: Stream) -> Result<()>;
        Backend.query_event(event: Event) -> Result<Readiness>;
        Backend.synchronize_event(event: Event) -> Result<()>;
        Backend.elapsed_ms(start: Event, end: Event) -> Result<f32>;
        PinnedHost.host_malloc(bytes: u64, host_flags: HostFlags) -> Result<DevicePtr>;
        VirtualMemory.granularity(device: DeviceIndex, which: Granularity) -> Result<u64>;
        VirtualMemory.reserve_address(device: DeviceIndex, bytes: u64, alignment: u64, hint: DevicePtr)
            -> Result<DevicePtr>;
        VirtualMemory.create_physical(device: DeviceIndex, bytes: u64, handle_type: HandleType)
            -> Result<PhysicalHandle>;
        VirtualMemory.access(at: DevicePtr, device: DeviceIndex) -> Result<Access>;
        PhysicalSharing.export_physical(handle: PhysicalHandle, handle_type: HandleType) -> Result<ShareableHandle>;
        PhysicalSharing.import_physical(device: DeviceIndex, shared: &ShareableHandle) -> Result<PhysicalHandle>;
        Ipc.export_memory(base: DevicePtr) -> Result<IpcMemoryHandle>;
        Ipc.open_memory(device: DeviceIndex, exported: &IpcMemoryHandle) -> Result<DevicePtr>;
        Peers.can_access(from: DeviceIndex, to: DeviceIndex) -> Result<bool>;
        Peers.enable_access(from: DeviceIndex, to: DeviceIndex) -> Result<()>;
        Capture.status(stream: Stream) -> Result<CaptureStatus>;
        Capture.begin(stream: Stream, mode: CaptureMode) -> Result<()>;
        Capture.end(stream: Stream) -> Result<Graph>;
        Capture.exchange_mode(mode: CaptureMode) -> Result<CaptureMode>;
        Capture.frontier(stream: Stream) -> Result<Vec<CaptureNode>>;
        Capture.dependencies(stream: Stream, node: CaptureNode) -> Result<Vec<CaptureNode>>;
    }
    unsafe {
        Backend.free(device: DeviceIndex, ptr: DevicePtr) -> Result<()>;
        Backend.copy(dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind) -> Result<()>;
        Backend.copy_async(dst: DevicePtr, src: DevicePtr, bytes: u64, kind: CopyKind, stream: Stream) -> Result<()>;
        Backend.memset_async(dst: DevicePtr, value: u8, bytes: u64, stream: Stream) -> Result<()>;
        Backend.destroy_stream(stream: Stream) -> Result<()>;
        Backend.destroy_event(event: Event) -> Result<()>;
        PinnedHost.host_free(ptr: DevicePtr) -> Result<()>;
        VirtualMemory.release_address(base: DevicePtr, bytes: u64) -> Result<()>;
        VirtualMemory.release_physical(handle: PhysicalHandle) -> Result<()>;
        VirtualMemory.map(at: DevicePtr, bytes: u64, handle: PhysicalHandle) -> Result<()>;
        VirtualMemory.unmap(at: DevicePtr, bytes: u64) -> Result<()>;
        VirtualMemory.set_access(at: DevicePtr, bytes: u64, devices: &[DeviceIndex], access: Access) -> Result<()>;
        Ipc.close_memory(ptr: DevicePtr) -> Result<()>;
        Peers.copy_peer_async(peer_dst: Side, peer_src: Side, bytes: u64, stream: Stream) -> Result<()>;
        Capture.launch(graph: Graph, stream: Stream) -> Result<()>;
        Capture.destroy_graph(graph: Graph) -> Result<()>;
        HostRegistration.register(ptr: DevicePtr, bytes: u64, host_flags: HostFlags) -> Result<()>;
        HostRegistration.unregister(ptr: DevicePtr) -> Result<()>;
    }
}
