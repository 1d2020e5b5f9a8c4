//! Promise 7: every method of the contract is forwarded, and no handle of the wrong side passes.
//!
//! What the methods are is read from the contract's source. A method that is new there makes these tests fail
//! until [`call_everything`] calls it and the generated code forwards it.

use backend_api::types::*;
use backend_api::*;
use backend_openreg::{MemoryMode, OpenReg, OpenRegConfig};
use granule_conformance::interpose::{Hook, Interposed};
use granule_masquerade::{Masquerade, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

type Offer<T> = std::result::Result<T, Unsupported>;

/// Every method of the contract as `Trait::method`, and whether it takes a handle.
fn contract() -> BTreeMap<String, bool> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backend-api/src");
    let mut methods = BTreeMap::new();
    for source in ["lib.rs", "families.rs", "virtual_memory.rs", "capture.rs"] {
        let file = syn::parse_file(&std::fs::read_to_string(folder.join(source)).unwrap()).unwrap();
        for item in file.items {
            let syn::Item::Trait(item) = item else { continue };
            for member in item.items {
                let syn::TraitItem::Fn(method) = member else { continue };
                let handles = ["Stream", "Event", "PhysicalHandle", "Graph"];
                let takes_handle = method.sig.inputs.iter().any(|input| match input {
                    syn::FnArg::Typed(argument) => match &*argument.ty {
                        syn::Type::Path(path) => handles.iter().any(|handle| path.path.is_ident(handle)),
                        _ => false,
                    },
                    syn::FnArg::Receiver(_) => false,
                });
                methods.insert(format!("{}::{}", item.ident, method.sig.ident), takes_handle);
            }
        }
    }
    methods
}

/// Writes down what reaches the inner backend, and refuses it in HIP's terms.
#[derive(Debug, Default)]
struct Recorder {
    reached: Mutex<BTreeSet<String>>,
}

impl Recorder {
    fn note(&self, method: &str) {
        self.reached.lock().unwrap().insert(method.to_owned());
    }
}

/// Notes each accessor and passes it on.
macro_rules! accessors {
    ($($hook:ident $method:ident $family:ident,)*) => {
        $(fn $hook<'a>(&self, inner: &'a dyn Backend) -> Offer<&'a dyn $family> {
            self.note(concat!("Backend::", stringify!($method)));
            inner.$method()
        })*
    };
}

impl Hook for Recorder {
    fn enter(&self, method: &'static str) -> Result<()> {
        self.note(method);
        let detail = "hipErrorInvalidChannelDescriptor";
        Err(BackendError::new(ErrorKind::Other, 911, "hipOfTomorrow", DeviceIndex(1), detail))
    }

    fn kind(&self, _: &dyn Backend) -> DeviceKind {
        DeviceKind::Hip
    }

    fn error_name(&self, inner: &dyn Backend, code: i32) -> String {
        self.note("Backend::error_name");
        inner.error_name(code)
    }

    fn clear_error(&self, _: &dyn Backend) {
        self.note("Backend::clear_error");
    }

    fn dropped(&self, _: &dyn Backend, _: DeviceIndex) -> Vec<Dropped> {
        self.note("Backend::dropped");
        vec![Dropped { property: "virtual memory", reason: "hipMemCreate: no".into(), consequence: "none" }]
    }

    fn default_stream(&self, inner: &dyn Backend, device: DeviceIndex) -> Stream {
        self.note("Backend::default_stream");
        inner.default_stream(device)
    }

    accessors! {
        pinned_host_family pinned_host PinnedHost,
        virtual_memory_family virtual_memory VirtualMemory,
        physical_sharing_family physical_sharing PhysicalSharing,
        ipc_family ipc Ipc,
        peers_family peers Peers,
        capture_family capture Capture,
        host_registration_family host_registration HostRegistration,
    }
}

fn recorded(policy: Policy) -> (Arc<Interposed<Recorder>>, Arc<Masquerade>) {
    let machine = OpenReg::new(OpenRegConfig::default().memory(MemoryMode::Mapped)).unwrap();
    let inner = Arc::new(Interposed::new(machine, Recorder::default()));
    let masquerade = Masquerade::new(inner.clone(), policy).unwrap();
    (inner, masquerade)
}

