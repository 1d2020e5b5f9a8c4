//! One call through the table: what is checked before, and what its status means after.

use crate::backend::CBackend;
use crate::host_function::HandedOver;
use crate::values::{RawEvent, RawStream, Value, text};
use backend_api::types::{BackendId, DeviceIndex, Event, Stream};
use backend_api::{Backend, BackendError, CaptureNode, ErrorKind, Readiness, Result};

/// It worked.
const OK: i32 = 0;
/// The answer of a query.
const NOT_READY: i32 = 1;
/// The status of the first [`ErrorKind`].
const FIRST_ERROR: i32 = 2;

/// A call under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'b> {
    backend: &'b CBackend,
    /// The table's function.
    name: &'static str,
    /// The device it is about.
    device: DeviceIndex,
}

impl<'b> Call<'b> {
    pub(crate) fn new(backend: &'b CBackend, name: &'static str, device: DeviceIndex) -> Self {
        Self { backend, name, device }
    }

    // --- before ---------------------------------------------------------------------------------

    pub(crate) fn function<F>(&self, function: Option<F>) -> Result<F> {
        function.ok_or_else(|| {
            self.error(ErrorKind::NotSupported, 0, format!("the table of {} lacks it", self.backend.name))
        })
    }

    /// A device that exists.
    pub(crate) fn device(&self, device: DeviceIndex) -> Result<u16> {
        let count = self.backend.known_devices()?;
        if device.0 < count {
            return Ok(device.0);
        }
        Err(self.invalid(format!("there is no device {device}; there are {count}")))
    }

    pub(crate) fn devices(&self, devices: &[DeviceIndex]) -> Result<Vec<u16>> {
        devices.iter().map(|&device| self.device(device)).collect()
    }

    /// Rule 4.
    pub(crate) fn size(&self, bytes: u64) -> Result<u64> {
        if bytes == 0 { Err(self.invalid("0 bytes were asked for")) } else { Ok(bytes) }
    }

    /// Rule 1.
    pub(crate) fn handle(&self, raw: u64, backend: BackendId) -> Result<u64> {
        if backend == self.backend.id() {
            return Ok(raw);
        }
        Err(self.invalid("the handle was made by another backend"))
    }

    pub(crate) fn stream(&self, stream: Stream) -> Result<RawStream> {
        self.handle(stream.raw, stream.backend)?;
        self.device(stream.device)?;
        Ok(stream.into())
    }

    pub(crate) fn event(&self, event: Event) -> Result<RawEvent> {
        self.handle(event.raw, event.backend)?;
        self.device(event.device)?;
        Ok(event.into())
    }

    pub(crate) fn of_one_device(&self, event: Event, stream: Stream) -> Result<()> {
        if event.device == stream.device {
            return Ok(());
        }
        let (event, stream) = (event.device, stream.device);
        Err(self.invalid(format!("an event of device {event} and a stream of device {stream}")))
    }

    // --- after ----------------------------------------------------------------------------------

    pub(crate) fn done(&self, status: i32) -> Result<()> {
        if status == OK { Ok(()) } else { Err(self.failure(status)) }
    }

    pub(crate) fn readiness(&self, status: i32) -> Result<Readiness> {
        match status {
            OK => Ok(Readiness::Ready),
            NOT_READY => Ok(Readiness::NotReady),
            _ => Err(self.failure(status)),
        }
    }

    pub(crate) fn answer<T: Value>(&self, status: i32, raw: T::Raw) -> Result<T> {
        self.done(status)?;
        T::read(raw).ok_or_else(|| {
            self.error(
                ErrorKind::Other,
                0,
                "the function said GRANULE_BACKEND_OK and wrote no value of the contract",
            )
        })
    }

    /// A host function is C's from here on, or freed.
    pub(crate) fn handed_over(&self, status: i32, work: HandedOver) -> Result<()> {
        self.done(status)?;
        work.keep();
        Ok(())
    }

    /// A list of any length: `list` writes at most `capacity` nodes, and says how many there are.
    pub(crate) fn nodes(&self, list: impl Fn(*mut u64, u64, *mut u64) -> i32) -> Result<Vec<CaptureNode>> {
        let mut nodes = vec![0u64; 16];
        loop {
            let mut count = 0u64;
            self.done(list(nodes.as_mut_ptr(), nodes.len() as u64, &raw mut count))?;
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count <= nodes.len() {
                nodes.truncate(count);
                return Ok(nodes.into_iter().map(CaptureNode).collect());
            }
            nodes.try_reserve_exact(count - nodes.len()).map_err(|error| {
                self.error(ErrorKind::Other, 0, format!("the function says it has {count} nodes: {error}"))
            })?;
            nodes.resize(count, 0);
        }
    }

    // --- errors ---------------------------------------------------------------------------------

    fn failure(&self, status: i32) -> BackendError {
        let kind = status.checked_sub(FIRST_ERROR).and_then(ErrorKind::read);
        let (code, said) = self.last_error();
        let name = self.backend.name;
        let detail = match (kind, said.or_else(|| self.name_of(code))) {
            (_, Some(said)) => said,
            (Some(kind), None) => format!("{name} answered {kind:?}"),
            (None, None) if status == NOT_READY => {
                format!("{name} answered GRANULE_BACKEND_NOT_READY, and the function is no query")
            }
            (None, None) => format!("{name} answered {status}, which is no granule_backend_status"),
        };
        self.error(kind.unwrap_or(ErrorKind::Other), code, detail)
    }

    /// What the driver says, where the table has `last_error`.
    fn last_error(&self) -> (i32, Option<String>) {
        let Some(last_error) = self.backend.table.last_error else { return (0, None) };
        let (mut code, mut said) = (0, [0; 256]);
        let capacity = said.len() as u64;
        // SAFETY: the table keeps its header's word (`from_table`); it writes at most `capacity` bytes.
        unsafe { last_error(self.backend.table.context, &raw mut code, said.as_mut_ptr(), capacity) };
        let said = text(&said);
        (code, (!said.is_empty()).then_some(said))
    }

    /// What the driver calls a number, where the table has `error_name`.
    fn name_of(&self, code: i32) -> Option<String> {
        let named = self.backend.table.error_name.filter(|_| code != 0);
        named.map(|_| self.backend.error_name(code)).filter(|name| name != "unknown")
    }

    pub(crate) fn error(&self, kind: ErrorKind, code: i32, detail: impl Into<String>) -> BackendError {
        BackendError::new(kind, code, self.name, self.device, detail).of(self.backend.name)
    }

    fn invalid(&self, detail: impl Into<String>) -> BackendError {
        self.error(ErrorKind::InvalidValue, 0, detail)
    }
}
