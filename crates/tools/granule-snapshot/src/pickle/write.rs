//! Writing a snapshot as a pickle.

use crate::schema::{self, Sink, Word};
use alloc_core::snapshot::{Frame, Labels, Snapshot, Stack, Value};
use alloc_core::types::PoolId;
use rustc_hash::FxHashMap;
use std::io::{self, Write};

/// The pickle protocol to write. Python since 2.3 and the web viewer read both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Protocol 2, which PyTorch's C++ writer uses.
    V2,
    /// Protocol 4, Python's usual one: shorter, and framed for quicker reading.
    #[default]
    V4,
}

/// Items between a mark and its APPENDS or SETITEMS. Python's own batch; readers that spread a batch over
/// call arguments, as the web viewer does, fail on much longer ones.
const BATCH: u32 = 1000;

/// Bytes of a frame, which is also what is collected before it goes to the output.
const FRAME: usize = 1 << 16;

/// Writes a snapshot. Call stacks that are shared in memory are shared in the file, and so are equal texts,
/// pools and frames. Uses only the operations that the web viewer knows.
///
/// # Errors
/// What `output` reports; also a text of 4 GiB or more, which no protocol the viewer reads can hold.
pub fn write(snapshot: &Snapshot, output: impl Write, protocol: Protocol) -> io::Result<()> {
    let mut writer = PickleSink {
        output,
        protocol,
        buffer: Vec::with_capacity(FRAME + 4096),
        count: 0,
        outer: Vec::new(),
        word_written: [false; Word::ALL.len()],
        texts: Word::ALL.iter().map(|&word| (word.text(), word as u32)).collect(),
        recent: [None; 2],
        stacks: FxHashMap::default(),
        frames: FxHashMap::default(),
        pools: FxHashMap::default(),
        recent_pool: None,
        recent_labels: None,
        label_bytes: Vec::new(),
        label_count: 0,
        memo: Word::ALL.len() as u32,
        text_too_long: false,
    };
    writer.output.write_all(&[0x80, if protocol == Protocol::V2 { 2 } else { 4 }])?;
    schema::snapshot(&mut writer, snapshot)?;
    writer.buffer.push(b'.');
    writer.flush()?;
    writer.output.flush()
}

