//! The examples of the book in shell, C and C++: what can run without a GPU, a network or PyTorch runs as it stands.
//! Those in Rust are tests of the crate `granule`; those in Python run with the packages that they are of.
//!
//! They run in a folder that has the files which they name, made of the workload that the command carries. What is left
//! out is counted by its reason; a command that nobody has thought of is an error.

use super::page::{Code, Page};
use crate::process::{self, command, root};
use anyhow::{Context, Result, bail, ensure};
use clap::CommandFactory;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Files that examples name: recorded runs, and snapshots of them.
const TRACES: [&str; 3] = ["train.trace.gz", "finetune.trace.gz", "tuesday.trace.gz"];
const SNAPSHOTS: [&str; 8] = [
    "snapshot.pickle",
    "dump_snapshot.pickle",
    "before.pickle",
    "after.pickle",
    "monday.pickle",
    "rank0.pickle",
    "rank1.pickle",
    "snapshots/one.pickle",
];

const SHELL: &[&str] = &["sh", "bash", "shell", "console"];

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Runs,
    /// A task or a package of this repository, which has to be there.
    Task(String),
    Package(String),
    LeftOut(&'static str),
    Unknown,
}

pub(super) fn run<'a>(pages: impl Iterator<Item = &'a Page>) -> Result<()> {
    let granule = process::granule()?;
    let stage = tempfile::tempdir()?;
    prepare(stage.path(), &granule)?;
    let folder = granule.parent().context("the command is in no folder")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", folder.display());
    let (mut ran, mut left_out) = (0, BTreeMap::<_, usize>::new());
    for page in pages {
        for code in page.code(&["c", "cpp"]) {
            let place = || format!("{}:{}", page.name(), code.line);
            let Some(foreign) = foreign_header(&code.text) else {
                build_and_run(code, stage.path()).with_context(place)?;
                ran += 1;
                continue;
            };
            ensure!(foreign.starts_with("rmm/"), "{}: nothing compiles what includes {foreign}", place());
            *left_out.entry("is compiled with RMM in `cargo xtask integrations`").or_default() += 1;
        }
        let mut shell = page.code(SHELL).peekable();
        if shell.peek().is_none() {
            continue;
        }
        // A page tells a story of its own: what another page's examples wrote is not there.
        let own = tempfile::tempdir()?;
        process::run(Command::new("cp").arg("-r").arg(stage.path().join(".")).arg(own.path()))?;
        for block in shell {
            for (at, line) in block.text.lines().enumerate() {
                let place = format!("{}:{}", page.name(), block.line + at);
                let line = without_comment(line);
                match fate(line) {
                    _ if line.is_empty() => {}
                    Fate::Runs => {
                        follow(line, own.path(), &path).with_context(|| place)?;
                        ran += 1;
                    }
                    Fate::Task(task) => ensure!(
                        crate::Arguments::command().find_subcommand(&task).is_some(),
                        "{place}: there is no task {task}"
                    ),
                    Fate::Package(package) => {
                        process::output(command("cargo").args(["pkgid", "--quiet", "--offline", &package]))
                            .with_context(|| place)?;
                    }
                    Fate::LeftOut(why) => *left_out.entry(why).or_default() += 1,
                    Fate::Unknown => bail!(
                        "{place}: nothing says whether this can run here; see xtask/src/book/examples.rs\n{line}"
                    ),
                }
            }
        }
    }
    println!("{ran} examples ran as they stand in the book");
    for (why, lines) in left_out {
        println!("{lines:3} left out: {why}");
    }
    Ok(())
}

/// A header that is neither the language's nor of Granule's C library.
fn foreign_header(text: &str) -> Option<&str> {
    let names = text.lines().filter_map(|line| line.strip_prefix("#include")?.trim().get(1..));
    let mut names = names.map(|name| name.trim_end_matches(['>', '"']));
    names.find(|name| name.contains('/') && !name.starts_with("granule/"))
}

/// A program over the simulated device, in the oldest C or C++ that `granule.h` is for.
fn build_and_run(code: &Code, stage: &Path) -> Result<()> {
    process::libraries()?;
    let (compiler, standard) = if code.language == "c" { ("cc", "c99") } else { ("c++", "c++11") };
    let (source, program) = (stage.join("example").with_extension(&code.language), stage.join("example"));
    fs::write(&source, &code.text)?;
    let libraries = process::target().join("debug");
    let mut compile = Command::new(compiler);
    compile.args([&format!("-std={standard}"), "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]);
    compile.arg(root().join("crates/granule-capi/include")).arg(&source).arg("-o").arg(&program);
    compile.arg("-L").arg(&libraries).arg("-lgranule_capi");
    process::run(compile.arg(format!("-Wl,-rpath,{}", libraries.display())))?;
    process::output(Command::new(&program).current_dir(stage)).map(drop)
}

/// The files that examples name: the beginning of the recording, which takes no time, on a device that is too small for it.
fn prepare(stage: &Path, granule: &Path) -> Result<()> {
    let recorded = root().join("crates/tools/granule-cli/data/resnet_train.trace.gz");
    let beginning = |events: u32| {
        format!(
            "(echo '# {{\"workload\": \"resnet_train\"}}'; gzip -dc \"$1\" | sed -n '2,{events}p') | gzip -c > \"$2\""
        )
    };
    let cut = |events, to: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &beginning(events), "sh"]).arg(&recorded).arg(stage.join(to));
        process::output(&mut shell)
    };
    for name in TRACES {
        cut(8_000, name)?;
    }
    fs::create_dir(stage.join("snapshots"))?;
    // As the kit for a GPU measures it.
    fs::write(stage.join("driver.jsonl"), "{\"call\":\"cuMemMap\",\"bytes\":2097152,\"median_ns\":9000}\n")?;
    cut(600, "short.trace.gz")?;
    let refused = ["replay", TRACES[0], "--capacity", "4GiB", "--snapshot", SNAPSHOTS[0]];
    let plan = ["plan", "short.trace.gz", "-o", "plan.gz"];
    for words in [refused.as_slice(), &plan] {
        process::output(Command::new(granule).args(words).current_dir(stage))?;
    }
    for name in &SNAPSHOTS[1..] {
        fs::copy(stage.join(SNAPSHOTS[0]), stage.join(name))?;
    }
    Ok(())
}

