//! Counted steps: how often loops of the engine, and of a simulated device, go round whose length depends on how many blocks,
//! streams, pools, granules or views there are. Tests say with it how cost grows, without a clock.
//!
//! Only builds with debug assertions count; in others all of this is empty.

#[cfg(debug_assertions)]
thread_local! {
    static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Whether this build counts.
pub const COUNTED: bool = cfg!(debug_assertions);

/// Steps of the calling thread so far.
#[must_use]
pub fn taken() -> u64 {
    #[cfg(debug_assertions)]
    return TAKEN.with(std::cell::Cell::get);
    #[cfg(not(debug_assertions))]
    0
}

/// Some loop goes round once more.
#[inline(always)]
pub fn step() {
    steps(1);
}

/// Some loops go round `count` times.
#[inline(always)]
pub fn steps(count: usize) {
    #[cfg(debug_assertions)]
    // A thread that ends counts no more.
    let _ = TAKEN.try_with(|taken| taken.set(taken.get() + count as u64));
    #[cfg(not(debug_assertions))]
    let _ = count;
}

/// Iterators that count what they yield.
pub trait Counted: Iterator + Sized {
    /// The same items.
    #[inline(always)]
    fn counted(self) -> impl Iterator<Item = Self::Item> {
        self.inspect(|_| step())
    }
}

impl<I: Iterator> Counted for I {}
