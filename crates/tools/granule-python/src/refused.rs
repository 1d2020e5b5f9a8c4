//! Errors as Python has them.

use granule_cli::{Kind, Refused};
use pyo3::prelude::*;

/// The exception for it, which the Python side makes: its classes have parents that only Python can give them.
pub(crate) fn exception(refused: Refused) -> PyErr {
    Python::attach(|py| {
        let Refused { kind, message, hint } = refused;
        let (kind, number) = match kind {
            Kind::Usage => ("usage", None),
            Kind::Input => ("input", None),
            Kind::File(number) => ("file", number),
        };
        let made = PyModule::import(py, "granule_alloc._errors")
            .and_then(|module| module.getattr("exception")?.call1((kind, number, message, hint)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}
