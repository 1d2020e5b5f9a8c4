//! Every function of the header, called where handles are no good: in a forked child, and after they were ended. The calls are made
//! from the header, so a new function is among them.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test says what is wrong by panicking

use granule_capi::error::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// What there are handles of.
const HANDLES: [&str; 11] = [
    "allocator",
    "buffer",
    "capture",
    "checkpoint",
    "graph",
    "host_allocator",
    "import",
    "registered",
    "scope",
    "snapshot",
    "window",
];

/// Each with what ends it, in an order in which they may end.
const ENDS: [(&str, &str); 11] = [
    ("window", "window_close(h_window)"),
    ("registered", "registered_close(h_registered)"),
    ("import", "import_close(h_import)"),
    ("capture", "capture_abort(h_capture)"),
    ("graph", "graph_destroy(h_graph)"),
    ("checkpoint", "checkpoint_free(h_checkpoint)"),
    ("snapshot", "snapshot_free(h_snapshot)"),
    ("scope", "scope_end(h_scope, NULL)"),
    ("buffer", "buffer_destroy(h_buffer)"),
    ("host_allocator", "host_destroy(h_host_allocator)"),
    ("allocator", "allocator_destroy(h_allocator)"),
];

/// What a forked child may ask: it says what the child knows without the driver, changes what is the child's alone, or answers that
/// the argument is wrong before anything else. Whatever is not here is refused as a fork's.
const HARMLESS: [&str; 93] = [
    "abandon",
    "abi_version",
    "add_budget_observer",
    "add_free_memory_callback",
    "add_oom_observer",
    "add_rejection_observer",
    "add_segment_observer",
    "add_spill_hook",
    "allocator_create",
    "allocator_destroy",
    "backend_name",
    "backends_json",
    "backup_bytes",
    "block_device",
    "block_size",
    "buffer_destroy",
    "buffer_ptr",
    "buffer_to_dlpack",
    "bytes_free",
    "capture_abort",
    "capture_pool",
    "check_backend",
    "check_settings",
    "checkpoint_free",
    "context_of",
    "delta_free",
    "device_count",
    "drop_backups",
    "enable",
    "graph_destroy",
    "graph_pools",
    "host_abandon",
    "host_buckets",
    "host_destroy",
    "host_free",
    "host_is_history_enabled",
    "host_note_registered",
    "host_note_unregistered",
    "host_reset_accumulated_stats",
    "host_reset_peak_stats",
    "host_snapshot_take",
    "host_stats",
    "import_base",
    "import_bytes",
    "import_close",
    "is_asleep",
    "is_enabled",
    "is_history_enabled",
    "last_error",
    "last_error_details",
    "last_error_for_pytorch",
    "last_error_json",
    "mark_range",
    "pluggable_allocator",
    "pluggable_base_allocation",
    "pluggable_free",
    "pluggable_init",
    "pluggable_malloc",
    "pluggable_record_stream",
    "pluggable_reset",
    "pluggable_set_memory_fraction",
    "pool_create",
    "pool_fresh",
    "pool_fresh_for_capture",
    "pop_compile_context",
    "prometheus",
    "push_compile_context",
    "read_backup",
    "record_flush",
    "record_history",
    "record_json",
    "record_mark",
    "record_stop",
    "registered_close",
    "registered_held",
    "set_process_memory_source",
    "set_user_metadata",
    "settings",
    "settings_in_force",
    "sleep_report_json",
    "snapshot_free",
    "snapshot_json",
    "snapshot_pickle",
    "snapshot_ranges",
    "snapshot_segments",
    "snapshot_take",
    "snapshot_trace",
    "user_metadata",
    "version",
    "window_base",
    "window_bytes",
    "window_close",
    "window_physical",
];

