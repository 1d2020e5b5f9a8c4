//! Pointers that a C caller passed, behind which nothing but null is looked for.

use crate::{Answer, Code};
use std::ffi::{c_char, c_int};

/// A place for an answer.
#[derive(Debug)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Takes the caller's word.
    ///
    /// # Safety
    /// `place` is null or writable for a `T` (for [`Out::fill`]: for as many as the caller said) until the
    /// entry point returns.
    pub const unsafe fn new(place: *mut T) -> Self {
        Self(place)
    }

    /// Whether the caller wants no answer here.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Answers.
    pub fn put(&self, value: T) -> Answer {
        if self.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: promised to `new`; `write_unaligned` because C callers pass bytes of structs too.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Refuses null before anything is done.
    pub const fn wanted(&self) -> Answer {
        if self.is_null() { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    /// Answers where the caller wants it.
    pub fn put_if_wanted(&self, value: T) {
        let _ = self.put(value);
    }

    /// Answers with several values, one after the other.
    pub fn fill(&self, values: impl IntoIterator<Item = T>) -> Answer {
        self.wanted()?;
        for (index, value) in values.into_iter().enumerate() {
            // SAFETY: promised to `new`: there is room for as many as the caller said, and no more are given.
            let place = unsafe { self.0.add(index) };
            // SAFETY: as above.
            unsafe { place.write_unaligned(value) };
        }
        Ok(())
    }

    /// The place as one of another type (`void *` answers).
    #[must_use]
    pub const fn cast<U>(&self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Its address, where what is asked is about the address itself.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.addr() as u64
    }
}

impl Out<c_char> {
    /// Copies a text with its end mark into `length` bytes, cut where it is longer.
    ///
    /// # Errors
    /// `INVALID_VALUE` for null, and without room.
    pub fn put_text(&self, length: c_int, text: &str) -> Answer {
        let room = usize::try_from(length).ok().filter(|&room| room > 0).ok_or(Code::INVALID_VALUE)?;
        self.fill(text.bytes().take(room - 1).chain([0]).map(|byte| byte as c_char))
    }
}

impl<T: Copy> Out<T> {
    /// What the caller left there before the call.
    pub fn before(&self) -> Answer<T> {
        self.wanted()?;
        // SAFETY: promised to `new`; used only where the signature says that the caller fills the place.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// What a caller passes by pointer.
#[derive(Debug)]
pub struct In<T>(*const T);

impl<T> In<T> {
    /// Takes the caller's word.
    ///
    /// # Safety
    /// `place` is null or readable for a `T` (for [`In::list`]: for as many as the caller said) until the
    /// entry point returns.
    pub const unsafe fn new(place: *const T) -> Self {
        Self(place)
    }

    /// Whether nothing was passed.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Its address, where what is asked is about the address itself.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.addr() as u64
    }
}

impl<T> In<T> {
    /// The place as one of another type (a struct that an older header declares otherwise). What is read
    /// must not be larger.
    #[must_use]
    pub const fn cast<U>(&self) -> In<U> {
        In(self.0.cast())
    }
}

impl<T: Copy> In<T> {
    /// The value.
    pub fn get(&self) -> Answer<T> {
        if self.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: promised to `new`.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// `count` values.
    pub fn list(&self, count: usize) -> Answer<Vec<T>> {
        let value = |index| {
            // SAFETY: promised to `new`: there are as many as the caller said.
            let place = unsafe { self.0.add(index) };
            // SAFETY: as above.
            unsafe { place.read_unaligned() }
        };
        if self.is_null() { Err(Code::INVALID_VALUE) } else { Ok((0..count).map(value).collect()) }
    }
}

impl In<c_char> {
    /// The text up to its end mark.
    ///
    /// # Errors
    /// `INVALID_VALUE` for null, and for what is not UTF-8.
    pub fn text(&self) -> Answer<String> {
        if self.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: promised to `new`: a text of C, which ends with a null byte.
        let text = unsafe { std::ffi::CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| Code::INVALID_VALUE)
    }
}
