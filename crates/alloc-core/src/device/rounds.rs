//! Pieces of memory that several devices save, give up, take and restore at once: in rounds, a piece of each.

use crate::error::Result;

/// Bytes of a piece with contents: small against what sleeps, large against what a call costs.
pub(super) const PIECE: u64 = 64 << 20;
/// Pieces of each device that are copied while the host does something else.
const UNDER_WAY: usize = 4;

/// Outcome of beginning the next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is in flight.
    Piece,
    /// There is no memory for it without the remedies, which want nothing to be in flight.
    Short,
    /// There is no next piece.
    Nothing,
}

/// The pieces of one device.
pub(crate) trait Carried {
    /// Begins the next piece, where memory is short with all remedies if `pressed`. Mostly it does not wait for copies.
    fn begin(&mut self, pressed: bool) -> Result<Begun>;

    /// Number of pieces in flight.
    fn under_way(&self) -> usize;

    /// Completes the oldest of them. Blocks.
    fn finish(&mut self) -> Result<()>;

    /// Leaves no piece half done, after an error anywhere. Blocks.
    fn settle(&mut self);
}

/// Does all pieces of all devices. After an error each piece is as it was, or done. Blocks.
pub(crate) fn carry<P: Carried>(devices: &mut [P]) -> Result<()> {
    let outcome = rounds(devices);
    if outcome.is_err() {
        devices.iter_mut().for_each(Carried::settle);
    }
    outcome
}

fn rounds<P: Carried>(devices: &mut [P]) -> Result<()> {
    loop {
        let mut more = false;
        for number in 0..devices.len() {
            match devices[number].begin(false)? {
                Begun::Piece => more = true,
                Begun::Nothing => {}
                Begun::Short => {
                    devices.iter_mut().try_for_each(|device| finish_down_to(device, 0))?;
                    more |= devices[number].begin(true)? == Begun::Piece;
                }
            }
        }
        let rest = if more { UNDER_WAY } else { 0 };
        devices.iter_mut().try_for_each(|device| finish_down_to(device, rest))?;
        if !more {
            return Ok(());
        }
    }
}

fn finish_down_to<P: Carried>(device: &mut P, count: usize) -> Result<()> {
    while device.under_way() > count {
        device.finish()?;
    }
    Ok(())
}
