//! The stack machine: carries out a pickle's operations on a [`Heap`].

use super::Limits;
use super::convert::Conversion;
use super::entry::Quick;
use super::error::PickleError;
use super::heap::{Heap, Node, Val};
use super::input::Input;
use super::memo::Memo;
use super::opcode::{self, Foreign};
use super::shape::Shape;
use std::io::Read;

/// Memory that is always allowed, whatever the input's length.
const ALWAYS_ALLOWED: u64 = 64 << 20;

/// First pickle of a file of `torch.save` before its zip format: a number. Two more come before what was saved: a version, and
/// sizes of the machine's types.
const LEGACY_SAVE: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

struct Machine<R> {
    limits: Limits,
    input: Input<R>,
    heap: Heap,
    stack: Vec<Val>,
    /// Heights of the stack at each mark.
    marks: Vec<usize>,
    memo: Memo,
    shape: Option<Shape>,
    /// Whether history entries may be read the quick way; tests compare both ways.
    quick: bool,
}

/// Runs a pickle to its end; gives what it built, to be converted, and the value it ends with.
pub(super) fn run<R: Read>(
    reader: R,
    limits: &Limits,
    quick: bool,
) -> Result<(Conversion, Val), PickleError> {
    let mut machine = Machine {
        limits: *limits,
        input: Input::new(reader, limits.max_bytes),
        heap: Heap::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::default(),
        shape: None,
        quick,
    };
    machine.input.fill()?;
    let mut headers = 0;
    if machine.input.at_hand().starts_with(LEGACY_SAVE) {
        machine.input.skip(LEGACY_SAVE.len());
        headers = 2;
    }
    loop {
        if machine.input.is_low(32) {
            machine.input.fill()?;
            machine.check_memory()?;
        }
        let opcode = machine.input.opcode()?;
        if opcode == opcode::STOP && headers > 0 {
            headers -= 1;
            machine.stack.clear();
            machine.memo = Memo::default();
            continue;
        }
        if opcode == opcode::STOP {
            let root = machine.pop()?;
            let length = machine.input.offset();
            return Ok((Conversion::new(machine.heap, machine.limits, length), root));
        }
        machine.step(opcode)?;
    }
}

impl<R: Read> Machine<R> {
    fn check_memory(&self) -> Result<(), PickleError> {
        let slots = self.stack.capacity() + self.marks.capacity();
        let used = (self.heap.footprint() + self.memo.footprint() + slots * size_of::<Val>()) as u64;
        let limits = &self.limits;
        let offset = self.input.offset();
        let allowed = ALWAYS_ALLOWED
            .saturating_add(offset.saturating_mul(limits.memory_per_byte))
            .min(limits.max_memory);
        if used <= allowed {
            return Ok(());
        }
        let what = format!("its {offset} bytes so far need more than {allowed} bytes of memory");
        Err(PickleError::Limit { offset, what })
    }

    #[inline]
    fn step(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match opcode {
            opcode::BINGET => return self.input.byte().and_then(|index| self.get(index.into())),
            opcode::LONG_BINGET => return self.input.word().and_then(|index| self.get(index.into())),
            opcode::MEMOIZE => return self.put(self.memo.stored() as u64),
            opcode::BINPUT => return self.input.byte().and_then(|index| self.put(index.into())),
            opcode::LONG_BINPUT => return self.input.word().and_then(|index| self.put(index.into())),
            opcode::BININT1 => Val::Int(self.input.byte()?.into()),
            opcode::BININT2 => Val::Int(u16::from_le_bytes(self.input.array()?).into()),
            opcode::BININT => Val::Int(i32::from_le_bytes(self.input.array()?).into()),
            opcode::LONG1 => self.input.byte().and_then(|length| self.long(length.into()))?,
            opcode::LONG4 => self.input.word().and_then(|length| self.long(length.into()))?,
            opcode::SHORT_BINUNICODE => self.input.byte().and_then(|length| self.text(length.into()))?,
            opcode::BINUNICODE => self.input.word().and_then(|length| self.text(length.into()))?,
            opcode::BINUNICODE8 => {
                self.input.array().and_then(|length| self.text(u64::from_le_bytes(length)))?
            }
            opcode::MARK => {
                self.marks.push(self.stack.len());
                return Ok(());
            }
            opcode::EMPTY_DICT => match self.quick_entries() {
                Some(entry) => entry,
                None => self.heap.add(Node::Dict(Vec::new())),
            },
            opcode::EMPTY_LIST => self.heap.add(Node::List(Vec::new())),
            opcode::EMPTY_TUPLE => self.heap.tuple(&[]),
            opcode::SETITEMS => return self.pop_mark().and_then(|mark| self.set_items(mark)),
            opcode::SETITEM => return self.set_items(self.below(2)?),
            opcode::APPENDS => return self.pop_mark().and_then(|mark| self.append(mark)),
            opcode::APPEND => return self.append(self.below(1)?),
            opcode::TUPLE1 => self.tuple(self.below(1)?),
            opcode::TUPLE2 => self.tuple(self.below(2)?),
            opcode::TUPLE3 => self.tuple(self.below(3)?),
            opcode::NONE => Val::None,
            opcode::NEWTRUE => Val::Bool(true),
            opcode::NEWFALSE => Val::Bool(false),
            opcode::BINFLOAT => Val::Float(f64::from_be_bytes(self.input.array()?)),
            _ => return self.rare(opcode),
        };
        self.stack.push(value);
        Ok(())
    }

