//! Programs against the C ABI: each byte chooses a call, and those after it the arguments. Arguments are what the header allows:
//! addresses that are live, dead, inside of blocks or made up, devices and pools that there are and that there are not.

mod calls;
mod program;

use crate::cursor::Cursor;
use program::Program;

/// Calls of a program: longer ones find little that shorter ones do not.
const MOST_CALLS: usize = 120;
/// So often the figures are counted.
const COUNT_EVERY: usize = 16;

/// Runs a program to its end, and gives everything back.
///
/// # Panics
/// Where a promise is broken.
pub fn run(input: &[u8]) {
    let mut input = Cursor::new(input);
    let mut program = Program::begin(&mut input);
    for call in 1..=MOST_CALLS {
        if input.is_empty() {
            break;
        }
        calls::one(&mut program, &mut input);
        if call % COUNT_EVERY == 0 {
            program.count();
        }
    }
    program.count();
    program.end();
}

/// Each call alone, and all of them in a row, under each set of settings.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> =
        (0..calls::KINDS).map(|kind| vec![kind, 0, 40, 0, 0, 0, 90, 1, kind, 0, 0, 0, 1]).collect();
    for settings in 0..8 {
        let every = (0..calls::KINDS).flat_map(|kind| [0, 60, 0, 0, kind, 0, 0, 0, 0]);
        seeds.push([settings].into_iter().chain(every).collect());
    }
    seeds
}
