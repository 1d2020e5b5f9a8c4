//! Call sites for people: the line of a stack that says most, and a few of those around it.

use crate::run::Sites;
use alloc_core::snapshot::Frame;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashMap;

/// How many callers of the line are named.
const CALLERS: usize = 3;

/// A place in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Place {
    /// The source file, as recorded.
    pub file: String,
    /// The line; 0 where it is not known.
    pub line: u64,
    /// The function.
    pub function: String,
}

impl Place {
    /// That of a frame.
    #[must_use]
    pub fn of(frame: &Frame) -> Self {
        Self { file: frame.filename.to_string(), line: frame.line, function: frame.name.to_string() }
    }

    /// In one short line: the last parts of the path, the line, the function.
    #[must_use]
    pub fn short(&self) -> String {
        let parts: Vec<_> = self.file.rsplit(['/', '\\']).take(2).collect();
        let file = match parts[..] {
            [name, folder] if !folder.is_empty() => format!("{folder}/{name}"),
            _ => self.file.clone(),
        };
        match (file.is_empty(), self.line) {
            (true, _) => self.function.clone(),
            (false, 0) => format!("{file} {}", self.function),
            (false, line) => format!("{file}:{line} {}", self.function),
        }
    }

    /// What it is called whatever its line: an edited program has the same function elsewhere.
    #[must_use]
    pub fn without_line(&self) -> (&str, &str) {
        (&self.file, &self.function)
    }
}

/// Where an allocation was asked for: the innermost line that is not in PyTorch, in Python itself or in compiled code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// That line.
    #[serde(flatten)]
    pub place: Place,
    /// Through what the first allocation from there asked, where that is in PyTorch.
    pub through: Option<Place>,
    /// Who called it then, innermost first; without what is in PyTorch. Not more than a few.
    pub called_by: Vec<Place>,
}

/// The caller of each site.
#[derive(Debug)]
pub(crate) struct Callers {
    /// By site.
    of_site: Vec<u32>,
    callers: Vec<Caller>,
}

impl Callers {
    pub(crate) fn new(sites: &Sites) -> Self {
        let mut known: HashMap<Place, u32> = HashMap::new();
        let mut callers = Vec::new();
        let of_site = sites
            .iter()
            .map(|stack| {
                let caller = caller(stack);
                // There are fewer than sites, which are numbered by 32 bits.
                *known.entry(caller.place.clone()).or_insert_with(|| {
                    callers.push(caller);
                    callers.len() as u32 - 1
                })
            })
            .collect();
        Self { of_site, callers }
    }

    /// The number of a site's caller; 0 is that of allocations without a stack.
    pub(crate) fn number(&self, site: u32) -> u32 {
        self.of_site.get(site as usize).copied().unwrap_or(0)
    }

    /// The caller of that number.
    pub(crate) fn get(&self, number: u32) -> &Caller {
        // Numbers come from here; the first is always there.
        &self.callers[(number as usize).min(self.callers.len() - 1)]
    }

    /// Whether no allocation has a stack.
    pub(crate) fn is_empty(&self) -> bool {
        self.callers.len() == 1
    }
}

impl Caller {
    /// That of a stack, innermost frame first.
    #[must_use]
    pub fn of_stack(stack: &[Frame]) -> Self {
        caller(stack)
    }
}

/// The frame that stands for a stack, innermost frame first, wherever a call site is named: the innermost of the program or of a
/// library that it uses; else the innermost of Python; else the innermost. `None` for an empty stack.
#[must_use]
pub fn program_frame(stack: &[Frame]) -> Option<&Frame> {
    stack.get(program_line(stack))
}

/// Its index.
fn program_line(stack: &[Frame]) -> usize {
    let own = stack.iter().position(is_own);
    own.or_else(|| stack.iter().position(|frame| is_python(&frame.filename))).unwrap_or(0)
}

fn caller(stack: &[Frame]) -> Caller {
    let at = program_line(stack);
    let Some(frame) = stack.get(at) else { return Caller::default() };
    let through = stack[..at].iter().find(|frame| is_python(&frame.filename)).map(Place::of);
    let outer = stack[at + 1..].iter().filter(|frame| is_own(frame));
    Caller { place: Place::of(frame), through, called_by: outer.take(CALLERS).map(Place::of).collect() }
}

