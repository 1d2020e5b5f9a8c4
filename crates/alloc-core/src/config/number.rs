//! Numbers as the C library reads them: the longest front part that is one.

/// Reason that a token is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotANumber {
    /// No digits at the front.
    Invalid,
    /// Too large, or (fractions) too close to zero.
    OutOfRange,
}

/// A number, and the bytes of the token that it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NumberRead<T> {
    pub(super) value: T,
    pub(super) length: usize,
}

/// A whole number as `strtoull` reads it: a sign is allowed and negative values wrap.
pub(super) fn whole(token: &str) -> Result<NumberRead<u64>, NotANumber> {
    let (negative, sign) = sign(token);
    let digits = digits(&token[sign..]);
    if digits == 0 {
        return Err(NotANumber::Invalid);
    }
    let length = sign + digits;
    let magnitude: u64 = token[sign..length].parse().map_err(|_| NotANumber::OutOfRange)?;
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    Ok(NumberRead { value, length })
}

/// A fraction as `strtod` reads it: decimal or hexadecimal, `inf` and `nan` in any case.
pub(super) fn fraction(token: &str) -> Result<NumberRead<f64>, NotANumber> {
    let (negative, sign) = sign(token);
    let rest = &token[sign..];
    let NumberRead { value, length } =
        hexadecimal(rest).or_else(|| named(rest).map(Ok)).unwrap_or_else(|| decimal(rest))?;
    Ok(NumberRead { value: if negative { -value } else { value }, length: sign + length })
}

