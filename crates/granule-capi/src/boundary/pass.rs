//! What C passes: pointers, texts, arrays, places for answers. Only this module and that of handles trust a pointer.

mod sized;

use crate::error::{Failure, GRANULE_INVALID_DEVICE};
use granule::config::MemoryLimit;
use granule::types::{DeviceIndex, DevicePtr};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

/// Takes an argument of an exported function: `given!(handle a)` is [`handle`] of `a`, and its failure is the function's.
macro_rules! given {
    ($way:ident $argument:ident) => {{
        // SAFETY: what callers promise.
        let given = unsafe { crate::boundary::pass::$way($argument, stringify!($argument)) };
        given?
    }};
    ($way:ident $argument:ident, $length:ident) => {{
        // SAFETY: what callers promise.
        let given = unsafe { crate::boundary::pass::$way($argument, $length, stringify!($argument)) };
        given?
    }};
}
pub(crate) use given;

pub(crate) use super::handle::{handle, taken};

pub(crate) use sized::{Growing, SizedOut, bytes_of, growing, optional_sized_out, sized, sized_out};

/// A place for an answer. It is written where all went well, and only then.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    #[inline(always)]
    pub(crate) fn set(self, value: T) {
        // SAFETY: made by `out` from a place that the caller gave for a `T`; its old contents are nobody's.
        unsafe { self.0.write(value) }
    }
}

#[inline(always)]
pub(super) fn usable<T>(ptr: *const T, name: &str) -> Result<(), Failure> {
    if ptr.is_null() || !ptr.is_aligned() { Err(unusable(ptr.is_null(), name)) } else { Ok(()) }
}

#[cold]
fn unusable(null: bool, name: &str) -> Failure {
    Failure::argument(format!("{name} is {}", if null { "null" } else { "not aligned for its type" }))
}

/// What a pointer points to.
///
/// # Safety
/// What callers promise.
#[inline(always)]
unsafe fn pointed<'a, T>(ptr: *const T, name: &str) -> Result<&'a T, Failure> {
    usable(ptr, name)?;
    // SAFETY: what callers promise.
    Ok(unsafe { &*ptr })
}

/// The same, where null says that there is none.
///
/// # Safety
/// What callers promise.
pub(crate) unsafe fn optional<'a, T>(ptr: *const T, name: &str) -> Result<Option<&'a T>, Failure> {
    if ptr.is_null() {
        return Ok(None);
    }
    // SAFETY: passed on.
    unsafe { pointed(ptr, name) }.map(Some)
}

/// A place for an answer.
///
/// # Safety
/// What callers promise.
#[inline(always)]
pub(crate) unsafe fn out<T>(ptr: *mut T, name: &str) -> Result<Out<T>, Failure> {
    usable(ptr, name)?;
    NonNull::new(ptr).map(Out).ok_or_else(|| unusable(true, name))
}

/// NUL-terminated UTF-8.
///
/// # Safety
/// What callers promise.
pub(crate) unsafe fn text<'a>(ptr: *const c_char, name: &str) -> Result<&'a str, Failure> {
    usable(ptr, name)?;
    // SAFETY: what callers promise: it ends in NUL.
    let text = unsafe { CStr::from_ptr(ptr) };
    text.to_str().map_err(|error| Failure::argument(format!("{name} is not UTF-8: {error}")))
}

/// The same, where null says that there is none.
///
/// # Safety
/// What callers promise.
pub(crate) unsafe fn optional_text<'a>(ptr: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if ptr.is_null() {
        return Ok(None);
    }
    // SAFETY: passed on.
    unsafe { text(ptr, name) }.map(Some)
}

/// `length` values at `ptr`; null is fine for none.
///
/// # Safety
/// What callers promise.
pub(crate) unsafe fn array<'a, T>(ptr: *const T, length: u64, name: &str) -> Result<&'a [T], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    usable(ptr, name)?;
    let length = within::<T>(length, name)?;
    // SAFETY: what callers promise: so many values are there.
    Ok(unsafe { std::slice::from_raw_parts(ptr, length) })
}

/// The same, to be written: they have values already.
///
/// # Safety
/// What callers promise.
pub(crate) unsafe fn array_mut<'a, T>(ptr: *mut T, length: u64, name: &str) -> Result<&'a mut [T], Failure> {
    if length == 0 {
        return Ok(&mut []);
    }
    usable(ptr, name)?;
    let length = within::<T>(length, name)?;
    // SAFETY: what callers promise: so many values are there, and nobody else writes them.
    Ok(unsafe { std::slice::from_raw_parts_mut(ptr, length) })
}

/// Room for `capacity` values at `ptr`; null is fine for none.
///
/// # Safety
/// What callers promise.
pub(crate) unsafe fn room<T>(ptr: *mut T, capacity: u64, name: &str) -> Result<Room<T>, Failure> {
    if capacity == 0 {
        return Ok(Room { first: NonNull::dangling(), capacity: 0 });
    }
    usable(ptr, name)?;
    let capacity = within::<T>(capacity, name)?;
    NonNull::new(ptr).map(|first| Room { first, capacity }).ok_or_else(|| unusable(true, name))
}

/// A length that some array can have.
fn within<T>(length: u64, name: &str) -> Result<usize, Failure> {
    let fits =
        |length: &usize| length.checked_mul(size_of::<T>()).is_some_and(|n| isize::try_from(n).is_ok());
    let length = usize::try_from(length).ok().filter(fits);
    length.ok_or_else(|| Failure::argument(format!("no array has as many values as {name} is said to have")))
}

/// Room for an array of answers.
pub(crate) struct Room<T> {
    first: NonNull<T>,
    capacity: usize,
}

impl<T> Room<T> {
    /// Writes as many of `values` as there is room for; says how many there are.
    pub(crate) fn fill(self, values: impl IntoIterator<Item = T>) -> u64 {
        let mut count = 0;
        for value in values {
            if count < self.capacity {
                // SAFETY: made by `room`: it is inside the array that the caller gave.
                let place = unsafe { self.first.add(count) };
                // SAFETY: as above; its old contents are nobody's.
                unsafe { place.write(value) };
            }
            count += 1;
        }
        count as u64
    }
}

/// A device's number.
#[inline(always)]
pub(crate) fn device(number: i32) -> Result<DeviceIndex, Failure> {
    u16::try_from(number).map(DeviceIndex).map_err(|_| no_device(number))
}

#[cold]
fn no_device(number: i32) -> Failure {
    Failure::own(
        GRANULE_INVALID_DEVICE,
        format!("Invalid device argument {number}: devices are numbered from 0"),
    )
}

/// An address of memory, which is never followed here.
#[inline(always)]
pub(crate) fn address(ptr: *const c_void) -> DevicePtr {
    DevicePtr(ptr.addr() as u64)
}

/// An address for C. What a device calls by this number, C may not follow either.
#[inline(always)]
pub(crate) fn pointer(address: DevicePtr) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}

/// A limit in bytes, where `u64::MAX` is none.
pub(crate) fn limit(bytes: u64) -> Option<MemoryLimit> {
    (bytes != u64::MAX).then_some(MemoryLimit::Bytes(bytes))
}