const MAIN: &str = r#"
#define GOOD(call) do { if ((call) != GRANULE_OK) { \
    printf("%s: %s\n", #call, granule_last_error()); return 1; } } while (0)
static granule_options options = {sizeof options, "openreg", "policy:granule", NULL, NULL};
/* Another process, which shares a block until it is killed. */
static int exports(int to) {
    void *ptr = NULL;
    granule_bytes handle;
    uint64_t offset = 0;
    GOOD(granule_allocator_create(&options, &h_allocator));
    GOOD(granule_malloc(h_allocator, 1000, 0, 0, &ptr));
    GOOD(granule_share(h_allocator, ptr, &handle, &offset));
    return write(to, handle.data, handle.len) == (ssize_t)handle.len ? pause() : 1;
}
int main(void) {
    int ends_of_pipe[2];
    if (pipe(ends_of_pipe) != 0) return 1;
    pid_t exporter = fork();
    if (exporter == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(exports(ends_of_pipe[1]));
    }
    uint8_t shared_block[4096];
    ssize_t shared_length = read(ends_of_pipe[0], shared_block, sizeof shared_block);
    if (shared_length <= 0) return 1;
    GOOD(granule_allocator_create(&options, &h_allocator));
    granule_allocator *shared = NULL, *a = h_allocator;
    GOOD(granule_pluggable_allocator(&shared));
    GOOD(granule_malloc(a, 1000, 0, 0, &block));
    GOOD(granule_buffer_create(a, 1000, 0, 0, &h_buffer));
    GOOD(granule_pool_checkpoint(a, 0, pool, &h_checkpoint));
    granule_budget budget = {sizeof budget, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    GOOD(granule_tenant_create(a, 0, "a", &budget, &tenant));
    GOOD(granule_host_create(a, &h_host_allocator));
    GOOD(granule_scope_begin(a, 0, &h_scope));
    GOOD(granule_snapshot_take(a, NULL, true, &h_snapshot));
    GOOD(granule_open_shared(a, 0, shared_block, (uint64_t)shared_length, &h_import));
    granule_pool_id own = granule_pool_fresh();
    GOOD(granule_registered_pool_create(a, 0, own, 0, NULL, 0, &h_registered));
    granule_filter always = {sizeof always, 0, 0, NULL, NULL, NULL};
    GOOD(granule_pool_begin(a, 0, own, &always));
    void *registered = NULL;
    GOOD(granule_malloc(a, 1000, 0, 0, &registered));
    GOOD(granule_pool_end(a, 0, own));
    GOOD(granule_window_open(h_registered, registered, &h_window));
    uint64_t stream = 0;
    GOOD(granule_stream_create(a, 0, 0, &stream));
    GOOD(granule_capture_begin(a, 0, stream, 0, NULL, &h_capture));
    GOOD(granule_capture_end(h_capture, &h_graph));
    GOOD(granule_capture_begin(a, 0, stream, 0, NULL, &h_capture));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        calls("forked");
        _exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) {
        printf("the child ended with %d\n", status);
        return 1;
    }
    GOOD(granule_free(a, registered));
    ends();
    calls("ended");
    return 0;
}
"#;

/// Arguments of a function, split where no parenthesis is open.
fn split(arguments: &str) -> Vec<String> {
    let (mut depth, mut found) = (0, vec![String::new()]);
    for letter in arguments.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        match letter {
            ',' if depth == 0 => found.push(String::new()),
            _ => found.last_mut().unwrap().push(letter),
        }
    }
    found
        .into_iter()
        .map(|one| one.trim().to_owned())
        .filter(|one| !one.is_empty() && one != "void")
        .collect()
}

/// The header without comments, on one line.
fn header() -> String {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/granule.h")).unwrap();
    let mut bare = String::new();
    for (at, part) in text.split("/*").enumerate() {
        bare += if at == 0 { part } else { part.split_once("*/").unwrap().1 };
    }
    bare.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ")
}

/// Each function by its name, with what it gives back and takes.
fn functions(header: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let declared = header.split(['}', ';']).filter(|one| !one.contains("typedef") && one.contains('('));
    let one = |text: &str| {
        let (before, arguments) = text.trim().strip_suffix(')')?.split_once('(')?;
        let at = before.rfind("granule_")?;
        let name = &before[at..];
        // Not a field that is a function.
        name.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(())?;
        let gives = before[..at].trim().trim_start_matches("extern \"C\" {").trim();
        Some((name.to_owned(), (gives.to_owned(), split(arguments))))
    };
    declared.filter_map(one).collect()
}

fn argument(header: &str, at: usize, text: &str) -> String {
    if text.contains("(*") {
        return "(void *)nothing".into();
    }
    let name = text.rsplit([' ', '*']).next().unwrap();
    let kind = text.strip_suffix(name).unwrap().trim();
    let pointed = kind.strip_suffix('*').map(|kind| kind.trim_start_matches("const ").trim());
    match (pointed, kind) {
        (Some(kind), _) if HANDLES.iter().any(|of| kind == format!("struct granule_{of}")) => {
            kind.replace("struct granule_", "h_")
        }
        (Some("void"), _) if name == "user" => "0".into(),
        (Some("void"), _) => "block".into(),
        (Some("char"), _) if name == "name" => "\"openreg\"".into(),
        (Some("char"), _) if name == "options" => "\"recording\"".into(),
        (Some("char"), _) => "\"\"".into(),
        (Some(kind), _) if kind.starts_with("struct") && !kind.ends_with('*') => {
            let begins = header.split_once(&format!("typedef {kind} {{")).unwrap().1;
            let grows = begins.trim_start().starts_with("uint32_t size;");
            format!("place({at}, {})", if grows { format!("sizeof({kind})") } else { "0".into() })
        }
        (Some(_), _) => format!("place({at}, 0)"),
        (None, "struct granule_pool_id") => "pool".into(),
        (None, "uint64_t") if matches!(name, "hard" | "soft") => "UINT64_MAX".into(),
        (None, "uint64_t") if name == "tenant" => "tenant".into(),
        (None, "uint64_t" | "int64_t") if name == "bytes" || name == "size" => "512".into(),
        (None, "uint64_t" | "int64_t" | "uint32_t" | "int32_t" | "int" | "bool" | "double") => "0".into(),
        (None, other) => panic!("{other} {name}: say here what is passed"),
    }
}

