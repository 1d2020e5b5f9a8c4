//! Where the bytes of mapped memory are: one window of addresses and one sparse file per device.

use super::spares::Spares;
use crate::os::{SharedFile, Window, page};
use crate::refusal::{Answer, Refusal};
use crate::space::Space;
use backend_api::ErrorKind;
use std::io;
use std::sync::Arc;

/// Device addresses begin here and end below the places where programs and libraries are loaded, so a
/// device address is never a host address.
const FIRST: u64 = 1 << 44;
const SPAN: u64 = 1 << 46;
const RESERVED_WINDOW: u64 = 1 << 43;
const MAPPED_WINDOW: u64 = 1 << 38;

/// Base and length of a device's addresses where nothing backs them. Every machine uses the same.
pub(crate) fn reserved_window(device: usize, devices: usize, asked: Option<u64>) -> (u64, u64) {
    let bytes = asked.unwrap_or_else(|| RESERVED_WINDOW.min(SPAN / (devices as u64).next_power_of_two()));
    (FIRST + device as u64 * bytes, bytes)
}

/// Windows of so many bytes for all devices, side by side, with their bases: at the first place where all are free, which
/// is the same in every run of a program unless something else took it.
pub(crate) fn windows(count: usize, each: u64) -> io::Result<Vec<(u64, Window)>> {
    let all = each * count.max(1) as u64;
    let mut refused = None;
    for place in 0..SPAN / all {
        let bases = (0..count as u64).map(|device| FIRST + place * all + device * each);
        match bases.map(|base| Ok((base, Window::reserve(base, each)?))).collect() {
            Ok(windows) => return Ok(windows),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

/// A part of a memory file.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub(crate) file: Arc<SharedFile>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Extent {
    pub(crate) fn part(&self, skip: u64, bytes: u64) -> Self {
        Self { file: Arc::clone(&self.file), offset: self.offset + skip, bytes }
    }
}

/// One device's window and the file behind it: an allocation's offset in the file is its offset in the
/// window, so that finding room in one finds it in the other.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) window: Window,
    base: u64,
    length: u64,
    file: Arc<SharedFile>,
    /// Offsets behind the window's: physical memory that has no address of its own.
    physical: Space,
    spares: Spares,
}

impl Store {
    /// One for every device, each of which keeps the pages of up to `resident` bytes of physical memory that it was given
    /// back.
    pub(crate) fn for_devices(count: usize, asked: Option<u64>, resident: u64) -> io::Result<Vec<Self>> {
        let each = asked.unwrap_or(MAPPED_WINDOW);
        let made = windows(count, each)?.into_iter().map(|(base, window)| {
            let spares = Spares::new(resident);
            let file = Arc::new(spares.file("openreg-device", 2 * each)?);
            Ok(Self { window, base, length: each, file, physical: Space::new(each, each), spares })
        });
        made.collect()
    }

    pub(crate) fn window(&self) -> (u64, u64) {
        (self.base, self.length)
    }

    /// The part of the file that belongs to addresses of the window.
    pub(crate) fn behind(&self, at: u64, bytes: u64) -> Extent {
        Extent { file: Arc::clone(&self.file), offset: at - self.base, bytes }
    }

    /// Physical memory, which holds what was last there. What may leave the process must be `alone` in a file.
    pub(crate) fn take_physical(&mut self, bytes: u64, alone: bool) -> Answer<Extent> {
        if let Some(extent) = self.spares.take((alone, bytes)) {
            return Ok(extent);
        }
        let made = self.make_physical(bytes, alone);
        if made.is_ok() || self.spares.is_empty() {
            return made;
        }
        // What is kept holds descriptors and places in the file.
        while let Some(extent) = self.spares.take_any() {
            self.end_physical(&extent)?;
        }
        self.make_physical(bytes, alone)
    }

    fn make_physical(&mut self, bytes: u64, alone: bool) -> Answer<Extent> {
        if alone {
            let file = self.spares.file("openreg-physical", bytes)?;
            return Ok(Extent { file: Arc::new(file), offset: 0, bytes });
        }
        let offset = self
            .physical
            .take(bytes, page())
            .ok_or_else(|| Refusal::new(ErrorKind::ResourceLimit, "the device's memory file is full"))?;
        Ok(Extent { file: Arc::clone(&self.file), offset, bytes })
    }

    /// Takes physical memory back; what others may have goes with its file.
    pub(crate) fn give_physical(&mut self, extent: Extent) -> Answer<()> {
        if extent.file.is_shared() {
            return Ok(());
        }
        let key = (!Arc::ptr_eq(&self.file, &extent.file), extent.bytes);
        let gone = self.spares.keep(key, extent);
        gone.iter().map(|gone| self.end_physical(gone)).fold(Ok(()), Result::and)
    }

    /// Gives pages back to the host; those in a file of their own go with the file.
    fn end_physical(&mut self, extent: &Extent) -> Answer<()> {
        if Arc::ptr_eq(&self.file, &extent.file) {
            self.file.discard(extent.offset, extent.bytes)?;
            self.physical.give(extent.offset, extent.bytes);
        }
        Ok(())
    }
}
