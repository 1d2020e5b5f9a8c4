//! What belongs to a thread: its current device and its capture mode, per machine.

use backend_api::CaptureMode;
use backend_api::types::{BackendId, DeviceIndex};
use std::cell::RefCell;

#[derive(Clone, Copy, Debug)]
struct ThreadState {
    backend: BackendId,
    device: DeviceIndex,
    mode: CaptureMode,
}

thread_local! {
    static STATES: RefCell<Vec<ThreadState>> = const { RefCell::new(Vec::new()) };
}

fn with<T>(backend: BackendId, visit: impl FnOnce(&mut ThreadState) -> T) -> T {
    let fresh = ThreadState { backend, device: DeviceIndex(0), mode: CaptureMode::Global };
    let known = STATES.try_with(|states| {
        let mut states = states.borrow_mut();
        let position = states.iter().position(|state| state.backend == backend).unwrap_or_else(|| {
            states.push(fresh);
            states.len() - 1
        });
        states[position]
    });
    // A thread that is ending has no state any more; it gets what a new one has.
    let mut state = known.unwrap_or(fresh);
    let answer = visit(&mut state);
    let _ = STATES.try_with(|states| {
        if let Some(known) = states.borrow_mut().iter_mut().find(|known| known.backend == backend) {
            *known = state;
        }
    });
    answer
}

pub(crate) fn device(backend: BackendId) -> DeviceIndex {
    with(backend, |state| state.device)
}

pub(crate) fn set_device(backend: BackendId, device: DeviceIndex) {
    with(backend, |state| state.device = device);
}

pub(crate) fn mode(backend: BackendId) -> CaptureMode {
    with(backend, |state| state.mode)
}

pub(crate) fn exchange_mode(backend: BackendId, mode: CaptureMode) -> CaptureMode {
    with(backend, |state| std::mem::replace(&mut state.mode, mode))
}
