//! Handles: objects that C has by a pointer until it ends them.
//!
//! Where an object was, the heap gets nothing back: the place says that it is empty, and serves another object of its type after some
//! time. So a handle that was ended can be looked at, and is refused.

use super::pass::usable;
use crate::error::Failure;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ptr::with_exposed_provenance;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// So many others are ended before the place of a handle is used again.
const REST: usize = 64;

/// What C has handles of.
pub(crate) trait Handle: Sized + 'static {
    /// Addresses of this type's empty places, the one that rested longest first.
    fn empty() -> &'static Mutex<VecDeque<usize>>;
}

/// Names a type of handles.
macro_rules! handles {
    ($name:ty) => {
        impl crate::boundary::handle::Handle for $name {
            fn empty() -> &'static std::sync::Mutex<std::collections::VecDeque<usize>> {
                static EMPTY: std::sync::Mutex<std::collections::VecDeque<usize>> =
                    std::sync::Mutex::new(std::collections::VecDeque::new());
                &EMPTY
            }
        }
    };
}
pub(crate) use handles;

/// Never given back to the heap.
#[repr(C)]
struct Place<T> {
    object: UnsafeCell<MaybeUninit<T>>,
    is_there: AtomicBool,
}

/// So often the lock of a list is tried: other threads have it for some instructions.
const TRIES: usize = 1000;

/// The list, unless a thread has it for good: one that was left behind by a fork.
fn empty_places<T: Handle>() -> Option<MutexGuard<'static, VecDeque<usize>>> {
    (0..TRIES).find_map(|_| {
        T::empty().try_lock().ok().or_else(|| {
            std::hint::spin_loop();
            None
        })
    })
}

/// Gives C an object.
pub(crate) fn new_handle<T: Handle>(object: T) -> *mut T {
    let rested = empty_places::<T>().filter(|empty| empty.len() > REST);
    let place: &'static Place<T> = match rested.and_then(|mut empty| empty.pop_front()) {
        // SAFETY: the address of a place of this type, which was exposed and is never given back.
        Some(at) => unsafe { &*with_exposed_provenance(at) },
        None => Box::leak(Box::new(Place {
            object: UnsafeCell::new(MaybeUninit::uninit()),
            is_there: AtomicBool::new(false),
        })),
    };
    // SAFETY: the place is empty and nobody else has it.
    unsafe { place.object.get().write(MaybeUninit::new(object)) };
    place.is_there.store(true, Ordering::Release);
    std::ptr::from_ref(place).expose_provenance();
    place.object.get().cast()
}

/// # Safety
/// As for [`handle`].
#[inline(always)]
unsafe fn place<T: Handle>(ptr: *const T, name: &str) -> Result<&'static Place<T>, Failure> {
    usable(ptr, name)?;
    // SAFETY: by this function's contract `new_handle` made it; a place stays, and is exposed.
    Ok(unsafe { &*with_exposed_provenance::<Place<T>>(ptr.addr()) })
}

/// What a handle stands for.
///
/// # Safety
/// Null, or once given out by [`new_handle`]; nobody ends it during the call.
#[inline(always)]
pub(crate) unsafe fn handle<'a, T: Handle>(ptr: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: passed on.
    let place = unsafe { place(ptr, name) }?;
    if !place.is_there.load(Ordering::Acquire) {
        return Err(ended(name));
    }
    // SAFETY: the object is there, and stays for the call by this function's contract.
    Ok(unsafe { &*place.object.get().cast() })
}

/// Takes an object back; null is fine.
///
/// # Safety
/// Null, or once given out by [`new_handle`]; nobody uses it during the call.
pub(crate) unsafe fn taken<T: Handle>(ptr: *mut T, name: &str) -> Result<Option<T>, Failure> {
    if ptr.is_null() {
        return Ok(None);
    }
    // SAFETY: passed on.
    let place = unsafe { place(ptr.cast_const(), name) }?;
    if !place.is_there.swap(false, Ordering::AcqRel) {
        return Err(ended(name));
    }
    // SAFETY: the object was there, and this is who emptied the place.
    let object = unsafe { place.object.get().cast::<T>().read() };
    if let Some(mut empty) = empty_places::<T>() {
        empty.push_back(std::ptr::from_ref(place).addr());
    }
    Ok(Some(object))
}

#[cold]
fn ended(name: &str) -> Failure {
    Failure::argument(format!("{name} was ended already: it is no handle any more"))
}

#[cfg(test)]
mod tests {
    use super::{REST, handle, new_handle, taken};

    struct Object(usize);
    handles!(Object);

    fn end(object: *mut Object) -> Option<usize> {
        // SAFETY: `new_handle` gave it out, and this thread alone uses it.
        unsafe { taken(object, "o") }.ok().flatten().map(|object| object.0)
    }

    fn number(object: *mut Object) -> Option<usize> {
        // SAFETY: the same.
        unsafe { handle(object.cast_const(), "o") }.ok().map(|object| object.0)
    }

    #[test]
    fn a_place_rests_until_others_of_its_type_were_ended() {
        let first = new_handle(Object(0));
        assert_eq!((end(first), end(first)), (Some(0), None), "ended once");
        for other in 1..=REST {
            let object = new_handle(Object(other));
            assert!(object != first && number(first).is_none());
            assert_eq!(end(object), Some(other));
        }
        let again = new_handle(Object(1000));
        assert_eq!((again, number(again)), (first, Some(1000)));
    }
}
