//! Free granules of one stream for another: movement in the narrow sense, with an unmap and a map.
//!
//! Only what the device is known to be done with moves, and nothing is waited for to learn that.

use super::leaving::give_up;
use super::memory::Memory;
use crate::error::Result;
use crate::lifetimes::call::Call;
use crate::memory::block::{BlockId, State, Tier};
use crate::memory::segment::Origin;
use crate::policy::engine::Engine;
use crate::policy::ground::{Ground, PolicyArena};

/// Moves free granules, of at least `finest` bytes, of the default pool's other arenas to this one until `wanted` bytes have
/// come. Returns how many came. Calls the driver, and waits for nothing.
pub(super) fn hand_over<E: Engine<Memory>>(
    engine: &E,
    to: &E::Arena,
    (wanted, finest): (u64, u64),
    call: &Call<'_>,
) -> Result<u64> {
    let mut came = 0;
    if call.capturing {
        return Ok(came);
    }
    for from in engine.neighbours(to) {
        if came >= wanted {
            break;
        }
        // Who has nothing to give is not asked about, which would be a driver call.
        let has_granules = engine.lock(from).ground().has_free(Tier::Large, finest);
        if has_granules && engine.is_idle(from) {
            came += hand_over_from(engine, from, to, (wanted - came, finest), call)?;
        }
    }
    Ok(came)
}

/// The arena is idle: nothing that leaves it has to be waited for.
fn hand_over_from<E: Engine<Memory>>(
    engine: &E,
    from: &E::Arena,
    to: &E::Arena,
    (wanted, finest): (u64, u64),
    call: &Call<'_>,
) -> Result<u64> {
    let _memory = engine.moving();
    let mut parts = take_idle(&mut *engine.lock(from), wanted, finest);
    if parts.is_empty() {
        // What views show stays; those that nobody uses go.
        give_up(engine, from, u64::MAX, true, call)?;
        parts = take_idle(&mut *engine.lock(from), wanted, finest);
    }
    engine.hand_over(from, to, parts, call)
}

/// Takes free granules out, as busy blocks, from the largest free blocks first: about `wanted` bytes.
fn take_idle(arena: &mut impl PolicyArena<Memory>, wanted: u64, finest: u64) -> Vec<BlockId> {
    let mut taken = Vec::new();
    let mut bytes = 0;
    // Granules of other regions may be smaller than a usual one.
    for id in arena.ground().free(Tier::Large, finest).into_iter().rev() {
        let ground = arena.ground();
        let block = &ground.layout().blocks()[id];
        let Origin::Growable { granule, .. } = ground.layout().segments()[block.segment].origin else {
            continue;
        };
        if !arena.is_past(block.epoch) {
            // Freed since the stream was seen to be idle.
            continue;
        }
        if bytes >= wanted {
            break;
        }
        if block.size < granule {
            continue;
        }
        let ground = arena.ground_mut();
        for part in ground.begin_vacate(id) {
            let (size, keep) = (
                ground.layout().blocks()[part].size,
                (wanted.saturating_sub(bytes)).next_multiple_of(granule),
            );
            if keep == 0 {
                ground.return_free(part);
            } else if keep < size {
                let upper = ground.cut_above(part, size - keep, State::Busy);
                ground.return_free(part);
                taken.push(upper);
                bytes += keep;
            } else {
                taken.push(part);
                bytes += size;
            }
        }
    }
    taken
}
