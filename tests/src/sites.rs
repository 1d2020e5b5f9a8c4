//! Call contexts for tests: places in a program, named by hand.

use alloc_core::history::{CallContext, Context, ContextRecorder};
use alloc_core::snapshot::{Frame, Stack};
use std::cell::Cell;
use std::sync::Arc;

thread_local! {
    static HERE: Cell<&'static str> = const { Cell::new("nowhere") };
}

/// Runs `work` at a place of that name.
pub fn at<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    let before = HERE.replace(name);
    let result = work();
    HERE.set(before);
    result
}

/// A place in the program.
#[derive(Debug)]
struct Site {
    name: &'static str,
    language: &'static str,
}

impl CallContext for Site {
    fn frames(&self) -> Stack {
        let frame = |name: &str| Frame {
            name: name.into(),
            filename: format!("program.{}", self.language).into(),
            line: 1,
            extra: Vec::new(),
        };
        Arc::new([frame(self.name), frame("main")])
    }

    fn forward_frames(&self) -> Option<Vec<Arc<str>>> {
        let forward = self.name.strip_prefix("backward of ")?;
        Some(vec![format!("forward {forward}").into()])
    }
}

/// Gathers the place where the calling thread is.
#[must_use]
pub fn recorder() -> ContextRecorder {
    recorder_in("py")
}

/// Gathers the place where the calling thread is, in files of one language.
#[must_use]
pub fn recorder_in(language: &'static str) -> ContextRecorder {
    Arc::new(move || Some(Arc::new(Site { name: HERE.get(), language }) as Context))
}

/// The function in which a stack begins; empty where there is none.
#[must_use]
pub fn innermost(frames: Option<&Stack>) -> &str {
    frames.and_then(|frames| frames.first()).map_or("", |frame| &*frame.name)
}
