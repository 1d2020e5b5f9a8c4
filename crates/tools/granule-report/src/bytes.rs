//! Columns of numbers as bytes: seven bits a byte, lowest first, the eighth set where more follow.

/// Bytes of a section.
#[derive(Debug, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl Bytes {
    /// A number.
    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number that may be negative, as the distance between two: small ones of either sign are short.
    pub(crate) fn step(&mut self, from: u64, to: u64) {
        // Wraps where the distance is beyond 63 bits, which only damaged files have.
        let by = to.wrapping_sub(from) as i64;
        self.number((by.wrapping_shl(1) ^ (by >> 63)) as u64);
    }

    /// Numbers as they are.
    pub(crate) fn column(&mut self, values: impl Iterator<Item = u64>) {
        for value in values {
            self.number(value);
        }
    }

    /// Numbers, each as the step from the one before; the first is from 0.
    pub(crate) fn steps(&mut self, values: impl Iterator<Item = u64>) {
        let mut last = 0;
        for value in values {
            self.step(last, value);
            last = value;
        }
    }

    /// A text, cut where it is absurdly long.
    pub(crate) fn text(&mut self, text: &str) {
        const MOST: usize = 4096;
        let mut end = text.len().min(MOST);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.number(end as u64);
        self.0.extend_from_slice(&text.as_bytes()[..end]);
    }
}

/// Reads what [`Bytes`] wrote, as the viewer does; damaged bytes read as zeros.
#[cfg(test)]
pub(crate) mod read {
    #[derive(Debug)]
    pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

    impl Reader<'_> {
        pub(crate) fn number(&mut self) -> u64 {
            let (mut value, mut shift) = (0u64, 0);
            while let Some((byte, rest)) = self.0.split_first() {
                self.0 = rest;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            value
        }

        pub(crate) fn step(&mut self, from: u64) -> u64 {
            let coded = self.number();
            from.wrapping_add((coded >> 1) ^ (coded & 1).wrapping_neg())
        }

        pub(crate) fn column(&mut self, count: usize) -> Vec<u64> {
            (0..count).map(|_| self.number()).collect()
        }

        pub(crate) fn steps(&mut self, count: usize) -> Vec<u64> {
            let mut last = 0;
            let next = |_| {
                last = self.step(last);
                last
            };
            (0..count).map(next).collect()
        }

        pub(crate) fn text(&mut self) -> String {
            let length = self.number() as usize;
            let (text, rest) = self.0.split_at(length);
            self.0 = rest;
            String::from_utf8(text.to_vec()).unwrap()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;
    use super::read::Reader;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            values in prop::collection::vec(any::<u64>(), 0..50),
            text in ".{0,40}",
        ) {
            let mut bytes = Bytes::default();
            bytes.column(values.iter().copied());
            bytes.steps(values.iter().copied());
            bytes.text(&text);
            let mut reader = Reader(&bytes.0);
            prop_assert_eq!(reader.column(values.len()), values.clone());
            prop_assert_eq!(reader.steps(values.len()), values);
            prop_assert_eq!(reader.text(), text);
            prop_assert!(reader.0.is_empty());
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut bytes = Bytes::default();
        bytes.text(&"ü".repeat(3000).replacen('ü', "u", 1));
        let text = Reader(&bytes.0).text();
        assert_eq!(text.len(), 4095);
        assert!(text.ends_with('ü'));
    }
}
