//! Entry points by name and version.

use crate::header::*;
use crate::personality::{personality, since};
use lookalike::argument::{In, Out};
use lookalike::{Answer, Code, absence};
use std::ffi::{c_char, c_int, c_void};

/// Functions whose forms changed after version 4: name, suffix, and the version from which a program gets
/// that form.
const FORMS: &[(&str, &str, c_int)] = &[
    ("cuDeviceGetUuid", "", 9_020),
    ("cuDeviceGetUuid", "_v2", 11_040),
    ("cuDevicePrimaryCtxRelease", "_v2", 11_000),
    ("cuDevicePrimaryCtxSetFlags", "_v2", 11_000),
    ("cuEventElapsedTime", "", 2_000),
    ("cuEventElapsedTime", "_v2", 12_080),
    ("cuGetProcAddress", "", 11_030),
    ("cuGetProcAddress", "_v2", 12_000),
    ("cuGraphNodeGetDependencies", "", 10_000),
    ("cuGraphNodeGetDependencies", "_v2", 12_030),
    ("cuIpcOpenMemHandle", "_v2", 11_000),
    ("cuMemHostRegister", "_v2", 6_050),
    ("cuStreamBeginCapture", "_v2", 10_010),
    ("cuStreamBeginCaptureToGraph", "", 12_030),
    ("cuStreamGetCaptureInfo", "_v2", 11_030),
    ("cuStreamGetCaptureInfo", "_v3", 12_030),
    ("cuStreamGetDevice", "", 12_080),
    ("cuStreamGetId", "", 12_000),
    ("cuStreamUpdateCaptureDependencies", "", 11_030),
    ("cuStreamUpdateCaptureDependencies", "_v2", 12_030),
    ("cuStreamWriteValue32", "_v2", 11_070),
];

/// What a search found.
enum Found {
    Place(*mut c_void),
    Nothing,
    /// Only in a form that is newer than asked for.
    TooNew,
}

fn exported(name: &str) -> Option<*mut c_void> {
    // The library has functions beside those of its table.
    if crate::entries().any(|entry| entry.name == name) { absence::find(name) } else { None }
}

fn find(name: &str, version: c_int) -> Found {
    let mut forms = FORMS.iter().filter(|(known, ..)| *known == name).peekable();
    if forms.peek().is_some() {
        let fitting = forms.rfind(|(.., since)| *since <= version);
        let place = fitting.map(|(_, suffix, _)| exported(&format!("{name}{suffix}")));
        return match place {
            Some(place) => place.map_or(Found::Nothing, Found::Place),
            None => Found::TooNew,
        };
    }
    let forms = ["_v2", "", "_v3", "_v4"].into_iter();
    let place = forms.filter_map(|suffix| exported(&format!("{name}{suffix}"))).next();
    place.map_or(Found::Nothing, Found::Place)
}

#[allow(non_camel_case_types, reason = "named as those of the header are")]
/// Of CUDA 11; headers declare it for no one any more.
type cuGetProcAddress_t =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, cuuint64_t) -> CUresult;

fn look_up(
    symbol: &In<c_char>,
    place: &Out<*mut c_void>,
    version: c_int,
    status: &Out<CUdriverProcAddressQueryResult>,
) -> Answer {
    let name = symbol.text()?;
    place.wanted()?;
    let (found, answer) = match find(&name, version.min(personality()?.version())) {
        Found::Place(found) => (found, CU_GET_PROC_ADDRESS_SUCCESS),
        Found::Nothing => (std::ptr::null_mut(), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
        Found::TooNew => (std::ptr::null_mut(), CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
    };
    place.put(found)?;
    status.put_if_wanted(answer);
    if found.is_null() && status.is_null() { Err(Code::NOT_FOUND) } else { Ok(()) }
}

lookalike::entries! {
    run: crate::entry::run, status: CUresult;

    /// Finds an entry point by its name without suffix, in the form that a version of CUDA has. Nothing is
    /// found in versions after the driver's own.
    fn cuGetProcAddress_v2 as cuGetProcAddress_v2_t(
        input symbol: *const c_char, out place: *mut *mut c_void, val version: c_int, val _flags: cuuint64_t,
        out status: *mut CUdriverProcAddressQueryResult,
    ) {
        since(12_000)?;
        look_up(&symbol, &place, version, &status)
    }

    /// The same, without a word on what was wrong.
    fn cuGetProcAddress as cuGetProcAddress_t(
        input symbol: *const c_char, out place: *mut *mut c_void, val version: c_int, val _flags: cuuint64_t,
    ) {
        // SAFETY: null is a place for no answer.
        look_up(&symbol, &place, version, &unsafe { Out::new(std::ptr::null_mut()) })
    }
}
