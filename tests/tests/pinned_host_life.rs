//! Pinned host memory: buffers, the end, call contexts, where memory lies, and the edges of a process.
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use alloc_core::backend::{Backend, CopyKind, ErrorKind};
use alloc_core::config::Settings;
use alloc_core::history::{CallContext, HistoryOptions, RecordContext};
use alloc_core::host::{HostAllocator, HostBlock, HostOptions, NumaPolicy, PinnedBuffer};
use alloc_core::pool::Filter;
use alloc_core::snapshot::{Frame, Snapshot, Stack};
use alloc_core::types::{DeviceIndex, DevicePtr, KIB, MIB, PoolId};
use alloc_core::{AllocError, CachingAllocator};
use backend_openreg::{Call, Clock, Families, FaultPlan, MemoryMode, OpenReg, OpenRegConfig};
use granule_tests::quiet::Retires;
use std::path::Path;
use std::sync::Arc;

const DEVICE: DeviceIndex = DeviceIndex(0);

fn machine(config: OpenRegConfig) -> Arc<OpenReg> {
    OpenReg::new(config).unwrap()
}

fn idle() -> Arc<OpenReg> {
    machine(OpenRegConfig::default().devices(1))
}

/// A machine on which work takes that many further operations.
fn slow(lag: u64) -> Arc<OpenReg> {
    machine(OpenRegConfig::default().devices(2).clock(Clock::Virtual { lag }))
}

fn with(machine: &Arc<OpenReg>, settings: &Settings) -> HostAllocator {
    HostAllocator::new(machine.clone(), settings, HostOptions::default()).unwrap()
}

fn plain(machine: &Arc<OpenReg>) -> HostAllocator {
    with(machine, &Settings::default())
}

fn calls(machine: &OpenReg, call: Call) -> u64 {
    machine.calls().get(call)
}

/// Everything went back to the driver.
fn nothing_is_pinned(machine: &OpenReg) {
    assert_eq!(calls(machine, Call::HostMalloc), calls(machine, Call::HostFree));
    assert_eq!(calls(machine, Call::RegisterHost), calls(machine, Call::UnregisterHost));
    assert_eq!(machine.traps(), Vec::new(), "no memory left while work used it");
}

#[test]
fn a_buffer_is_ordinary_memory_and_frees_itself() {
    let machine = machine(OpenRegConfig::default().devices(1).memory(MemoryMode::Mapped));
    let host = Arc::new(plain(&machine));
    let mut written = PinnedBuffer::copied(&host, b"pinned").unwrap();
    assert_eq!((written.len(), written.as_slice()), (6, &b"pinned"[..]));
    written.as_mut_slice()[0] = b'P';
    let mut read = PinnedBuffer::zeroed(&host, 6).unwrap();
    assert_eq!(read.as_ref(), [0; 6]);
    let (stream, devices) = (
        machine.default_stream(DEVICE),
        Arc::new(CachingAllocator::new(machine.clone(), Settings::default()).unwrap()),
    );
    let device: alloc_core::DeviceBuffer = alloc_core::DeviceBuffer::new(&devices, 6, stream).unwrap();
    // SAFETY: rule 2: all three live on, and no slice is used before the stream was waited for.
    unsafe { host.copy_async(device.ptr(), written.ptr(), 6, CopyKind::HostToDevice, stream) }.unwrap();
    // SAFETY: as above.
    unsafe { host.copy_async(read.ptr(), device.ptr(), 6, CopyKind::DeviceToHost, stream) }.unwrap();
    machine.synchronize_stream(stream).unwrap();
    assert_eq!(read.as_mut(), b"Pinned");
    read.record_stream(stream).unwrap();
    let at = read.ptr();
    drop(read);
    let again = PinnedBuffer::zeroed(&host, 8).unwrap();
    assert_eq!((again.ptr(), again.as_slice()), (at, &[0; 8][..]), "nothing of the last owner's is seen");
    let nothing = PinnedBuffer::zeroed(&host, 0).unwrap();
    assert!(nothing.is_empty() && nothing.ptr().is_null() && nothing.as_slice().is_empty());
    let raw = again.into_raw();
    assert_eq!(host.stats().active_requests.current, 2);
    host.free(raw.id).unwrap();
    drop((written, nothing, device));
    host.poll().unwrap();
    assert_eq!(host.stats().active_requests.current, 0);
    drop(host);
    nothing_is_pinned(&machine);
}

/// The allocator goes with its last buffer.
#[test]
fn a_buffer_keeps_its_allocator() {
    let machine = idle();
    let host = Arc::new(plain(&machine));
    let buffer = PinnedBuffer::copied(&host, &[7; 100]).unwrap();
    drop(host);
    assert_eq!(buffer.as_slice(), [7; 100]);
    drop(buffer);
    nothing_is_pinned(&machine);
}

