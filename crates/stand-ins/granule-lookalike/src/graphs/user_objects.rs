//! User objects: something of the program's that a graph keeps alive.

use crate::argument::Out;
use crate::callback::Callback;
use crate::handles::Handles;
use crate::{Answer, Code};
use std::ptr::without_provenance_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counted object with the function that ends it.
#[derive(Debug)]
pub struct UserObject {
    references: AtomicU64,
    destroy: Callback,
}

static OBJECTS: Handles<Arc<UserObject>, 0x6e00_0000_0000> = Handles::new();

/// Makes an object. The one flag there is, 1, has to be set.
///
/// # Errors
/// `INVALID_VALUE` for other flags, and without a reference.
pub fn create<O>(place: &Out<*mut O>, destroy: Callback, references: u32, flags: u32) -> Answer {
    if references == 0 || flags != 1 {
        return Err(Code::INVALID_VALUE);
    }
    let references = AtomicU64::new(u64::from(references));
    place.put(without_provenance_mut(OBJECTS.insert(Arc::new(UserObject { references, destroy }))))
}

/// Adds references.
///
/// # Errors
/// `INVALID_VALUE` for an object that is not, or for none to add.
pub fn retain(handle: usize, count: u32) -> Answer {
    let object = known(handle, count)?;
    object.references.fetch_add(u64::from(count), Ordering::Relaxed);
    Ok(())
}

/// Takes references away; with the last one the object ends, on this thread.
///
/// # Errors
/// As [`retain`], and where there are not that many.
pub fn release(handle: usize, count: u32) -> Answer {
    let object = known(handle, count)?;
    let taken = object.references.fetch_update(Ordering::AcqRel, Ordering::Acquire, |references| {
        references.checked_sub(u64::from(count))
    });
    if taken.map_err(|_| Code::INVALID_VALUE)? == u64::from(count) {
        let _ = OBJECTS.remove(handle);
        object.destroy.run();
    }
    Ok(())
}

fn known(handle: usize, count: u32) -> Answer<Arc<UserObject>> {
    if count == 0 {
        return Err(Code::INVALID_VALUE);
    }
    OBJECTS.get(handle).map_err(|_| Code::INVALID_VALUE)
}