    /// The operations of old protocols, and those that come once.
    #[cold]
    fn rare(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match opcode {
            opcode::PROTO => {
                let version = self.input.byte()?;
                if version > 5 {
                    return Err(self.input.malformed(format!("protocol {version} is not one of 0 to 5")));
                }
                return Ok(());
            }
            opcode::FRAME => {
                // Frames only help readers that fetch bytes one by one.
                self.input.array::<8>()?;
                return Ok(());
            }
            opcode::TUPLE => {
                let mark = self.pop_mark()?;
                self.tuple(mark)
            }
            opcode::LIST => {
                let mark = self.pop_mark()?;
                let items = self.stack.split_off(mark);
                self.heap.add(Node::List(items))
            }
            opcode::DICT => {
                let mark = self.pop_mark()?;
                let dict = self.heap.add(Node::Dict(Vec::new()));
                let result = self.heap.set_items(dict, &self.stack[mark..]);
                result.map_err(|what| self.input.malformed(what))?;
                self.stack.truncate(mark);
                dict
            }
            opcode::POP => {
                // A pop at a mark takes the mark.
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop()?;
                }
                return Ok(());
            }
            opcode::POP_MARK => {
                let mark = self.pop_mark()?;
                self.stack.truncate(mark);
                return Ok(());
            }
            opcode::DUP => self.stack[self.below(1)?],
            _ => return self.in_text(opcode),
        };
        self.stack.push(value);
        Ok(())
    }

    /// The operations of protocol 0, whose data are lines of text.
    fn in_text(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match opcode {
            opcode::GET => return self.memo_index().and_then(|index| self.get(index)),
            opcode::PUT => return self.memo_index().and_then(|index| self.put(index)),
            opcode::INT | opcode::LONG => self.decimal()?,
            opcode::FLOAT => {
                let number = self.input.line(|line| std::str::from_utf8(line).ok()?.trim().parse().ok())?;
                Val::Float(number.ok_or_else(|| self.input.malformed("its data is no number"))?)
            }
            opcode::UNICODE => {
                let text = self.input.line(raw_unicode_escape)?;
                let text = text.ok_or_else(|| self.input.malformed("its text has a bad escape"))?;
                Val::Text(self.heap.text(&text))
            }
            _ => return Err(self.refuse(opcode)),
        };
        self.stack.push(value);
        Ok(())
    }

    /// The history entries that begin here, as long as they are usual ones whose bytes are all at hand. The
    /// last is left to the caller, the others are pushed.
    #[inline]
    fn quick_entries(&mut self) -> Option<Val> {
        let mut last = self.heap.next_entry();
        self.quick_entry(0)?;
        while self.input.at_hand().first() == Some(&opcode::EMPTY_DICT) {
            let next = self.heap.next_entry();
            if self.quick_entry(1).is_none() {
                break;
            }
            self.stack.push(last);
            last = next;
        }
        Some(last)
    }

    /// An entry whose EMPTY_DICT was taken (`begin` 0) or is the first byte at hand (`begin` 1).
    #[inline]
    fn quick_entry(&mut self, begin: usize) -> Option<()> {
        // Stores take a byte each, so indexes that are sound here stay so.
        if !self.quick || !Memo::is_sound(self.memo.next(), self.input.offset() + begin as u64 - 1) {
            return None;
        }
        let quick = Quick {
            rest: self.input.at_hand().get(begin..)?,
            heap: &mut self.heap,
            memo: &mut self.memo,
            shape: &mut self.shape,
        };
        let length = quick.entry()?;
        self.input.skip(begin + length);
        Some(())
    }

    fn refuse(&self, opcode: u8) -> PickleError {
        let at = self.input.at;
        match opcode::foreign(opcode) {
            Some(Foreign::CanCall) => PickleError::Refused { at },
            Some(Foreign::Makes(what)) => PickleError::Unsupported { at, what },
            None if at.offset == 0 => PickleError::NotAPickle { at },
            None => PickleError::Unsupported { at, what: "no operation of pickle protocols 0 to 5" },
        }
    }

    /// The stack's height with `count` items taken, none of them below the last mark.
    fn below(&self, count: usize) -> Result<usize, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(count) {
            Some(height) if height >= floor => Ok(height),
            _ => Err(self.input.malformed("it takes more values than there are")),
        }
    }

    fn pop(&mut self) -> Result<Val, PickleError> {
        let height = self.below(1)?;
        let value = self.stack[height];
        self.stack.truncate(height);
        Ok(value)
    }

    fn pop_mark(&mut self) -> Result<usize, PickleError> {
        self.marks.pop().ok_or_else(|| self.input.malformed("there is no mark for it"))
    }

    /// The container just below `start`, which gets what lies from there on.
    fn container(&self, start: usize) -> Result<Val, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match start.checked_sub(1) {
            Some(index) if index >= floor => Ok(self.stack[index]),
            _ => Err(self.input.malformed("there is no container for it")),
        }
    }

    fn set_items(&mut self, start: usize) -> Result<(), PickleError> {
        let dict = self.container(start)?;
        let result = self.heap.set_items(dict, &self.stack[start..]);
        result.map_err(|what| self.input.malformed(what))?;
        self.stack.truncate(start);
        Ok(())
    }

    fn append(&mut self, start: usize) -> Result<(), PickleError> {
        let list = self.container(start)?;
        let result = self.heap.append(list, &self.stack[start..]);
        result.map_err(|what| self.input.malformed(what))?;
        self.stack.truncate(start);
        Ok(())
    }

    fn tuple(&mut self, start: usize) -> Val {
        let tuple = self.heap.tuple(&self.stack[start..]);
        self.stack.truncate(start);
        tuple
    }

    #[inline]
    fn get(&mut self, index: u64) -> Result<(), PickleError> {
        match self.memo.get(index) {
            Some(value) => {
                self.stack.push(value);
                Ok(())
            }
            None => Err(self.input.malformed(format!("nothing was stored under memo index {index}"))),
        }
    }

    #[inline]
    fn put(&mut self, index: u64) -> Result<(), PickleError> {
        if !Memo::is_sound(index, self.input.at.offset) {
            let what = format!("memo index {index} is out of all proportion");
            return Err(self.input.malformed(what));
        }
        self.memo.put(index, self.stack[self.below(1)?]);
        Ok(())
    }

    fn memo_index(&mut self) -> Result<u64, PickleError> {
        let index = self.input.line(|line| std::str::from_utf8(line).ok()?.trim().parse().ok())?;
        index.ok_or_else(|| self.input.malformed("its memo index is no number"))
    }

    #[inline]
    fn text(&mut self, length: u64) -> Result<Val, PickleError> {
        let heap = &mut self.heap;
        Ok(Val::Text(self.input.bytes(length, |bytes| heap.text_from(bytes))?))
    }

    /// A whole number in two's complement, lowest byte first.
    #[inline]
    fn long(&mut self, length: u64) -> Result<Val, PickleError> {
        let number = self.input.bytes(length, |bytes| {
            let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
            let fill = if negative { 0xff } else { 0 };
            let mut wide = [fill; 8];
            let low = bytes.len().min(8);
            wide[..low].copy_from_slice(&bytes[..low]);
            let high_is_sign = bytes[low..].iter().all(|&byte| byte == fill);
            match (i64::from_le_bytes(wide), negative) {
                _ if !high_is_sign => None,
                (value, _) if (value < 0) == negative => Some(Val::Int(value)),
                (value, false) => Some(Val::Unsigned(value.cast_unsigned())),
                _ => None,
            }
        })?;
        number.ok_or_else(|| self.input.malformed("the number does not fit 64 bits"))
    }

    /// A whole number in digits; `00` and `01` were how protocol 1 wrote booleans.
    fn decimal(&mut self) -> Result<Val, PickleError> {
        let is_int = self.input.at.opcode == opcode::INT;
        let number = self.input.line(|line| {
            let text = std::str::from_utf8(line).ok()?.trim();
            if is_int && matches!(text, "00" | "01") {
                return Some(Val::Bool(text == "01"));
            }
            let digits = text.strip_suffix('L').unwrap_or(text);
            digits.parse().map(Val::Int).or_else(|_| digits.parse().map(Val::Unsigned)).ok()
        })?;
        number.ok_or_else(|| self.input.malformed("its data is no number of 64 bits"))
    }
}

/// Text of protocol 0: Latin-1 with `\uXXXX` and `\UXXXXXXXX` for the rest.
fn raw_unicode_escape(line: &[u8]) -> Option<String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let [byte, tail @ ..] = rest {
        let digits = match rest {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => {
                text.push(char::from(*byte));
                rest = tail;
                continue;
            }
        };
        let hex = std::str::from_utf8(rest.get(2..2 + digits)?).ok()?;
        let code = u32::from_str_radix(hex, 16).ok()?;
        // A lone surrogate is an undecodable byte of a file name.
        text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = &rest[2 + digits..];
    }
    Some(text)
}
