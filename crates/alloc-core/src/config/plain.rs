//! Plain numbers: nothing is tolerated where they are read, and no digit too many is written.

/// Digits only.
pub(super) fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A plain decimal number; no names, no sign, nothing after it.
pub(super) fn ratio(text: &str) -> Option<f64> {
    let starts_well = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let value: f64 = text.parse().ok().filter(|_| starts_well)?;
    value.is_finite().then_some(value)
}

/// The shortest digits that give the same number back.
pub(super) fn shortest(number: f64) -> String {
    let (plain, scientific) = (number.to_string(), format!("{number:e}"));
    if scientific.len() < plain.len() { scientific } else { plain }
}
