//! Primary contexts, the stack of contexts of every thread, and errors that stay.
//!
//! A device's primary context exists from its first retain to its last release. What was allocated in it
//! outlives it here, where real drivers free it: a backend that lets go of its context is not to be helped.

use crate::{Answer, Code};
use alloc_core::types::DeviceIndex;
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Contexts are handles too; nothing lies there.
const BASE: usize = 0x6c00_0000_0000;
const STRIDE: usize = 64;
const DEVICES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Primary {
    references: u64,
    flags: u32,
    fatal: Option<Code>,
}

static PRIMARIES: Mutex<[Primary; DEVICES]> =
    Mutex::new([Primary { references: 0, flags: 0, fatal: None }; DEVICES]);

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn primaries() -> MutexGuard<'static, [Primary; DEVICES]> {
    PRIMARIES.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn index(device: DeviceIndex) -> usize {
    device.0 as usize % DEVICES
}

/// The handle of a device's primary context, whether it exists or not.
#[must_use]
pub const fn handle_of(device: DeviceIndex) -> usize {
    BASE + STRIDE * index(device)
}

/// The device of a context.
///
/// # Errors
/// `INVALID_CONTEXT` for what is none.
pub fn device_of(context: usize) -> Answer<DeviceIndex> {
    let offset = context.checked_sub(BASE).filter(|offset| offset % STRIDE == 0);
    let device = offset.map(|offset| offset / STRIDE).filter(|&device| device < DEVICES);
    device.map(|device| DeviceIndex(device as u16)).ok_or(Code::INVALID_CONTEXT)
}

/// Takes a reference to a device's primary context, which exists from now on. The caller has checked the
/// device.
pub fn retain(device: DeviceIndex) -> usize {
    primaries()[index(device)].references += 1;
    handle_of(device)
}

/// Gives a reference back.
///
/// # Errors
/// `INVALID_CONTEXT` where there is none to give back.
pub fn release(device: DeviceIndex) -> Answer {
    let references = &mut primaries()[index(device)].references;
    *references = references.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    Ok(())
}

/// Flags of a device's primary context, and whether it exists.
#[must_use]
pub fn state(device: DeviceIndex) -> (u32, bool) {
    let primary = primaries()[index(device)];
    (primary.flags, primary.references > 0)
}

/// Remembers a fatal error: everything in that context answers with it from now on.
pub fn poison(device: DeviceIndex, code: Code) {
    primaries()[index(device)].fatal.get_or_insert(code);
}

/// Refuses work in a context that is destroyed, or that met a fatal error.
///
/// # Errors
/// `CONTEXT_IS_DESTROYED`, or the fatal error.
pub fn usable(device: DeviceIndex) -> Answer {
    let primary = primaries()[index(device)];
    match primary.fatal {
        Some(fatal) => Err(fatal),
        None if primary.references == 0 => Err(Code::CONTEXT_IS_DESTROYED),
        None => Ok(()),
    }
}

fn existing(context: usize) -> Answer {
    let device = device_of(context)?;
    if primaries()[index(device)].references == 0 { Err(Code::CONTEXT_IS_DESTROYED) } else { Ok(()) }
}

/// Puts a context on the thread's stack.
///
/// # Errors
/// `INVALID_CONTEXT` for what is none, `CONTEXT_IS_DESTROYED` for one that does not exist now.
pub fn push(context: usize) -> Answer {
    existing(context)?;
    STACK.with_borrow_mut(|stack| stack.push(context));
    Ok(())
}

/// Takes the uppermost context off the thread's stack.
///
/// # Errors
/// `INVALID_CONTEXT` where there is none.
pub fn pop() -> Answer<usize> {
    STACK.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)
}

/// Replaces the uppermost context; 0 only takes it off.
///
/// # Errors
/// As [`push`].
pub fn set(context: usize) -> Answer {
    if context != 0 {
        existing(context)?;
    }
    STACK.with_borrow_mut(|stack| {
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
    });
    Ok(())
}

/// The thread's current context; 0 is none.
#[must_use]
pub fn current() -> usize {
    // A thread that is ending has none any more.
    STACK.try_with(|stack| stack.borrow().last().copied().unwrap_or(0)).unwrap_or(0)
}

/// The device of the thread's current context, however that fares.
///
/// # Errors
/// `INVALID_CONTEXT` where there is none.
pub fn current_device() -> Answer<DeviceIndex> {
    device_of(current())
}
