//! Placeholders for what a run tells of who recorded it.

use crate::inspect::kind_of_file;
use crate::run::Run;
use alloc_core::snapshot::{Frame, Stack};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Placeholders for paths, names and texts: the same one for the same text, in all runs that are given to it.
#[derive(Debug, Default)]
pub struct Anonymous {
    files: FxHashMap<Arc<str>, Arc<str>>,
    functions: FxHashMap<Arc<str>, Arc<str>>,
    texts: FxHashMap<Arc<str>, Arc<str>>,
}

impl Anonymous {
    /// Replaces all that the run has. Lines of code are still found as before: a placeholder is of the kind that its path was.
    pub fn hide(&mut self, run: &mut Run) {
        run.sites.replace(|stack| self.stack(stack));
        for refusal in &mut run.refusals {
            refusal.frames = refusal.frames.as_deref().map(|stack| self.stack(stack));
        }
        let texts = run.labels.iter_mut().chain(run.notes.iter_mut().map(|(_, text)| text));
        for text in texts {
            *text = self.text(text);
        }
    }

    /// That of a text of the program's.
    pub fn text(&mut self, text: &Arc<str>) -> Arc<str> {
        placeholder(&mut self.texts, text, |number| format!("text{number}"))
    }

    fn stack(&mut self, stack: &[Frame]) -> Stack {
        let mut frame = |frame: &Frame| Frame {
            name: placeholder(&mut self.functions, &frame.name, |number| format!("f{number}")),
            filename: self.file(&frame.filename),
            line: frame.line,
            extra: Vec::new(),
        };
        stack.iter().map(&mut frame).collect()
    }

    /// That of a path. Pages name a file by its last two parts, and compare runs by these: so do placeholders.
    fn file(&mut self, path: &str) -> Arc<str> {
        let (folder, ending) = kind_of_file(path);
        let parts: Vec<&str> = path.rsplit(['/', '\\']).take(2).collect();
        let known = if path.is_empty() { String::new() } else { format!("{folder}:{}", parts.join("/")) };
        placeholder(&mut self.files, &known.into(), |number| format!("{folder}file{number}{ending}"))
    }
}

/// That of a text; nothing stands for nothing.
fn placeholder(
    known: &mut FxHashMap<Arc<str>, Arc<str>>,
    text: &Arc<str>,
    made: impl Fn(usize) -> String,
) -> Arc<str> {
    if text.is_empty() {
        return text.clone();
    }
    let number = known.len() + 1;
    known.entry(text.clone()).or_insert_with(|| made(number).into()).clone()
}

#[cfg(test)]
mod tests {
    use super::Anonymous;
    use crate::inspect::Caller;
    use crate::run::Run;
    use alloc_core::snapshot::{Frame, Stack};

    #[test]
    fn the_same_frame_stands_for_a_stack_as_before() {
        let packages = "/home/someone/env/lib/python3.12/site-packages";
        let frame = |filename: &str, name: &str| Frame {
            name: name.into(),
            filename: filename.into(),
            line: 7,
            extra: Vec::new(),
        };
        let stack: Stack = [
            frame("??", "c10::malloc"),
            frame(&format!("{packages}/torch/nn/functional.py"), "linear"),
            frame("/usr/lib/python3.12/contextlib.py", "inner"),
            frame(&format!("{packages}/secret/model.py"), "forward"),
            frame("/home/someone/train.py", "step"),
            frame("", ""),
        ]
        .into();
        let mut run = Run::default();
        run.sites.index(Some(&stack));
        let mut anonymous = Anonymous::default();
        anonymous.hide(&mut run);
        let hidden = run.sites.get(1);
        let caller = Caller::of_stack(hidden);
        assert_eq!(caller.place.short(), "file4.py:7 f4");
        assert_eq!(caller.through.unwrap().short(), "torch/file2.py:7 f2");
        assert_eq!(caller.called_by.len(), 1);
        assert!(hidden[5].filename.is_empty() && hidden[5].name.is_empty());
        // A second run with the same line has the same placeholder, wherever the program stood.
        let mut other = Run::default();
        let elsewhere = packages.replace("someone", "another");
        other.sites.index(Some(&Stack::from([frame(&format!("{elsewhere}/secret/model.py"), "forward")])));
        anonymous.hide(&mut other);
        assert_eq!(other.sites.get(1)[0].filename, hidden[3].filename);
    }
}
