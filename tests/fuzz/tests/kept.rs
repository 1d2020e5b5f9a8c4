//! Every input that was kept, each target's seeds, and a few changes of them that are the same each time.

use granule_fuzz::{TARGETS, Target, archive};
use std::time::{Duration, Instant};

/// Changed inputs of each target.
const CHANGES: usize = 60;
/// Bytes of an input; as `cargo xtask fuzz` bounds it.
const LONGEST: usize = 4096;
/// What a target may take here; what is left of it then is left out, and said.
const MOST: Duration = Duration::from_secs(5);

#[test]
fn kept_inputs_are_survived() {
    for target in TARGETS {
        let began = Instant::now();
        let kept = archive::kept(target.name).unwrap_or_else(|error| panic!("{}: {error}", target.name));
        let seeds = (target.seeds)();
        assert!(!kept.is_empty() && !seeds.is_empty(), "{} has no inputs", target.name);
        let inputs: Vec<&[u8]> = kept.iter().chain(&seeds).map(Vec::as_slice).collect();
        inputs.iter().for_each(|input| (target.run)(input));
        let changed = changes(target, &inputs, began);
        println!("{}: {} inputs, {changed} changes, {:?}", target.name, inputs.len(), began.elapsed());
    }
}

/// Runs changed inputs; says how many.
fn changes(target: &Target, inputs: &[&[u8]], began: Instant) -> usize {
    let mut dice = fastrand::Rng::with_seed(7);
    for change in 0..CHANGES {
        if began.elapsed() > MOST {
            return change;
        }
        let mut input = inputs[dice.usize(..inputs.len())].to_vec();
        for _ in 0..dice.usize(1..4) {
            let at = dice.usize(..=input.len());
            match dice.u8(..4) {
                0 => input.insert(at, dice.u8(..)),
                1 => input.truncate(at),
                2 => input.extend(inputs[dice.usize(..inputs.len())]),
                _ => input.iter_mut().skip(at).take(1).for_each(|byte| *byte = dice.u8(..)),
            }
        }
        input.truncate(LONGEST);
        (target.run)(&input);
    }
    CHANGES
}

#[test]
fn an_archive_is_read_as_it_is_written() {
    let inputs = vec![b"longer".to_vec(), Vec::new(), b"x".to_vec(), b"x".to_vec()];
    let packed = archive::pack(inputs);
    assert_eq!(archive::unpack(&packed), Some(vec![&b""[..], b"x", b"longer"]));
    for cut in [1, 3, 5, packed.len() - 1] {
        assert_eq!(archive::unpack(&packed[..cut]), None, "cut at {cut}");
    }
}
