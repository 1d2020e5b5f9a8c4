//! Sections of the page: compressed bytes as text, each in an element of its own.

use crate::bytes::Bytes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::{self, Write};

/// A section, ready to be written.
#[derive(Debug)]
pub(crate) struct Section {
    id: String,
    /// Base64, which no file's content can break out of.
    text: String,
}

impl Section {
    /// Compresses the bytes. `id` is the page's own, never a file's.
    pub(crate) fn new(id: impl Into<String>, bytes: &Bytes) -> io::Result<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&bytes.0)?;
        Ok(Self { id: id.into(), text: STANDARD.encode(encoder.finish()?) })
    }

    /// Writes it as one of the device that the prefix of ids names.
    pub(crate) fn write(&self, prefix: &str, out: &mut dyn Write) -> io::Result<()> {
        let Self { id, text } = self;
        writeln!(out, "<script type=\"application/octet-stream\" id=\"{prefix}{id}\">{text}</script>")
    }
}
