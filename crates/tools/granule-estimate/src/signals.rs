//! What reaches this process meanwhile, and is meant for what it runs.

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub number: i32,
    /// Whether what runs got it, too, as all programs of a terminal get its keys.
    pub shared: bool,
}

/// Gives the signals that have come since it was last asked.
pub type Signals<'a> = dyn FnMut() -> Vec<Received> + 'a;
