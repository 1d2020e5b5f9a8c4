//! Structs that may grow: they begin with the size that the caller compiled.

use super::pointed;
use crate::error::{Failure, GRANULE_ABI};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A struct that begins with its size in bytes.
///
/// # Safety
/// `repr(C)`; the first field is a `u32`; all zeros are a value of it; no padding is read by anyone.
pub(crate) unsafe trait Growing: Copy {
    /// Bytes up to the end of the last field that was there in the first version: less is no such struct.
    const LEAST: usize;
}

/// Names the structs that grow. One that has grown names the last field of its first version: `growing!(it, up to field)`.
macro_rules! growing {
    ($($name:ty),+ $(,)?) => {$(
        // SAFETY: `repr(C)` with the size first; figures, nullable pointers and functions, which may all be zero.
        unsafe impl crate::boundary::pass::Growing for $name {
            const LEAST: usize = size_of::<Self>();
        }
    )+};
    ($name:ty, up to $last:ident) => {
        // SAFETY: as above.
        unsafe impl crate::boundary::pass::Growing for $name {
            const LEAST: usize =
                std::mem::offset_of!(Self, $last) + crate::boundary::pass::bytes_of(|it: &Self| &it.$last);
        }
    };
}
pub(crate) use growing;

/// The size of a field.
pub(crate) const fn bytes_of<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// The size that the caller says.
///
/// # Safety
/// What callers promise.
unsafe fn said<T: Growing>(ptr: *const T, name: &str) -> Result<usize, Failure> {
    // SAFETY: passed on; the size comes first.
    let said = unsafe { pointed(ptr.cast::<u32>(), name) }?;
    let said = *said as usize;
    if !ptr.is_aligned() {
        return Err(Failure::argument(format!("{name} is not aligned for its type")));
    }
    if said < T::LEAST {
        return Err(Failure::own(
            GRANULE_ABI,
            format!(
                "{name} says it has {said} bytes; at least {} are due: set its size to sizeof(it)",
                T::LEAST
            ),
        ));
    }
    Ok(said)
}

/// Reads what the caller has of a struct; fields that it does not know are zero.
///
/// # Safety
/// What callers promise: as many bytes are there as the struct says.
pub(crate) unsafe fn sized<T: Growing>(ptr: *const T, name: &str) -> Result<T, Failure> {
    // SAFETY: passed on.
    let said = unsafe { said(ptr, name) }?;
    let mut value = MaybeUninit::<T>::zeroed();
    let known = said.min(size_of::<T>());
    // SAFETY: so many bytes are there, as the caller says; the other end is a whole `T`.
    unsafe { std::ptr::copy_nonoverlapping(ptr.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known) };
    // SAFETY: zeros are a value of it, and so is what a caller has filled in.
    Ok(unsafe { value.assume_init() })
}

/// A place for an answer that may grow.
pub(crate) struct SizedOut<T> {
    to: NonNull<T>,
    said: usize,
}

/// A place for an answer that may grow.
///
/// # Safety
/// What callers promise: as many bytes are there as the struct says.
pub(crate) unsafe fn sized_out<T: Growing>(ptr: *mut T, name: &str) -> Result<SizedOut<T>, Failure> {
    // SAFETY: passed on.
    let said = unsafe { said(ptr, name) }?;
    match NonNull::new(ptr) {
        Some(to) => Ok(SizedOut { to, said }),
        None => Err(Failure::argument(format!("{name} is null"))),
    }
}

/// The same, where null says that nobody wants the answer.
///
/// # Safety
/// What callers promise.
pub(crate) unsafe fn optional_sized_out<T: Growing>(
    ptr: *mut T,
    name: &str,
) -> Result<Option<SizedOut<T>>, Failure> {
    if ptr.is_null() {
        return Ok(None);
    }
    // SAFETY: passed on.
    unsafe { sized_out(ptr, name) }.map(Some)
}

impl<T: Growing> SizedOut<T> {
    /// Writes what the caller knows of `value`; its size stays as it is.
    pub(crate) fn set(self, value: T) {
        let known = self.said.min(size_of::<T>()) - size_of::<u32>();
        let from = std::ptr::from_ref(&value).cast::<u8>();
        let to = self.to.as_ptr().cast::<u8>();
        // SAFETY: `known` bytes after the size are there on both sides, which are not the same struct.
        unsafe {
            std::ptr::copy_nonoverlapping(
                from.wrapping_add(size_of::<u32>()),
                to.wrapping_add(size_of::<u32>()),
                known,
            );
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that has grown: `second` was not there in the first version.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Grown {
        size: u32,
        first: u32,
        second: u64,
    }

    growing!(Grown, up to first);

    const WHOLE: u32 = size_of::<Grown>() as u32;

    fn given(size: u32) -> Grown {
        Grown { size, first: 1, second: 2 }
    }

    fn read(grown: &Grown) -> Result<Grown, Failure> {
        // SAFETY: it is a whole one, whatever it says.
        unsafe { sized(grown, "it") }
    }

    #[test]
    fn what_an_older_caller_does_not_have_is_zero() {
        assert_eq!(read(&given(8)).ok(), Some(Grown { size: 8, first: 1, second: 0 }));
        assert_eq!(read(&given(WHOLE)).ok(), Some(given(WHOLE)));
        assert_eq!(read(&given(WHOLE + 100)).ok(), Some(given(WHOLE + 100)), "a newer one has more");
        for size in 0..8 {
            assert!(read(&given(size)).is_err_and(|failure| failure.status() == GRANULE_ABI));
        }
    }

    #[test]
    fn an_older_caller_gets_what_it_knows() {
        for (size, bytes) in [(8, 0), (12, 4), (WHOLE, 8), (WHOLE + 100, 8)] {
            let mut place = Grown { size, first: 1, second: 0 };
            // SAFETY: it is a whole one, whatever it says.
            let out = unsafe { sized_out(&raw mut place, "it") };
            assert!(out.map(|out| out.set(Grown { size: 0, first: 5, second: u64::MAX })).is_ok());
            let written = place.second.to_ne_bytes().iter().filter(|byte| **byte == 255).count();
            assert_eq!((place.size, place.first, written), (size, 5, bytes));
        }
    }
}