#[test]
fn the_end_waits_for_devices_and_leaves_what_the_program_has() {
    let machine = slow(1000);
    let host = plain(&machine);
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let devices =
        CachingAllocator::<alloc_core::policy::PytorchPolicy>::new(machine.clone(), Settings::default())
            .unwrap();
    let device = devices.malloc(MIB, stream).unwrap();
    let used = host.allocate(MIB).unwrap();
    // SAFETY: rule 2: the block is given back after the copy, as this test shows; a trap would tell.
    unsafe { host.copy_async(device, used.ptr, MIB, CopyKind::HostToDevice, stream) }.unwrap();
    host.free(used.id).unwrap();
    let unrecorded = host.allocate(2 * MIB).unwrap();
    assert!(host.record_event(unrecorded.ptr, unrecorded.id, stream).unwrap());
    machine.set_faults(FaultPlan::none().fail_nth_of(Call::RecordEvent, 1, ErrorKind::Other));
    host.free(unrecorded.id).unwrap();
    let live = host.allocate(4 * MIB).unwrap();
    let pool = PoolId::fresh();
    host.begin_pool(pool, &Filter::Always).unwrap();
    host.free(host.allocate(KIB).unwrap().id).unwrap();
    drop(host);
    assert_eq!(calls(&machine, Call::HostFree), calls(&machine, Call::HostMalloc) - 1);
    assert_eq!(machine.traps(), Vec::new());
    // SAFETY: rule 3: the allocator is gone, and nothing uses its last block.
    unsafe { machine.host_free(live.ptr) }.unwrap();
    devices.free(device).unwrap();
}

#[derive(Debug)]
struct Place(&'static str);

impl CallContext for Place {
    fn frames(&self) -> Stack {
        [Frame { name: self.0.into(), filename: "a.py".into(), line: 1, extra: Vec::new() }].into()
    }
}

thread_local! {
    static HERE: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// A free shows where it was made at the highest level, else where its block was allocated; blocks always the latter.
#[test]
fn contexts_are_shown_as_the_level_says() {
    let machine = idle();
    let places = |level: RecordContext| {
        let host = plain(&machine);
        let here = || Some(Arc::new(Place(HERE.get())) as Arc<dyn CallContext>);
        host.record_history(&HistoryOptions::newest(100).with_contexts(level, here)).unwrap();
        HERE.set("taken");
        let (block, _live) = (host.allocate(KIB).unwrap(), host.allocate(2 * KIB).unwrap());
        HERE.set("given");
        host.free(block.id).unwrap();
        HERE.set("emptied");
        host.empty_cache().unwrap();
        let mut seen = Snapshot::default();
        host.add_to_snapshot(&mut seen, true);
        let name = |frames: &Option<Stack>| {
            frames.as_ref().and_then(|frames| frames.first()).map_or("", |frame| &frame.name).to_owned()
        };
        let entries: Vec<_> = seen.host_traces.iter().map(|entry| name(&entry.frames)).collect();
        (entries, name(&seen.host_segments[0].blocks[0].frames))
    };
    let all = ["taken", "taken", "taken", "taken", "given", "given", "emptied"].map(str::to_owned);
    assert_eq!(places(RecordContext::All), (all.to_vec(), "taken".to_owned()));
    assert_eq!(places(RecordContext::Alloc), (vec!["taken".to_owned(); 7], "taken".to_owned()));
    assert_eq!(places(RecordContext::State), (vec![String::new(); 7], "taken".to_owned()));
    assert_eq!(places(RecordContext::Never), (vec![String::new(); 7], String::new()));
}

/// Where a page is: the number of its node.
fn node_of(block: &HostBlock) -> Option<i32> {
    let (mut node, nothing): (i32, u64) = (-1, 0);
    // MPOL_F_NODE and MPOL_F_ADDR.
    let flags: u64 = 1 | 2;
    // SAFETY: writes the number of a node, about a page that is there.
    let asked = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut node, nothing, nothing, block.ptr.0, flags)
    };
    (asked == 0).then_some(node)
}

/// A system that says on which node the first device is.
fn sysfs(root: &Path, machine: &OpenReg, node: &str) {
    let bus = machine.properties(DEVICE).unwrap().pci_bus_id.unwrap();
    let device = root.join("bus/pci/devices").join(bus);
    std::fs::create_dir_all(&device).unwrap();
    std::fs::create_dir_all(root.join("devices/system/node/node0")).unwrap();
    std::fs::write(device.join("numa_node"), node).unwrap();
}

