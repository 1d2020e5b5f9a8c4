//! Snapshots as JSON: the structure of the pickle, key for key. PyTorch's web viewer opens such files too.

use crate::schema::{self, Sink, Word};
use alloc_core::snapshot::{Snapshot, Stack, Value};
use alloc_core::types::PoolId;
use std::io::{self, Write};

/// Bytes collected before they go to the output.
const BUFFER: usize = 1 << 16;

/// Writes a snapshot as one line of JSON.
///
/// What JSON cannot say becomes the nearest thing: tuples are arrays, dictionary keys that are not text are
/// written as their JSON text, numbers that are not finite are `null`. Whole numbers are written in full;
/// JavaScript reads those from 2^53 on rounded.
///
/// # Errors
/// What `output` reports.
pub fn to_json(snapshot: &Snapshot, output: impl Write) -> io::Result<()> {
    let mut sink = JsonSink { output, buffer: Vec::with_capacity(BUFFER + 4096), fresh: true };
    schema::snapshot(&mut sink, snapshot)?;
    sink.buffer.push(b'\n');
    sink.output.write_all(&sink.buffer)?;
    sink.output.flush()
}

/// A snapshot's open value as JSON, with the same losses as [`to_json`].
pub(crate) fn value(value: &Value) -> serde_json::Value {
    let mut sink = JsonSink { output: Vec::new(), buffer: Vec::new(), fresh: true };
    // Writing to memory cannot fail, and what was written is JSON.
    let written = schema::value(&mut sink, value).is_ok();
    sink.output.append(&mut sink.buffer);
    serde_json::from_slice(if written { &sink.output } else { b"null" }).unwrap_or_default()
}

struct JsonSink<W> {
    output: W,
    buffer: Vec<u8>,
    /// The open list or dictionary has no item yet.
    fresh: bool,
}

impl<W: Write> JsonSink<W> {
    fn comma(&mut self) {
        if !self.fresh {
            self.buffer.push(b',');
        }
        self.fresh = false;
    }

    fn json(&mut self, value: impl serde::Serialize) {
        // Neither writing to memory nor serialising a scalar can fail.
        let _infallible = serde_json::to_writer(&mut self.buffer, &value);
    }
}

impl<'a, W: Write> Sink<'a> for JsonSink<W> {
    fn begin_dict(&mut self) {
        self.buffer.push(b'{');
        self.fresh = true;
    }

    fn key(&mut self, key: Word) {
        self.text_key(key.text());
    }

    fn text_key(&mut self, key: &'a str) {
        self.comma();
        self.json(key);
        self.buffer.push(b':');
    }

    fn value_key(&mut self, key: &'a Value) -> io::Result<()> {
        if let Value::Str(text) = key {
            self.text_key(text);
            return Ok(());
        }
        let mut nested = JsonSink { output: Vec::new(), buffer: Vec::new(), fresh: true };
        schema::value(&mut nested, key)?;
        nested.output.append(&mut nested.buffer);
        self.comma();
        self.json(String::from_utf8_lossy(&nested.output));
        self.buffer.push(b':');
        Ok(())
    }

    fn end_dict(&mut self) {
        self.buffer.push(b'}');
        self.fresh = false;
    }

    fn begin_list(&mut self) {
        self.buffer.push(b'[');
        self.fresh = true;
    }

    fn item(&mut self) -> io::Result<()> {
        self.comma();
        if self.buffer.len() >= BUFFER {
            self.output.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn end_list(&mut self) {
        self.buffer.push(b']');
        self.fresh = false;
    }

    fn none(&mut self) {
        self.buffer.extend_from_slice(b"null");
    }

    fn bool(&mut self, value: bool) {
        self.json(value);
    }

    fn signed(&mut self, value: i64) {
        self.json(value);
    }

    fn unsigned(&mut self, value: u64) {
        self.json(value);
    }

    fn float(&mut self, value: f64) {
        self.json(value);
    }

    fn word(&mut self, word: Word) {
        self.json(word.text());
    }

    fn text(&mut self, text: &'a str) {
        self.json(text);
    }

    fn pool(&mut self, pool: PoolId) {
        self.json((pool.0, pool.1));
    }

    fn tuple(&mut self, items: &'a [Value]) -> io::Result<()> {
        self.begin_list();
        for item in items {
            self.item()?;
            schema::value(self, item)?;
        }
        self.end_list();
        Ok(())
    }

    fn stack(&mut self, stack: &'a Stack) -> io::Result<()> {
        self.begin_list();
        for frame in stack.iter() {
            self.item()?;
            schema::frame(self, frame)?;
        }
        self.end_list();
        Ok(())
    }
}
