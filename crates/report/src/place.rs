//! Which frame of a stack a person would name.

use alloc_core::snapshot::Frame;

/// The innermost frame of the program itself; else of any Python file; else the innermost.
pub(crate) fn of(stack: &[Frame]) -> Option<&Frame> {
    let python = || stack.iter().filter(|frame| is_python(frame));
    python().find(|frame| !is_library(frame)).or_else(|| python().next()).or_else(|| stack.first())
}

/// The frame as one line.
pub(crate) fn name(frame: &Frame) -> String {
    let file = frame.filename.rsplit(['/', '\\']).next().unwrap_or_default();
    if is_python(frame) { format!("{} ({file}:{})", frame.name, frame.line) } else { frame.name.to_string() }
}

fn is_python(frame: &Frame) -> bool {
    frame.filename.ends_with(".py")
}

fn is_library(frame: &Frame) -> bool {
    let installed = ["/site-packages/", "/dist-packages/", "/torch/", "\\site-packages\\"];
    frame.filename.starts_with('<') || installed.iter().any(|part| frame.filename.contains(part))
}

#[cfg(test)]
mod tests {
    use super::{name, of};
    use alloc_core::snapshot::Frame;

    fn frame(name: &str, filename: &str) -> Frame {
        Frame { name: name.into(), filename: filename.into(), line: 7, extra: Vec::new() }
    }

    #[test]
    fn the_program_comes_before_libraries_and_these_before_native_code() {
        let native = frame("at::empty", "libtorch.so");
        let library = frame("forward", "/usr/lib/python3/site-packages/torch/nn/linear.py");
        let own = frame("train", "/home/me/train.py");
        let stack = [native.clone(), library.clone(), own.clone()];
        assert_eq!(of(&stack), Some(&own));
        assert_eq!(of(&stack[..2]), Some(&library));
        assert_eq!(of(&stack[..1]), Some(&native));
        assert_eq!(of(&[]), None);
        assert_eq!(name(&own), "train (train.py:7)");
        assert_eq!(name(&native), "at::empty");
    }
}