#[test]
fn memory_lies_near_a_device_where_the_system_says_where_that_is() {
    let root = tempfile::tempdir().unwrap();
    for families in [Families::all(), Families::all() - Families::HOST_REGISTRATION] {
        let machine = machine(OpenRegConfig::default().devices(2).families(families));
        let on = |numa: NumaPolicy, settings: &Settings| {
            let options = HostOptions { numa, sysfs: root.path().to_owned(), ..HostOptions::default() };
            HostAllocator::new(machine.clone(), settings, options).unwrap()
        };
        sysfs(root.path(), &machine, "0\n");
        let near = on(NumaPolicy::NearDevice(DEVICE), &Settings::default());
        assert_eq!(near.node(), Some(0));
        let block = near.allocate(3 * MIB).unwrap();
        // Our pages, placed before they exist; or the driver's, by the thread's policy.
        let registers = families.contains(Families::HOST_REGISTRATION);
        assert_eq!(calls(&machine, Call::RegisterHost), u64::from(registers));
        assert_eq!(calls(&machine, Call::HostMalloc), u64::from(!registers));
        let at = std::ptr::with_exposed_provenance_mut::<u8>(block.ptr.0 as usize);
        // SAFETY: the whole of the block.
        unsafe { at.write_bytes(1, block.size as usize) };
        assert!(node_of(&block).is_none_or(|node| node == 0));
        near.free(block.id).unwrap();
        drop(near);
        nothing_is_pinned(&machine);
        // Where the system has no answer, it places the memory, and all goes on.
        sysfs(root.path(), &machine, "-1\n");
        for unknown in
            [NumaPolicy::NearDevice(DEVICE), NumaPolicy::NearDevice(DeviceIndex(1)), NumaPolicy::Node(7)]
        {
            let host = on(unknown, &Settings::default());
            assert_eq!(host.node(), None, "{unknown:?}");
            host.free(host.allocate(MIB).unwrap().id).unwrap();
        }
        assert_eq!(on(NumaPolicy::Node(0), &Settings::default()).node(), Some(0));
        assert_eq!(on(NumaPolicy::System, &Settings::default()).node(), None);
        nothing_is_pinned(&machine);
    }
    let machine = idle();
    let real = HostOptions { numa: NumaPolicy::Node(0), ..HostOptions::default() };
    let host = HostAllocator::new(machine.clone(), &Settings::default(), real).unwrap();
    host.free(host.allocate(MIB).unwrap().id).unwrap();
}

#[test]
fn without_registration_the_driver_says_why_pages_cannot_be_registered() {
    let families = Families::all() - Families::HOST_REGISTRATION;
    let machine = machine(OpenRegConfig::default().devices(1).families(families));
    let host = with(&machine, &Settings { pinned_use_host_register: true, ..Settings::default() });
    let refused = host.allocate(KIB).unwrap_err();
    assert!(refused.to_string().contains("host registration"), "{refused}");
    host.configure(&Settings::default()).unwrap();
    host.allocate(KIB).unwrap();
}

#[test]
fn a_driver_that_goes_away_is_not_called_again() {
    let machine = slow(1000);
    let host = with(&machine, &Settings { pinned_use_background_threads: true, ..Settings::default() });
    let stream = machine.create_stream(DEVICE, 0).unwrap();
    let (block, waits) = (host.allocate(KIB).unwrap(), host.allocate(MIB).unwrap());
    assert!(host.record_event(waits.ptr, waits.id, stream).unwrap());
    host.free(waits.id).unwrap();
    host.abandon();
    std::thread::sleep(std::time::Duration::from_millis(5));
    let before = machine.calls().total();
    assert!(matches!(host.allocate(KIB), Err(AllocError::DriverGone)));
    assert!(matches!(host.record_event(block.ptr, block.id, stream), Err(AllocError::DriverGone)));
    host.free(block.id).unwrap();
    host.empty_cache().unwrap();
    host.retire(stream).unwrap();
    assert_eq!(host.stats().allocations.current, 2, "what only looks still works");
    drop(host);
    assert_eq!(machine.calls().total(), before);
}

/// The child of a fork is told so, and touches neither locks nor the driver.
#[test]
fn a_forked_child_is_refused() {
    let machine = idle();
    let host = with(&machine, &Settings { pinned_use_background_threads: true, ..Settings::default() });
    let block = host.allocate(KIB).unwrap();
    let stream = machine.default_stream(DEVICE);
    // SAFETY: the child calls what is under test, and ends without running anything else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = |result: Result<(), AllocError>| matches!(result, Err(AllocError::Forked));
        let complaints = [
            forked(host.allocate(KIB).map(drop)),
            forked(host.free(block.id)),
            forked(host.record_event(block.ptr, block.id, stream).map(drop)),
            forked(host.empty_cache()),
            forked(host.poll()),
            forked(host.configure(&Settings::default())),
            forked(host.begin_pool(PoolId::fresh(), &Filter::Always)),
            host.stats().allocations.current == 0,
        ];
        drop(host);
        let wrong = complaints.iter().position(|fine| !fine).map_or(0, |n| n as i32 + 1);
        // SAFETY: ends the child.
        unsafe { libc::_exit(wrong) }
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child ended by itself: {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the number of the answer that was wrong");
    host.free(block.id).unwrap();
    drop(host);
    nothing_is_pinned(&machine);
}

#[test]
fn an_address_is_pinned_and_nothing_else_is_named_by_it() {
    let machine = idle();
    let host = plain(&machine);
    let block = host.allocate(3 * KIB).unwrap();
    assert_ne!(DevicePtr(block.id.0), block.ptr, "PyTorch's context is not the address either");
    assert!(block.ptr.0.is_multiple_of(64));
}