struct PickleSink<'a, W> {
    output: W,
    protocol: Protocol,
    buffer: Vec<u8>,
    /// Items written since the mark, for the innermost open list or dictionary.
    count: u32,
    /// The same for those around it.
    outer: Vec<u32>,
    /// Whether a word was written and stored; its memo index is its number, so that the words of every
    /// entry are referred to in two bytes wherever they first appear.
    word_written: [bool; Word::ALL.len()],
    /// Memo index by text, the words' included.
    texts: FxHashMap<&'a str, u32>,
    /// The last two texts: history entries mostly repeat the same context and metadata.
    recent: [Option<(&'a str, u32)>; 2],
    /// Memo index by address of a stack; the snapshot is borrowed, so addresses stay.
    stacks: FxHashMap<*const Frame, u32>,
    frames: FxHashMap<(&'a str, &'a str, u64), u32>,
    pools: FxHashMap<PoolId, u32>,
    recent_pool: Option<(PoolId, u32)>,
    /// The last labels by address, how they are written again, and how many keys that sets.
    recent_labels: Option<*const Labels>,
    label_bytes: Vec<u8>,
    label_count: u32,
    /// The next free memo index.
    memo: u32,
    text_too_long: bool,
}

impl<'a, W: Write> PickleSink<'a, W> {
    /// Sends the buffer out, as one frame in protocol 4.
    fn flush(&mut self) -> io::Result<()> {
        if self.text_too_long {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a text of 4 GiB or more cannot be written to a snapshot; shorten the metadata or frame names",
            ));
        }
        if self.protocol == Protocol::V4 && !self.buffer.is_empty() {
            let mut frame = [0x95; 9];
            frame[1..].copy_from_slice(&(self.buffer.len() as u64).to_le_bytes());
            self.output.write_all(&frame)?;
        }
        self.output.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn get(&mut self, index: u32) {
        if let Ok(short) = u8::try_from(index) {
            self.buffer.extend_from_slice(&[b'h', short]);
        } else {
            self.buffer.push(b'j');
            self.buffer.extend_from_slice(&index.to_le_bytes());
        }
    }

    fn put(&mut self, index: u32) {
        if let Ok(short) = u8::try_from(index) {
            self.buffer.extend_from_slice(&[b'q', short]);
        } else {
            self.buffer.push(b'r');
            self.buffer.extend_from_slice(&index.to_le_bytes());
        }
    }

    /// Stores the top of the reader's stack under a new index.
    fn put_new(&mut self) -> u32 {
        let index = self.memo;
        self.memo += 1;
        self.put(index);
        index
    }

    fn new_text(&mut self, text: &str) {
        let Ok(length) = u32::try_from(text.len()) else {
            self.text_too_long = true;
            return;
        };
        match u8::try_from(length) {
            Ok(short) if self.protocol == Protocol::V4 => self.buffer.extend_from_slice(&[0x8c, short]),
            _ => {
                self.buffer.push(b'X');
                self.buffer.extend_from_slice(&length.to_le_bytes());
            }
        }
        self.buffer.extend_from_slice(text.as_bytes());
    }

    /// Counts an item of the open container and sets marks; `end` closes a full batch.
    fn count(&mut self, end: u8) {
        if self.count == BATCH {
            self.count = 0;
            self.buffer.push(end);
        }
        if self.count == 0 {
            self.buffer.push(b'(');
        }
        self.count += 1;
    }

    fn begin(&mut self, begin: u8) {
        self.buffer.push(begin);
        self.outer.push(self.count);
        self.count = 0;
    }

    fn end(&mut self, end: u8) {
        if self.count > 0 {
            self.buffer.push(end);
        }
        self.count = self.outer.pop().unwrap_or(0);
    }

    /// A LONG1 of as many of the lowest bytes as are needed. Copying all is quicker than the right number.
    fn long(&mut self, bytes: [u8; 8], length: usize) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0x8a, length as u8]);
        self.buffer.extend_from_slice(&bytes);
        // The ninth byte of a number is its sign alone, and only whole numbers from 2^63 on have one.
        self.buffer.push(0);
        self.buffer.truncate(start + 2 + length);
    }
}

