//! Primary contexts, the stack of contexts of every thread, and errors that stay.
//!
//! A device's primary context exists from its first retain to its last release. What was allocated in it
//! outlives it here, where real drivers free it: a backend that lets go of its context is not to be helped.

use crate::{Answer, Code};
use backend_api::types::DeviceIndex;
use std::cell::Cell;
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

/// A thread's contexts, the current one last.
#[derive(Clone, Copy, Debug)]
struct Stack {
    contexts: [usize; DEPTH],
    height: usize,
}

/// More than any program pushes.
const DEPTH: usize = 32;

thread_local! {
    // Without a destructor: a program's own destructors call the driver when those of the thread have run.
    static STACK: Cell<Stack> = const { Cell::new(Stack { contexts: [0; DEPTH], height: 0 }) };
}

impl Stack {
    const fn top(&self) -> usize {
        if self.height == 0 { 0 } else { self.contexts[self.height - 1] }
    }

    fn push(&mut self, context: usize) -> Answer {
        *self.contexts.get_mut(self.height).ok_or(Code::OUT_OF_MEMORY)? = context;
        self.height += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<usize> {
        let top = self.top();
        self.height = self.height.checked_sub(1)?;
        Some(top)
    }
}

fn with_stack<T>(visit: impl FnOnce(&mut Stack) -> T) -> T {
    let mut stack = STACK.get();
    let answer = visit(&mut stack);
    STACK.set(stack);
    answer
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

/// Sets the flags of a device's primary context.
pub fn set_flags(device: DeviceIndex, flags: u32) {
    primaries()[index(device)].flags = flags;
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
    with_stack(|stack| stack.push(context))
}

/// Takes the uppermost context off the thread's stack.
///
/// # Errors
/// `INVALID_CONTEXT` where there is none.
pub fn pop() -> Answer<usize> {
    with_stack(Stack::pop).ok_or(Code::INVALID_CONTEXT)
}

/// Replaces the uppermost context; 0 only takes it off.
pub fn set(context: usize) -> Answer {
    if context != 0 {
        existing(context)?;
    }
    with_stack(|stack| {
        stack.pop();
        if context == 0 { Ok(()) } else { stack.push(context) }
    })
}

/// The thread's current context; 0 is none.
#[must_use]
pub fn current() -> usize {
    STACK.get().top()
}

/// The device of the thread's current context, however that fares.
///
/// # Errors
/// `INVALID_CONTEXT` where there is none.
pub fn current_device() -> Answer<DeviceIndex> {
    device_of(current())
}