fn sign(token: &str) -> (bool, usize) {
    match token.bytes().next() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Length of an exponent at the front, 0 if there is none or it has no digits.
fn exponent(text: &str, mark: u8) -> usize {
    if !text.bytes().next().is_some_and(|b| b.eq_ignore_ascii_case(&mark)) {
        return 0;
    }
    let (_, sign) = sign(&text[1..]);
    match digits(&text[1 + sign..]) {
        0 => 0,
        n => 1 + sign + n,
    }
}

fn decimal(text: &str) -> Result<NumberRead<f64>, NotANumber> {
    let whole = digits(text);
    let mut length = whole;
    let mut some = whole > 0;
    if text.as_bytes().get(whole) == Some(&b'.') {
        let after = digits(&text[whole + 1..]);
        some |= after > 0;
        length += 1 + after;
    }
    if !some {
        return Err(NotANumber::Invalid);
    }
    let zero = text[..length].bytes().all(|b| b == b'0' || b == b'.');
    length += exponent(&text[length..], b'e');
    let value: f64 = text[..length].parse().map_err(|_| NotANumber::Invalid)?;
    // Decimal numbers below the normal range are never exact, which C reports as a range error.
    if value.is_infinite() || (!zero && !value.is_normal()) {
        return Err(NotANumber::OutOfRange);
    }
    Ok(NumberRead { value, length })
}

fn named(text: &str) -> Option<NumberRead<f64>> {
    let starts = |name: &str| text.get(..name.len()).is_some_and(|front| front.eq_ignore_ascii_case(name));
    if starts("infinity") {
        return Some(NumberRead { value: f64::INFINITY, length: 8 });
    }
    if starts("inf") {
        return Some(NumberRead { value: f64::INFINITY, length: 3 });
    }
    if !starts("nan") {
        return None;
    }
    let tail = &text[3..];
    let note = tail.strip_prefix('(').and_then(|inner| {
        let name = inner.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        (inner.as_bytes().get(name) == Some(&b')')).then_some(name + 2)
    });
    Some(NumberRead { value: f64::NAN, length: 3 + note.unwrap_or(0) })
}

/// `None` where the text is not hexadecimal (a bare `0x` is the number 0 followed by garbage).
fn hexadecimal(text: &str) -> Option<Result<NumberRead<f64>, NotANumber>> {
    let body = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let (mut mantissa, mut scale, mut sticky) = (0u64, 0i64, false);
    let (mut length, mut seen_digit, mut seen_point) = (0, false, false);
    for byte in body.bytes() {
        match (char::from(byte).to_digit(16), byte) {
            (Some(digit), _) => {
                seen_digit = true;
                // 60 bits hold every digit that matters; what follows only decides how a tie rounds.
                if mantissa >> 60 == 0 {
                    mantissa = mantissa << 4 | u64::from(digit);
                    scale -= if seen_point { 4 } else { 0 };
                } else {
                    sticky |= digit != 0;
                    scale += if seen_point { 0 } else { 4 };
                }
            }
            (None, b'.') if !seen_point => seen_point = true,
            _ => break,
        }
        length += 1;
    }
    if !seen_digit {
        return None;
    }
    let power = exponent(&body[length..], b'p');
    if power > 0 {
        let text = &body[length + 1..length + power];
        let far = if text.starts_with('-') { i64::MIN / 4 } else { i64::MAX / 4 };
        scale = scale.saturating_add(text.parse().unwrap_or(far).clamp(i64::MIN / 4, i64::MAX / 4));
    }
    let length = 2 + length + power;
    Some(assemble(mantissa, scale, sticky).map(|value| NumberRead { value, length }))
}

/// `mantissa * 2^scale`, rounded once to the nearest.
fn assemble(mantissa: u64, scale: i64, sticky: bool) -> Result<f64, NotANumber> {
    if mantissa == 0 {
        return Ok(0.0);
    }
    let top = scale.saturating_add(i64::from(63 - mantissa.leading_zeros()));
    if top > 1023 {
        return Err(NotANumber::OutOfRange);
    }
    // The last bit that a result of this size can hold.
    let last = (top - 52).max(-1074);
    let drop = last.saturating_sub(scale);
    if drop <= 0 {
        return Ok(scaled(mantissa, scale));
    }
    if drop > 63 {
        return Err(NotANumber::OutOfRange);
    }
    let rest = mantissa & ((1 << drop) - 1);
    let half = 1 << (drop - 1);
    let floor = mantissa >> drop;
    let up = rest > half || (rest == half && (sticky || floor & 1 == 1));
    let (kept, exact) = (floor + u64::from(up), rest == 0 && !sticky);
    let value = scaled(kept, last);
    if value.is_infinite() || (!value.is_normal() && !exact) {
        return Err(NotANumber::OutOfRange);
    }
    Ok(value)
}

/// `mantissa * 2^scale` where that is exact. In two steps, because the power alone may be out of range.
#[allow(clippy::cast_precision_loss)]
fn scaled(mantissa: u64, scale: i64) -> f64 {
    let half = i32::try_from(scale / 2).unwrap_or(0);
    let rest = i32::try_from(scale - scale / 2).unwrap_or(0);
    mantissa as f64 * 2f64.powi(half) * 2f64.powi(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_from_the_front() {
        assert_eq!(whole("100.7"), Ok(NumberRead { value: 100, length: 3 }));
        assert_eq!(whole("-1"), Ok(NumberRead { value: u64::MAX, length: 2 }));
        assert_eq!(whole("+64"), Ok(NumberRead { value: 64, length: 3 }));
        assert_eq!(whole("--1"), Err(NotANumber::Invalid));
        assert_eq!(whole("18446744073709551616"), Err(NotANumber::OutOfRange));
    }

    #[test]
    fn fractions_are_read_from_the_front() {
        for (text, value, length) in [
            ("0.5x", 0.5, 3),
            (".5", 0.5, 2),
            ("5.", 5.0, 2),
            ("1e", 1.0, 1),
            ("1e+", 1.0, 1),
            ("-1e1", -10.0, 4),
            ("0x1p-1", 0.5, 6),
            ("0x.8", 0.5, 4),
            ("0x", 0.0, 1),
            ("0x1.8p-1z", 0.75, 8),
            ("0x1p-1074", 5e-324, 9),
            ("0x1.fffffffffffff8p0", 2.0, 20),
            ("0x1.fffffffffffff7p0", 1.999_999_999_999_999_8, 20),
            ("0x10000000000000000p-64", 1.0, 23),
            ("0e999999999999999999", 0.0, 20),
        ] {
            assert_eq!(fraction(text), Ok(NumberRead { value, length }), "{text}");
        }
        for text in ["1e400", "1e-400", "1e-310", "0x1p-1075", "0x1p1024", "0x1p99999999999999999999"] {
            assert_eq!(fraction(text).map(|_| ()), Err(NotANumber::OutOfRange), "{text}");
        }
        for text in ["", ".", "+", "abc", "e5"] {
            assert_eq!(fraction(text).map(|_| ()), Err(NotANumber::Invalid), "{text}");
        }
        assert_eq!(fraction("nan(a_1)b").map(|r| r.length), Ok(8));
        assert_eq!(fraction("-inFinityx").map(|r| (r.value, r.length)), Ok((f64::NEG_INFINITY, 9)));
    }
}