/// Runs a line. That `granule check` finds a limit exceeded is an answer, and that `granule doctor` finds no GPU.
fn follow(line: &str, stage: &Path, path: &str) -> Result<()> {
    const ANSWERS: [(&str, i32); 2] = [("granule check", 6), ("granule doctor", 7)];
    let mut shell = Command::new("bash");
    shell.args(["-e", "-u", "-o", "pipefail", "-c", line]).current_dir(stage);
    let done = shell.env("PATH", path).env("HOME", stage).stdin(Stdio::null()).output()?;
    let is_answer =
        |(command, code): &(&str, i32)| line.starts_with(command) && done.status.code() == Some(*code);
    let answered = done.status.success() || ANSWERS.iter().any(is_answer);
    ensure!(
        answered,
        "{line}\nended with {}\n{}",
        done.status,
        String::from_utf8_lossy(&done.stderr).trim_end()
    );
    Ok(())
}

fn without_comment(line: &str) -> &str {
    let line = line.split_once(" #").map_or(line, |(line, _)| line).trim();
    line.strip_prefix('#').map_or(line, |_| "")
}

fn fate(line: &str) -> Fate {
    let words = line.split_whitespace().collect::<Vec<_>>();
    let after = |word: &str| words.iter().position(|w| *w == word).and_then(|at| words.get(at + 1));
    let has = |part: &str| line.contains(part);
    match words.as_slice() {
        _ if has("-- python") || has("python train.py") => {
            Fate::LeftOut("runs PyTorch, as `cargo xtask e2e-torch` does")
        }
        _ if has("--backend cuda") || has("vllm serve") || has("sglang") || has("gpukit/run.sh") => {
            Fate::LeftOut("needs a GPU")
        }
        _ if has("granule-recording/") => Fate::LeftOut("names a file that a run of PyTorch wrote"),
        _ if has("duckdb") => Fate::LeftOut("runs in `cargo xtask tables`"),
        _ if has("./your-program") => Fate::LeftOut("names the reader's own program"),
        ["granule", "plan", ..] => Fate::LeftOut("searches for a minute; the command's tests make plans"),
        ["granule" | "export" | "mkdir" | "for", ..] => Fate::Runs,
        ["cargo", "xtask", task, ..] => Fate::Task((*task).to_owned()),
        ["cargo", "run", "--example", ..] => Fate::LeftOut("runs in a crate of its own, as CI does"),
        ["cargo", ..] if after("-p").is_some() => {
            Fate::Package(after("-p").map_or_else(String::new, |p| (*p).to_owned()))
        }
        ["cargo", "run", "--release"] | [".ci/run"] => Fate::LeftOut("is what a first user or CI runs"),
        ["cd" | "cp" | "sed", ..] => {
            Fate::LeftOut("is a vendor's crate, which the tests of `cargo xtask new-backend` build")
        }
        ["cargo", "install", ..] | ["git" | "pip" | "apt-get", ..] => Fate::LeftOut("installs something"),
        _ => Fate::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, fate, follow, foreign_header, without_comment};

    #[test]
    fn a_line_is_run_checked_or_left_out_for_a_reason() {
        assert_eq!(fate("granule inspect snapshot.pickle --json | jq '.moments[0]'"), Fate::Runs);
        assert_eq!(fate("cargo xtask bench latency"), Fate::Task("bench".into()));
        assert_eq!(fate("cargo build --profile dist -p granule-capi"), Fate::Package("granule-capi".into()));
        assert!(matches!(fate("granule record -- python train.py"), Fate::LeftOut(_)));
        assert_eq!(fate("make install"), Fate::Unknown);
        assert_eq!(without_comment("granule devices    # all of them"), "granule devices");
        assert_eq!(without_comment("# only words"), "");
    }

    #[test]
    fn what_includes_only_our_headers_is_compiled() {
        assert_eq!(foreign_header("#include <granule.h>\n#include \"stdio.h\"\n"), None);
        assert_eq!(
            foreign_header("#include <granule/cuda_resource.hpp>\n#include <rmm/a.hpp>\n"),
            Some("rmm/a.hpp")
        );
    }

    #[test]
    fn an_example_that_fails_says_so() {
        let stage = tempfile::tempdir().unwrap();
        let error = follow("cat not-there | wc -l", stage.path(), "/usr/bin:/bin").unwrap_err();
        assert!(error.to_string().contains("ended with"), "{error}");
        follow("echo one > two && cat two", stage.path(), "/usr/bin:/bin").unwrap();
    }
}