/// The beginning and the ending of a path that count for a frame of this file as its own path does.
pub(crate) fn kind_of_file(path: &str) -> (&'static str, &'static str) {
    // Some systems write paths with the other slash.
    let file = if path.contains('\\') { Cow::Owned(path.replace('\\', "/")) } else { Cow::Borrowed(path) };
    match () {
        () if !is_python(path) => ("", ""),
        () if is_torch(&file) => ("torch/", ".py"),
        () if is_standard_library(&file) => ("/lib/python3/", ".py"),
        () => ("", ".py"),
    }
}

/// Whether a frame is of the program, or of a library that it uses.
fn is_own(frame: &Frame) -> bool {
    kind_of_file(&frame.filename) == ("", ".py")
}

/// Frames of compiled code have other endings, or none.
fn is_python(file: &str) -> bool {
    file.ends_with(".py")
        || file.ends_with(".ipynb")
        || file.starts_with("<ipython-input")
        || file.starts_with("/tmp/ipykernel")
}

fn is_torch(file: &str) -> bool {
    const PLACES: [&str; 5] =
        ["site-packages/torch/", "dist-packages/torch/", "pytorch/torch/", "torchinductor", "triton/"];
    // Snapshots may have paths from which the folder of the installation was cut.
    file.starts_with("torch/") || PLACES.iter().any(|place| file.contains(place))
}

fn is_standard_library(file: &str) -> bool {
    let in_packages = file.contains("site-packages/") || file.contains("dist-packages/");
    file.starts_with('<') && !file.starts_with("<ipython") || !in_packages && file.contains("/lib/python3")
}

#[cfg(test)]
mod tests {
    use super::{Caller, Place, caller, program_frame};
    use alloc_core::snapshot::Frame;

    fn frame(filename: &str, line: u64, name: &str) -> Frame {
        Frame { name: name.into(), filename: filename.into(), line, extra: Vec::new() }
    }

    fn short(caller: &Caller) -> (String, Option<String>, Vec<String>) {
        let through = caller.through.as_ref().map(Place::short);
        (caller.place.short(), through, caller.called_by.iter().map(Place::short).collect())
    }

    #[test]
    fn the_innermost_line_outside_pytorch_is_the_caller() {
        let packages = "/env/lib/python3.12/site-packages";
        let stack = [
            frame("??", 0, "c10::cuda::CUDACachingAllocator::malloc"),
            frame(&format!("{packages}/torch/nn/functional.py"), 10, "linear"),
            frame(&format!("{packages}/torch/nn/modules/module.py"), 20, "_call_impl"),
            frame(&format!("{packages}/transformers/models/gpt2/modeling_gpt2.py"), 312, "forward"),
            frame(&format!("{packages}/torch/nn/modules/module.py"), 20, "_call_impl"),
            frame("/usr/lib/python3.12/contextlib.py", 81, "inner"),
            frame("/home/someone/train.py", 57, "step"),
            frame("/home/someone/train.py", 90, "<module>"),
        ];
        let (place, through, called_by) = short(&caller(&stack));
        assert_eq!(place, "gpt2/modeling_gpt2.py:312 forward");
        assert_eq!(through.as_deref(), Some("nn/functional.py:10 linear"));
        assert_eq!(called_by, ["someone/train.py:57 step", "someone/train.py:90 <module>"]);
        assert_eq!(program_frame(&stack), Some(&stack[3]));
        assert_eq!(program_frame(&[]), None);
    }

    #[test]
    fn stacks_without_own_lines_have_their_innermost_python_line() {
        let stack = [frame("/x/libtorch.so", 5, "at::empty"), frame("torch/autograd/graph.py", 7, "run")];
        assert_eq!(short(&caller(&stack)).0, "autograd/graph.py:7 run");
        let compiled = [frame("??", 0, "at::empty"), frame("??", 0, "main")];
        assert_eq!(caller(&compiled).place.function, "at::empty", "and if there is none the innermost");
        assert_eq!(caller(&[]), Caller::default());
    }

    #[test]
    fn a_folder_of_ones_own_may_be_called_torch() {
        let own = [frame("/home/someone/torch/train.py", 3, "main")];
        assert_eq!(caller(&own).place.line, 3);
        assert_eq!(short(&caller(&[frame("train.py", 3, "main")])).0, "train.py:3 main");
        let torch = frame(r"C:\env\Lib\site-packages\torch\nn\functional.py", 9, "linear");
        assert_eq!(caller(&[torch, frame(r"C:\me\train.py", 4, "main")]).place.line, 4);
        let notebook = [frame("/tmp/ipykernel_71/1234.py", 1, "<module>"), frame("<frozen runpy>", 1, "run")];
        assert_eq!(caller(&notebook).place.function, "<module>");
    }
}