fn program() -> String {
    let header = header();
    let functions = functions(&header);
    assert!(functions.len() > 200, "{}", functions.len());
    let mut text = "#include \"granule.h\"\n#include <signal.h>\n#include <sys/prctl.h>\n#include <stdio.h>\n#include <string.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
                    static void *block;\nstatic granule_pool_id pool;\nstatic uint64_t tenant;\nstatic void nothing(void) {}\n\
                    static void *place(int at, size_t size) {\n    static uint64_t places[16][1024];\n    \
                    memset(places[at], 0, sizeof places[at]);\n    *(uint32_t *)places[at] = (uint32_t)size;\n    \
                    return places[at];\n}\n\
                    static void says(const char *when, const char *name, int status) {\n    \
                    printf(\"%s %s %d %s\\n\", when, name, status, status ? granule_last_error() : \"\");\n    fflush(stdout);\n}\n"
        .to_owned();
    for of in HANDLES {
        writeln!(text, "static granule_{of} *h_{of};").unwrap();
    }
    // What ends a handle comes last, and what ends an allocator after that.
    let ending = |name: &str| {
        let ends = ENDS.iter().position(|(_, call)| name[8..] == call[..call.find('(').unwrap()]);
        if name == "granule_capture_end" { 1 } else { ends.map_or(0, |at| at + 1) }
    };
    let mut order: Vec<_> = functions.iter().collect();
    order.sort_by_key(|(name, _)| ending(name));
    text += "static void calls(const char *when) {\n";
    for (name, (gives, arguments)) in order {
        let given: Vec<_> =
            arguments.iter().enumerate().map(|(at, text)| argument(&header, at, text)).collect();
        let call = format!("{name}({})", given.join(", "));
        match &**gives {
            "granule_status" => writeln!(text, "    says(when, \"{name}\", {call});"),
            _ => writeln!(text, "    (void){call};\n    says(when, \"{name}\", 0);"),
        }
        .unwrap();
    }
    text += "}\nstatic void ends(void) {\n";
    for (_, call) in ENDS {
        writeln!(text, "    (void)granule_{call};").unwrap();
    }
    text + "}\n" + MAIN
}

#[test]
fn every_function_is_refused_in_a_forked_child_and_by_handles_that_were_ended() {
    let made = tempfile::tempdir().unwrap();
    let (source, program_) = (made.path().join("calls.c"), made.path().join("calls"));
    std::fs::write(&source, program()).unwrap();
    let test = std::env::current_exe().unwrap();
    let libraries = test.parent().unwrap();
    let mut compile = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    compile.args(["-std=c11", "-D_GNU_SOURCE", "-g", "-Wno-nonnull", "-I"]);
    compile.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include")).arg(&source).arg("-o").arg(&program_);
    compile.arg("-L").arg(libraries).arg("-lgranule_capi").arg(format!("-Wl,-rpath,{}", libraries.display()));
    let compiled = compile.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut run = Command::new(&program_);
    run.env("GRANULE_BACKEND", "openreg").env("GRANULE_LOG", "off").env_remove("GRANULE_CONF");
    let ran = run.current_dir(made.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{}: {said}{}", ran.status, String::from_utf8_lossy(&ran.stderr));
    let (mut wrong, functions) = (Vec::new(), functions(&header()));
    for line in said.lines() {
        let (when, rest) = line.split_once(' ').unwrap();
        let (name, rest) = rest.split_once(' ').unwrap();
        let (status, text) = rest.split_once(' ').unwrap();
        let (gives, arguments) = &functions[name];
        let has_handle = arguments.iter().any(|one| {
            HANDLES
                .iter()
                .any(|of| one.trim_start_matches("const ").starts_with(&format!("struct granule_{of} *")))
                && !one.contains("**")
        });
        let right = match (when, status.parse::<i32>().unwrap()) {
            ("forked", GRANULE_FORKED) => !HARMLESS.contains(&&name[8..]),
            ("forked", GRANULE_OK | GRANULE_INVALID_ARGUMENT | GRANULE_INVALID_POINTER) => {
                HARMLESS.contains(&&name[8..])
            }
            ("ended", GRANULE_INVALID_ARGUMENT) if has_handle => {
                text.ends_with("was ended already: it is no handle any more")
            }
            ("ended", _) => !has_handle || gives != "granule_status",
            _ => false,
        };
        wrong.extend((!right).then_some(line));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(said.lines().count(), 2 * functions.len());
}
