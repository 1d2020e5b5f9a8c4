//! Every way in, as a function of any bytes.
//!
//! A target does with its input what a program would, and panics where a promise is broken: that what is refused is refused in
//! words, that what is read is written and read the same, that figures add up. `cargo xtask fuzz` drives the targets with
//! libFuzzer, which sees which code an input reaches. The inputs that reach something new are kept in `corpus/`, and every
//! test run goes through them.

pub mod archive;
pub mod c_abi;
pub mod plan;
pub mod settings;
pub mod share;
pub mod snapshot;
pub mod trace;

mod cursor;

/// A way in.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Panics where a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "snapshot",
        about: "snapshot pickles, plain or packed",
        run: snapshot::run,
        seeds: snapshot::seeds,
    },
    Target {
        name: "trace",
        about: "allocation traces, and their replay",
        run: trace::run,
        seeds: trace::seeds,
    },
    Target {
        name: "settings",
        about: "both grammars of settings, and environments",
        run: settings::run,
        seeds: settings::seeds,
    },
    Target { name: "plan", about: "files of plans", run: plan::run, seeds: plan::seeds },
    Target { name: "table", about: "tables of placement problems", run: plan::table, seeds: plan::tables },
    Target { name: "share", about: "handles of shared blocks", run: share::run, seeds: share::seeds },
    Target { name: "c_abi", about: "sequences of calls of the C ABI", run: c_abi::run, seeds: c_abi::seeds },
];

impl Target {
    /// The target of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// What is said to people: a sentence at least, and no more than a screen.
///
/// # Panics
/// Where it is not.
fn in_words(error: &impl std::fmt::Display, most: usize) {
    let text = error.to_string();
    assert!(text.trim().len() > 4, "an error without words: {text:?}");
    assert!(text.len() <= most, "an error of {} bytes: {text:?}", text.len());
}
