//! What words mean, in settings and in files of personalities: families, sizes, the calls of a vendor.

use backend_openreg::Families;

/// A vendor: which part of a file is its own, and which of its entry points a rule may name.
#[derive(Debug)]
pub struct Vendor {
    /// `cuda` or `hip`.
    pub name: &'static str,
    /// All entry points.
    pub calls: fn() -> Vec<&'static str>,
    /// Those whose rules may be about sizes.
    pub sized: &'static [&'static str],
    /// Those whose rules may be about how physical memory was made.
    pub about_memory: &'static [&'static str],
}

pub(crate) fn family(name: &str) -> Option<Families> {
    Some(match name {
        "vmm" => Families::VIRTUAL_MEMORY,
        "ipc" => Families::IPC,
        "peers" => Families::PEERS,
        "capture" => Families::CAPTURE,
        "registration" => Families::HOST_REGISTRATION,
        "timing" => Families::EVENT_TIMING,
        _ => return None,
    })
}

pub(crate) fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << unit)
}

/// A size: bytes with a unit, or a share of the device's memory (`75%`).
pub(crate) fn amount(text: &str, total: u64) -> Option<u64> {
    match text.strip_suffix('%') {
        Some(share) => Some(total / 100 * share.parse::<u64>().ok()?),
        None => bytes(text),
    }
}

pub(crate) fn no_call(call: &str, vendor: &Vendor) -> String {
    let stem = call.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let near = |known: &&str| known.contains(stem) || stem.len() > 6 && known.contains(&stem[..6]);
    let near: Vec<&str> = (vendor.calls)().into_iter().filter(near).take(8).collect();
    format!("the simulated {} driver has no call `{call}`; near: {}", vendor.name, near.join(", "))
}

#[cfg(test)]
mod tests {
    use super::amount;

    #[test]
    fn sizes_are_bytes_or_a_share() {
        assert_eq!((amount("25%", 400), amount("2KiB", 400)), (Some(100), Some(2048)));
        assert_eq!((amount("much%", 400), amount("x", 400)), (None, None));
    }
}
