//! Call contexts that the program gathers: objects of C's behind the engine's [`Context`].

use crate::boundary::callback::{call, call_at_end};
use granule::history::{CallContext, Context};
use granule::snapshot::Stack;
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

pub(crate) type Gather = unsafe extern "C-unwind" fn(user: *mut c_void) -> *mut c_void;
pub(crate) type Release = unsafe extern "C-unwind" fn(user: *mut c_void, context: *mut c_void);

/// Who makes contexts, and takes them back. `user` outlives them all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorder {
    pub(crate) user: *mut c_void,
    pub(crate) gather: Gather,
    pub(crate) release: Option<Release>,
}

// SAFETY: what callers promise: callbacks and their `user` are good on any thread.
unsafe impl Send for Recorder {}
// SAFETY: as above.
unsafe impl Sync for Recorder {}

/// One context. C looks it up by itself, so that it has no frames here.
#[derive(Debug)]
struct Gathered {
    object: *mut c_void,
    recorder: Recorder,
}

// SAFETY: what callers promise: a context is good on any thread.
unsafe impl Send for Gathered {}
// SAFETY: as above.
unsafe impl Sync for Gathered {}

impl Recorder {
    /// The calling thread's context. Inline: its callers are frames of the stack that is gathered.
    #[inline(always)]
    pub(crate) fn gather(self) -> Option<Context> {
        // SAFETY: what callers promise: the function is good for this `user`.
        let object = call(|| unsafe { (self.gather)(self.user) });
        (!object.is_null()).then(|| Arc::new(Gathered { object, recorder: self }) as Context)
    }
}

impl CallContext for Gathered {
    fn frames(&self) -> Stack {
        Stack::default()
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        let Recorder { user, release, .. } = self.recorder;
        if let Some(release) = release {
            // SAFETY: what callers promise: this is the last that is heard of the object.
            call_at_end(|| unsafe { release(user, self.object) });
        }
    }
}

/// What C gathered; null where there is nothing, or where it is not C's.
pub(crate) fn object(context: Option<&Context>) -> *mut c_void {
    let gathered = context.and_then(|context| (&**context as &dyn Any).downcast_ref::<Gathered>());
    gathered.map_or(std::ptr::null_mut(), |gathered| gathered.object)
}
