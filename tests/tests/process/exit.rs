//! The exit of the process: frees are no-ops.

use crate::calls::{Driver, config, looks, releases, rig, unexpected};
use alloc_core::config::Settings;
use alloc_core::types::{DevicePtr, MIB, Stream};
use alloc_core::{AllocError, CachingAllocator};
use granule_tests::alone::{child, is_child};
use granule_tests::policy::PytorchPolicy;
use std::sync::{Arc, Mutex};

/// What the exit of the process finds.
type Leftover = (Arc<Driver>, CachingAllocator, DevicePtr, Stream);

static LEFT: Mutex<Option<Leftover>> = Mutex::new(None);

/// Runs at the end of the process, after the engine's own handler, which was registered later.
extern "C" fn at_exit() {
    let Some((driver, allocator, ptr, stream)) = LEFT.lock().unwrap().take() else { return };
    let before = driver.calls();
    let gone = |answer: &std::result::Result<(), AllocError>| matches!(answer, Err(AllocError::DriverGone));
    let mut wrong = unexpected(releases(&allocator, ptr, stream), std::result::Result::is_ok);
    wrong.extend(unexpected(vec![("malloc", allocator.malloc(512, stream).map(drop))], gone));
    wrong.extend(unexpected(looks(&allocator, ptr), |answer| !gone(answer)));
    let backend = Arc::clone(allocator.backend());
    let late = granule_tests::made::<granule_tests::policy::PytorchPolicy>(backend, Settings::default());
    wrong.extend(unexpected(vec![("new", late.map(drop))], gone));
    drop(allocator);
    wrong.extend((driver.calls() != before).then(|| "the driver was called".to_owned()));
    let text = format!("at exit: {wrong:?}\n");
    // SAFETY: the bytes are there for the length of the call.
    unsafe { libc::write(1, text.as_ptr().cast(), text.len()) };
}

/// The path of the next test.
const ENDS: &str = "exit::process_that_exits";

/// Not a test of itself: the process that [`frees_at_exit_are_no_ops`] starts and that ends with memory in its hands.
#[test]
fn process_that_exits() {
    if !is_child(ENDS) {
        return;
    }
    // SAFETY: the handler panics only where the test has failed.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    let (_, driver, allocator, stream) = rig::<PytorchPolicy>(config());
    let ptr = allocator.malloc(3 * MIB, stream).unwrap();
    *LEFT.lock().unwrap() = Some((driver, allocator, ptr, stream));
    std::process::exit(0);
}

#[test]
fn frees_at_exit_are_no_ops() {
    let output = child(ENDS);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("at exit: []\n"), "{said}");
}