impl<'a, W: Write> Sink<'a> for PickleSink<'a, W> {
    fn begin_dict(&mut self) {
        self.begin(b'}');
    }

    fn key(&mut self, key: Word) {
        self.count(b'u');
        self.word(key);
    }

    fn text_key(&mut self, key: &'a str) {
        self.count(b'u');
        self.text(key);
    }

    fn value_key(&mut self, key: &'a Value) -> io::Result<()> {
        self.count(b'u');
        schema::value(self, key)
    }

    fn end_dict(&mut self) {
        self.end(b'u');
    }

    fn begin_list(&mut self) {
        self.begin(b']');
    }

    fn item(&mut self) -> io::Result<()> {
        if self.buffer.len() >= FRAME {
            self.flush()?;
        }
        self.count(b'e');
        Ok(())
    }

    fn end_list(&mut self) {
        self.end(b'e');
    }

    fn none(&mut self) {
        self.buffer.push(b'N');
    }

    fn bool(&mut self, value: bool) {
        self.buffer.push(if value { 0x88 } else { 0x89 });
    }

    fn signed(&mut self, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.unsigned(value),
            Err(_) => match i32::try_from(value) {
                Ok(short) => {
                    self.buffer.push(b'J');
                    self.buffer.extend_from_slice(&short.to_le_bytes());
                }
                Err(_) => {
                    let length = (72 - value.leading_ones() as usize) / 8;
                    self.long(value.to_le_bytes(), length);
                }
            },
        }
    }

    fn unsigned(&mut self, value: u64) {
        if value < 1 << 8 {
            self.buffer.extend_from_slice(&[b'K', value as u8]);
        } else if value < 1 << 16 {
            let [a, b] = (value as u16).to_le_bytes();
            self.buffer.extend_from_slice(&[b'M', a, b]);
        } else if value < 1 << 31 {
            let [a, b, c, d] = (value as u32).to_le_bytes();
            self.buffer.extend_from_slice(&[b'J', a, b, c, d]);
        } else {
            // One bit more than the number has, for the sign.
            let length = (72 - value.leading_zeros() as usize) / 8;
            self.long(value.to_le_bytes(), length);
        }
    }

    fn float(&mut self, value: f64) {
        self.buffer.push(b'G');
        self.buffer.extend_from_slice(&value.to_be_bytes());
    }

    fn word(&mut self, word: Word) {
        let index = word as u8;
        if self.word_written[index as usize] {
            self.buffer.extend_from_slice(&[b'h', index]);
        } else {
            self.word_written[index as usize] = true;
            self.new_text(word.text());
            self.put(u32::from(index));
        }
    }

    fn text(&mut self, text: &'a str) {
        for (recent, index) in self.recent.into_iter().flatten() {
            // The same place in memory is the same text; comparing contents would be slower than the table.
            if std::ptr::eq(recent, text) {
                return self.get(index);
            }
        }
        let index = match self.texts.get(text) {
            Some(&index) => {
                match Word::from_id(index) {
                    Some(word) => self.word(word),
                    None => self.get(index),
                }
                index
            }
            None => {
                self.new_text(text);
                let index = self.put_new();
                self.texts.insert(text, index);
                index
            }
        };
        self.recent = [Some((text, index)), self.recent[0]];
    }

    fn pool(&mut self, pool: PoolId) {
        if let Some((recent, index)) = self.recent_pool
            && recent == pool
        {
            return self.get(index);
        }
        let index = match self.pools.get(&pool) {
            Some(&index) => {
                self.get(index);
                index
            }
            None => {
                self.unsigned(pool.0);
                self.unsigned(pool.1);
                self.buffer.push(0x86);
                let index = self.put_new();
                self.pools.insert(pool, index);
                index
            }
        };
        self.recent_pool = Some((pool, index));
    }

    fn tuple(&mut self, items: &'a [Value]) -> io::Result<()> {
        let end: &[u8] = match items.len() {
            0 => b")",
            1 => &[0x85],
            2 => &[0x86],
            3 => &[0x87],
            _ => {
                self.buffer.push(b'(');
                b"t"
            }
        };
        for item in items {
            schema::value(self, item)?;
        }
        self.buffer.extend_from_slice(end);
        Ok(())
    }

    fn labels(&mut self, labels: &'a Labels) -> io::Result<()> {
        let address = std::ptr::from_ref(labels);
        if self.recent_labels == Some(address) {
            self.buffer.extend_from_slice(&self.label_bytes);
            self.count += self.label_count;
            return Ok(());
        }
        schema::labels(self, labels)?;
        if labels.extra.is_empty() {
            // Written again they are references alone, and stay so.
            let (start, count) = (self.buffer.len(), self.count);
            schema::labels(self, labels)?;
            self.label_bytes.clear();
            self.label_bytes.extend(self.buffer.drain(start..));
            self.label_count = self.count - count;
            self.count = count;
            self.recent_labels = Some(address);
        }
        Ok(())
    }

    fn stack(&mut self, stack: &'a Stack) -> io::Result<()> {
        let address = stack.as_ptr();
        if let Some(&index) = self.stacks.get(&address) {
            self.get(index);
            return Ok(());
        }
        self.begin_list();
        if stack.is_empty() {
            self.end_list();
            return Ok(());
        }
        let index = self.put_new();
        for frame in stack.iter() {
            self.item()?;
            if !frame.extra.is_empty() {
                schema::frame(self, frame)?;
                continue;
            }
            let key = (&*frame.name, &*frame.filename, frame.line);
            if let Some(&index) = self.frames.get(&key) {
                self.get(index);
            } else {
                schema::frame(self, frame)?;
                let index = self.put_new();
                self.frames.insert(key, index);
            }
        }
        self.end_list();
        self.stacks.insert(address, index);
        Ok(())
    }
}
