//! Heights that no placement can be below.

use crate::problem::Problem;

/// The most bytes that are held at once, over every stream's own buffers and, where time is no circle, over all
/// buffers that the host still held. Each of those sets conflicts pairwise, so each is a lower bound.
#[must_use]
pub fn max_load(problem: &Problem) -> u64 {
    let buffers = problem.buffers();
    let mut moments = Vec::with_capacity(2 * buffers.len());
    (0..problem.streams())
        .map(|stream| {
            moments.clear();
            let mut load = 0u64;
            for (buffer, shape) in buffers.iter().enumerate().filter(|&(b, _)| problem.stream(b) == stream) {
                let end = problem.end(buffer, stream);
                let end = match problem.period() {
                    Some(period) if end > period => {
                        load += shape.size;
                        end - period
                    }
                    _ => end,
                };
                // Ends sort before starts at the same moment.
                moments.push((end, false, shape.size));
                moments.push((shape.lower, true, shape.size));
            }
            peak(&mut moments, load)
        })
        .max()
        .unwrap_or(0)
        .max(host_load(problem))
}

/// The most bytes whose requests no stream at all had been ordered behind: these conflict whatever their streams.
fn host_load(problem: &Problem) -> u64 {
    if problem.streams() == 1 || problem.period().is_some() {
        return 0;
    }
    let mut moments = Vec::with_capacity(2 * problem.buffers().len());
    for (buffer, shape) in problem.buffers().iter().enumerate() {
        let end =
            (0..problem.streams()).map(|stream| problem.end(buffer, stream)).min().unwrap_or(shape.upper);
        moments.push((end, false, shape.size));
        moments.push((shape.lower, true, shape.size));
    }
    peak(&mut moments, 0)
}

fn peak(moments: &mut [(u64, bool, u64)], start: u64) -> u64 {
    moments.sort_unstable_by_key(|&(at, starts, _)| (at, starts));
    let mut load = start;
    let mut most = start;
    for &(_, starts, size) in &*moments {
        if starts {
            load += size;
            most = most.max(load);
        } else {
            load -= size;
        }
    }
    most
}

/// The greatest common divisor of all sizes: every offset that is worth trying is a multiple of it.
pub(crate) fn common_divisor(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, |mut a, mut b| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    })
}