/// Calls every method with handles that carry the id `from`; `refused` gets the error of each that can fail.
///
/// The inner backend refuses every call before it does anything, so no address below is ever used.
fn call_everything(m: &Masquerade, from: BackendId, mut refused: impl FnMut(BackendError)) {
    macro_rules! call {
        ($($call:expr;)*) => { $(refused($call.map(|_| ()).unwrap_err());)* };
    }
    macro_rules! call_unsafe {
        ($($call:expr;)*) => { $(refused({
            // SAFETY: rules 1 to 3: the recorder refuses the call before anything is used or freed.
            unsafe { $call }
        }.map(|_| ()).unwrap_err());)* };
    }
    let d = DeviceIndex(1);
    let p = DevicePtr(4096);
    let stream = Stream { raw: 7, device: d, backend: from };
    let event = Event { raw: 8, device: d, backend: from };
    let physical = PhysicalHandle { raw: 9, backend: from };
    let graph = Graph { raw: 10, backend: from };

    assert_eq!([m.error_name(i32::MIN), m.dropped(d)[0].reason.clone()], ["unknown", "cuMemCreate: no"]);
    m.clear_error();
    assert_eq!(m.default_stream(d), Stream { raw: 0, device: d, backend: m.id() });
    call! {
        m.device_count();
        m.current_device();
        m.set_device(d);
        m.has_primary_context(d);
        m.attribute(d, Attribute::WarpSize);
        m.properties(d);
        m.synchronize_device(d);
        m.malloc(d, 512);
        m.memory_info(d); m.graph_memory(d);
        m.pointer_info(p);
        m.address_range(p);
        m.create_stream(d, 0);
        m.priority_range(d);
        m.query_stream(stream);
        m.synchronize_stream(stream);
        m.wait_event(stream, event);
        m.launch_host_function(stream, Box::new(|| {}));
        m.create_event(d, EventFlags::empty());
        m.record_event(event, stream);
        m.query_event(event);
        m.synchronize_event(event);
        m.elapsed_ms(event, event);
    }
    call_unsafe! {
        m.free(d, p);
        m.copy(p, p, 1, CopyKind::HostToHost);
        m.copy_async(p, p, 1, CopyKind::HostToHost, stream);
        m.memset_async(p, 0, 1, stream);
        m.destroy_stream(stream);
        m.destroy_event(event);
    }

    let pinned = m.pinned_host().unwrap();
    call! { pinned.host_malloc(512, HostFlags::empty()); }
    call_unsafe! { pinned.host_free(p); }

    let (vmm, sharing) = (m.virtual_memory().unwrap(), m.physical_sharing().unwrap());
    call! {
        vmm.granularity(d, Granularity::Minimum);
        vmm.reserve_address(d, 1, 0, p);
        vmm.create_physical(d, 1, HandleType::None);
        vmm.access(p, d);
        sharing.export_physical(physical, HandleType::PosixFd);
        sharing.import_physical(d, &ShareableHandle::Fabric([0; 64]));
    }
    call_unsafe! {
        vmm.release_address(p, 1);
        vmm.release_physical(physical);
        vmm.map(p, 1, physical);
        vmm.unmap(p, 1);
        vmm.set_access(p, 1, &[d], Access::Read);
    }

    let (ipc, peers) = (m.ipc().unwrap(), m.peers().unwrap());
    call! {
        ipc.export_memory(p);
        ipc.open_memory(d, &IpcMemoryHandle([0; 64]));
        peers.can_access(d, d);
        peers.enable_access(d, d);
    }
    call_unsafe! {
        ipc.close_memory(p);
        peers.copy_peer_async((d, p), (d, p), 1, stream);
    }

    let capture = m.capture().unwrap();
    call! {
        capture.status(stream);
        capture.begin(stream, CaptureMode::Relaxed);
        capture.end(stream);
        capture.exchange_mode(CaptureMode::Relaxed);
        capture.frontier(stream);
        capture.dependencies(stream, CaptureNode(0));
    }
    call_unsafe! {
        capture.launch(graph, stream);
        capture.destroy_graph(graph);
    }

    let hosts = m.host_registration().unwrap();
    call_unsafe! {
        hosts.register(p, 1, HostFlags::empty());
        hosts.unregister(p);
    }
}

/// What the masquerade says about itself; the inner backend's answers are another's.
const OWN: [&str; 4] = ["Backend::id", "Backend::kind", "Backend::label", "Backend::name"];

#[test]
fn every_method_reaches_the_backend_behind_and_its_errors_come_out_as_cudas() {
    for policy in [Policy::Flip, Policy::Identity] {
        let (inner, masquerade) = recorded(policy);
        call_everything(&masquerade, masquerade.id(), |error| {
            assert_eq!((error.kind, error.code, error.device), (ErrorKind::Other, 20, DeviceIndex(1)));
            let text = error.to_string();
            assert!(!text.contains("hip") && text.contains("cudaErrorInvalidChannelDescriptor"), "{text}");
        });
        let mut expected: BTreeSet<String> = contract().into_keys().collect();
        for own in OWN {
            assert!(expected.remove(own), "{own} is no method of the contract");
        }
        assert_eq!(*inner.hook().reached.lock().unwrap(), expected);
    }
}

#[test]
fn no_method_passes_a_handle_of_the_backend_behind_or_of_a_stranger() {
    let (inner, masquerade) = recorded(Policy::Flip);
    let cases =
        [(inner.id(), "expected a CUDA-labelled"), (BackendId::fresh(), "a handle of another backend")];
    for (from, reason) in cases {
        inner.hook().reached.lock().unwrap().clear();
        let mut refusals = 0;
        call_everything(&masquerade, from, |error| {
            if error.code != 20 {
                assert_eq!(error.kind, ErrorKind::InvalidValue);
                assert!(error.detail.contains(reason), "{error}");
                refusals += 1;
            }
        });
        let contract = contract();
        let taking: Vec<&String> =
            contract.iter().filter(|(_, takes)| **takes).map(|(name, _)| name).collect();
        assert_eq!(refusals, taking.len());
        let reached = inner.hook().reached.lock().unwrap();
        for method in taking {
            assert!(!reached.contains(method), "{method} let the handle pass");
        }
    }
}

#[test]
fn errors_name_the_cuda_function_of_the_method() {
    let (_, masquerade) = recorded(Policy::Flip);
    let name = |error: BackendError| error.call;
    assert_eq!(masquerade.malloc(DeviceIndex(0), 1).map_err(name), Err("cuMemAlloc"));
    assert_eq!(
        masquerade.pinned_host().unwrap().host_malloc(1, HostFlags::empty()).map_err(name),
        Err("cuMemHostAlloc")
    );
    let vmm = masquerade.virtual_memory().unwrap();
    let asked = vmm.granularity(DeviceIndex(0), Granularity::Minimum);
    assert_eq!(asked.map_err(name), Err("cuMemGetAllocationGranularity"));
}
