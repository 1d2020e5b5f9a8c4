//! C programs over the shared library and its header, each exercising a family over the simulated device. They are C99, and
//! the header is C++17, too. Each runs under every policy.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use granule::config::PolicyName;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Where cargo puts the shared library beside the tests.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    assert!(test.with_file_name("libgranule_capi.so").exists(), "the shared library was not built");
    test.parent().unwrap().to_owned()
}

fn compiler(variable: &str, usual: &str) -> Command {
    let mut command = Command::new(std::env::var(variable).unwrap_or_else(|_| usual.to_owned()));
    command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-I"]).arg(folder("include"));
    command
}

fn succeeds(command: &mut Command, what: &str) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{said}", output.status);
}

fn runs(name: &str, policy: PolicyName) {
    let made = tempfile::tempdir().unwrap();
    let program = made.path().join(name);
    let mut compile = compiler("CC", "cc");
    compile.args(["-std=c99", "-D_GNU_SOURCE"]).arg(folder("tests/c").join(name).with_extension("c"));
    compile.arg("-o").arg(&program).arg("-L").arg(libraries()).arg("-lgranule_capi");
    compile.arg(format!("-Wl,-rpath,{}", libraries().display()));
    succeeds(&mut compile, "compiling");
    let mut run = Command::new(&program);
    for variable in
        ["GRANULE_BACKEND", "GRANULE_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "GRANULE_RECORD"]
    {
        run.env_remove(variable);
    }
    run.env("CHECK_POLICY", policy.name());
    if name == "pluggable" {
        // Its allocator is the process's, which the environment makes.
        run.env("GRANULE_CONF", format!("policy:{policy}"));
    }
    succeeds(run.current_dir(made.path()), &format!("{name} under policy:{policy}"));
}

macro_rules! programs {
    ($($name:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                for policy in PolicyName::ALL {
                    runs(stringify!($name), *policy);
                }
            }
        )+

        #[test]
        fn every_program_is_run() {
            let mut there: Vec<String> = std::fs::read_dir(folder("tests/c"))
                .unwrap()
                .map(|file| file.unwrap().path())
                .filter(|path| path.extension().is_some_and(|ending| ending == "c"))
                .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            there.sort();
            assert_eq!(there, [$(stringify!($name)),+]);
        }
    };
}

programs!(
    budgets, device, errors, exchange, history, host, log, memory, pluggable, policy, pools, record, share,
    sleep
);

/// Both headers in one source, whichever comes first: a vendor's runtime that allocates, too.
#[test]
fn the_vendors_header_may_stand_beside_it() {
    let made = tempfile::tempdir().unwrap();
    let vendors = folder("../backend-c/include");
    let (ours, theirs) = ("#include \"granule.h\"\n", "#include \"granule_backend.h\"\n");
    let program = "extern const granule_backend_table npu;\n\
                   granule_status make(granule_allocator **out);\n\
                   granule_status make(granule_allocator **out) {\n    granule_options options;\n    \
                   options.size = sizeof options;\n    options.backend = options.settings = 0;\n    \
                   options.table = &npu;\n    return granule_allocator_create(&options, out);\n}\n\
                   typedef char ok[GRANULE_OUT_OF_MEMORY == 1 && GRANULE_BACKEND_OUT_OF_MEMORY == 2 ? 1 : -1];\n\
                   granule_backend_status full(void);\n\
                   granule_backend_status full(void) { return GRANULE_BACKEND_OUT_OF_MEMORY; }\n";
    for includes in [[ours, theirs], [theirs, ours]] {
        for (variable, usual, standard, ending) in
            [("CC", "cc", "c99", "c"), ("CXX", "c++", "c++11", "cpp"), ("CXX", "c++", "c++17", "cpp")]
        {
            let source = made.path().join("both").with_extension(ending);
            std::fs::write(&source, includes.concat() + program).unwrap();
            let mut compile = compiler(variable, usual);
            compile.args(["-fsyntax-only", "-I"]).arg(&vendors);
            succeeds(
                compile.arg(format!("-std={standard}")).arg(&source),
                &format!("{standard}, {includes:?}"),
            );
        }
    }
}

/// A program in C++17 with this text.
fn cpp_program(folder: &Path, text: &str) -> PathBuf {
    let source = folder.join("program.cpp");
    std::fs::write(&source, text).unwrap();
    let program = folder.join("program");
    let mut compile = compiler("CXX", "c++");
    compile.arg("-std=c++17").arg(&source).arg("-o").arg(&program).arg("-L").arg(libraries());
    compile.arg("-lgranule_capi").arg(format!("-Wl,-rpath,{}", libraries().display()));
    succeeds(&mut compile, "compiling");
    program
}

/// The header says so: nobody could continue the program in a known state.
#[test]
fn what_a_callback_in_cpp_throws_ends_the_process_with_a_word() {
    let made = tempfile::tempdir().unwrap();
    let text = "#include \"granule.h\"\n\
                static void observer(void *, const granule_segment_event *) { throw 1; }\n\
                int main() {\n    granule_options options = {sizeof options, \"openreg\", \"\", nullptr, nullptr};\n\
                granule_allocator *a = nullptr;\n    void *ptr = nullptr;\n\
                if (granule_allocator_create(&options, &a) != GRANULE_OK) return 2;\n\
                if (granule_add_segment_observer(a, observer, nullptr) != GRANULE_OK) return 3;\n\
                return granule_malloc(a, 1000, 0, 0, &ptr) == GRANULE_OK ? 4 : 5;\n}\n";
    let done = Command::new(cpp_program(made.path(), text)).output().unwrap();
    assert_eq!(done.status.code(), None, "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("foreign exception"), "{done:?}");
}

#[test]
fn the_header_is_cpp_17() {
    let made = tempfile::tempdir().unwrap();
    let text = "#include \"granule.h\"\n#include \"granule.h\"\n\
                static_assert(sizeof(granule_status) == 4 && GRANULE_CALLBACK == 25, \"\");\n\
                int main() {\n    granule_status (*free)(granule_allocator *, void *) = granule_free;\n\
                return free(nullptr, nullptr) == GRANULE_INVALID_ARGUMENT ? 0 : 1;\n}\n";
    succeeds(&mut Command::new(cpp_program(made.path(), text)), "program");
}
