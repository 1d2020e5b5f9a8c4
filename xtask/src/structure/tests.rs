//! Small trees with something wrong in each.

use super::known::{FILE, Known};
use super::limits::Breach;
use super::{Options, Report, lines, report, run, source};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A checkout with one crate, `crates/alloc-core`, of these files.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "Cargo.toml", "[package]\nname = \"alloc-core\"\n");
    files.iter().for_each(|(path, text)| write(root.path(), path, text));
    root
}

fn write(root: &Path, path: &str, text: &str) {
    let file = root.join("crates/alloc-core").join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn look(root: &TempDir) -> Report {
    let known = Known::read(root.path()).unwrap();
    report(&source::packages(root.path()).unwrap(), &known)
}

/// The breaches, as they are printed but for the crate's folder.
fn breaches(root: &TempDir) -> Vec<String> {
    let text = |breach: &Breach| breach.to_string().replacen("crates/alloc-core/", "", 1);
    look(root).new.iter().map(text).collect()
}

fn fails(root: &TempDir) -> bool {
    run(&Options { root: Some(root.path().to_owned()), ..Options::default() }).is_err()
}

fn lines_of(count: usize, line: &str) -> String {
    format!("{line}\n").repeat(count)
}

#[test]
fn a_file_a_function_and_a_folder_may_be_so_large_and_no_larger() {
    let longest = format!("fn f() {{\n{}}}\n", lines_of(58, "    g();"));
    let root = tree(&[("src/lib.rs", &longest), ("src/long.rs", &lines_of(600, "// A line."))]);
    assert_eq!(breaches(&root), [""; 0]);
    assert!(!fails(&root));

    let longer = longest.replacen("g();", "g();\n    g();", 1);
    let in_a_macro = format!("define! {{ pub fn m(x: u8) -> u8 {{\n{}}} }}\n", lines_of(60, "x;"));
    let in_an_impl =
        format!("impl T {{\n#[doc(hidden)]\n{longer}}}\n#[cfg(test)]\nmod tests {{\n{longer}}}\n");
    write(root.path(), "src/lib.rs", &format!("{longer}{in_a_macro}{in_an_impl}"));
    write(root.path(), "src/long.rs", &lines_of(601, "// A line."));
    write(
        root.path(),
        "tests/made.rs",
        &format!("//! Do not edit: `cargo xtask made`.\n{}", lines_of(700, "")),
    );
    (0..16).for_each(|number| write(root.path(), &format!("src/many/part{number}.cpp"), ""));
    (0..16).for_each(|number| write(root.path(), &format!("src/many/part{number}.h"), ""));
    assert_eq!(
        breaches(&root),
        [
            "file-lines, src/long.rs, , 601, 600",
            "folder-entries, src/many, , 16, 15",
            "function-lines, src/lib.rs, T::f, 61, 60",
            "function-lines, src/lib.rs, f, 61, 60",
            "function-lines, src/lib.rs, m, 62, 60",
            "function-lines, src/lib.rs, tests::f, 61, 60",
        ]
    );
    assert!(fails(&root));
}

#[test]
fn methods_are_counted_over_impls_own_traits_and_functions() {
    let methods = |from: usize, to: usize| -> String {
        (from..to).map(|number| format!("pub fn m{number}(&self) {{}}\n")).collect()
    };
    let lib = format!(
        "mod more;\nmod other;\npub struct Part<T>(T);\ntype Alias = Part<u8>;\ntrait Own {{ fn own(&self); fn given(&self) {{}} }}\n\
         impl<T> Part<T> {{\n{}}}\nimpl Clone for Part<u8> {{ fn clone(&self) -> Self {{ todo() }} }}\n\
         fn takes(part: &mut std::sync::Arc<Part<u8>>) {{}}\nfn is_other(part: &other::Part) {{}}\n\
         #[cfg(test)]\nimpl Part<u8> {{ fn only_tests(&self) {{}} }}\n",
        methods(0, 30)
    );
    // The same name in another module is another type, and a method that conditions choose counts once.
    let other = format!(
        "pub struct Part;\nimpl Part {{ #[cfg(unix)] fn a(&self) {{}} #[cfg(windows)] fn a(&self) {{}} {} }}",
        methods(0, 20)
    );
    let more = |last: usize| {
        format!(
            "use super::{{Alias, Own}};\nimpl crate::Part<u8> {{\n{}}}\nimpl Own for Alias {{ fn own(&self) {{}} }}\nimpl_all! {{ impl super::Part<u8> {{ fn made(&self) {{}} }} }}\n",
            methods(30, last)
        )
    };
    let root = tree(&[("src/lib.rs", &lib), ("src/more.rs", &more(37)), ("src/other.rs", &other)]);
    assert_eq!(breaches(&root), [""; 0], "40 methods");
    write(root.path(), "src/more.rs", &more(38));
    assert_eq!(breaches(&root), ["methods, src/lib.rs, Part, 41, 40"]);
    write(root.path(), "src/lib.rs", &format!("//! Do not edit: `cargo xtask made`.\n{lib}"));
    assert_eq!(breaches(&root), [""; 0], "generated");
}

#[test]
fn the_engine_as_a_whole_has_few_fields() {
    let fields: String = (0..13).map(|number| format!("f{number}: Inner,\n")).collect();
    let lib = format!(
        "pub struct DeviceAllocator {{\n{fields}}}\nstruct Inner {{ a: u8 }}\nstruct Other {{\n{fields}}}\n"
    );
    let root = tree(&[("src/lib.rs", &lib)]);
    assert_eq!(breaches(&root), ["fields, src/lib.rs, DeviceAllocator, 13, 12"]);
    let report = serde_json::to_value(look(&root).crates).unwrap();
    let types = report[0]["types"].as_array().unwrap();
    let whole = types.iter().find(|found| found["name"] == "DeviceAllocator").unwrap();
    assert_eq!(whole["fields"][12]["fields"], serde_json::json!(["Inner.a"]), "fields of fields are listed");
}

#[test]
fn parts_keep_their_fields_to_themselves_and_data_need_not() {
    let lib = "
        use std::sync::{Arc, Mutex};
        pub(crate) struct Part { pub(crate) state: Mutex<u8>, pub(self) own: u8, other: u8 }
        impl Part { fn read(&self) -> u8 { 0 } }
        pub(crate) struct Deep { pub(super) part: Part }
        impl Deep { fn read(&self) -> u8 { 0 } }
        struct Counter { pub(in crate) count: u8 }
        impl Counter { fn add(&mut self) {} }
        pub(crate) struct Request { pub(crate) part: Arc<Part>, pub(crate) size: u8 }
        impl Request { fn is_small(&self) -> bool { true } }
        pub struct Options { pub size: u8 }
        impl Options { pub fn merge(&mut self, other: &Self) {} }
        struct Bare { pub(crate) lock: Mutex<u8> }
    ";
    let root = tree(&[("src/lib.rs", lib)]);
    assert_eq!(
        breaches(&root),
        [
            "open-fields, src/lib.rs, Counter, 1, 0",
            "open-fields, src/lib.rs, Deep, 1, 0",
            "open-fields, src/lib.rs, Part, 1, 0",
        ]
    );
}

#[test]
fn circles_are_found_by_use_by_path_and_through_re_exports() {
    let lib = "mod a;\nmod b;\nmod c;\n#[path = \"elsewhere/d.rs\"]\nmod d;\nmod e { pub(in crate::a) fn f() {} }\npub use d::Late;\n";
    let none = "pub struct Early;\n#[cfg(test)]\nmod tests { use crate::b::B; }\n";
    let root = tree(&[
        ("src/lib.rs", lib),
        ("src/a.rs", none),
        ("src/b.rs", "pub struct B(crate::a::Early);\n"),
        ("src/c.rs", "pub struct C;\nfn f() { println!(\"{}\", 1); }\n"),
        ("src/elsewhere/d.rs", "use crate::c;\npub struct Late(c::C);\n"),
    ]);
    assert_eq!(breaches(&root), [""; 0]);
    for (path, text, cycle) in [
        ("src/a.rs", "use crate::b::B;\n", "a b"),
        ("src/a.rs", "fn f() { super::b::g(); }\n", "a b"),
        ("src/a.rs", "fn f() { assert!(x, \"{}\", $crate::b::g()); }\n", "a b"),
        ("src/a.rs", "fn f() { use crate::*; b::g(); }\n", "a b"),
        ("src/a/inner.rs", "use crate::{self as root, b};\n", "a b"),
        ("src/c.rs", "use crate::Late;\n", "c d"),
        ("src/c.rs", "use super::*;\nfn f(late: Late) {}\n", "c d"),
    ] {
        let before = fs::read_to_string(root.path().join("crates/alloc-core").join(path)).unwrap_or_default();
        write(root.path(), path, &format!("{before}{text}"));
        if path == "src/a/inner.rs" {
            write(root.path(), "src/a.rs", "mod inner;\npub struct Early;\n");
        }
        let found = breaches(&root);
        assert!(
            found.contains(&format!("module-cycle, src/lib.rs, {cycle}, 2, 1")),
            "{path} {text}: {found:?}"
        );
        let report = look(&root);
        let arrows = &report.crates[0].cycles[0].arrows;
        assert!(arrows.iter().any(|arrow| arrow.at.contains(path)), "the import is shown");
        write(root.path(), path, &before);
        write(root.path(), "src/a.rs", none);
    }
    assert_eq!(breaches(&root), [""; 0]);
}

#[test]
fn two_files_may_need_each_other_and_three_may_not() {
    let root = tree(&[
        ("src/lib.rs", "mod a;\n"),
        ("src/a.rs", "mod b;\nmod c;\nmod d;\npub struct A(b::B, c::C, d::D);\n"),
        ("src/a/b.rs", "pub struct B(super::c::C);\nfn f(a: &super::A) {}\n"),
        ("src/a/c.rs", "pub struct C(Box<super::b::B>);\nfn f(a: &super::A) {}\n"),
        ("src/a/d.rs", "pub struct D;\nfn f(a: &super::A) {}\n"),
    ]);
    assert_eq!(breaches(&root), [""; 0], "what a file is made of may know it");
    write(root.path(), "src/a/c.rs", "use super::d::D;\npub struct C(D);\n");
    write(root.path(), "src/a/d.rs", "pub struct D(Vec<crate::a::b::B>);\n");
    let members = ["b", "c", "d"].map(|file| format!("src/a/{file}.rs")).join(" crates/alloc-core/");
    assert_eq!(breaches(&root), [format!("file-cycle, src/lib.rs, crates/alloc-core/{members}, 3, 2")]);
}

#[test]
fn the_list_of_known_excesses_only_shrinks() {
    let circle = |modules: &[&str]| -> Vec<(String, String)> {
        let next = modules.iter().cycle().skip(1);
        let file = |(name, next): (&&str, &&str)| (format!("src/{name}.rs"), format!("use crate::{next};\n"));
        modules.iter().zip(next).map(file).collect()
    };
    let long = |lines| lines_of(lines, "// A line.");
    let root = tree(&[
        ("src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n"),
        ("src/long.rs", &long(700)),
        ("src/d.rs", ""),
    ]);
    circle(&["a", "b", "c"]).iter().for_each(|(path, text)| write(root.path(), path, text));
    fs::create_dir(root.path().join("xtask")).unwrap();
    let at = |options: Options| Options { root: Some(root.path().to_owned()), ..options };
    assert!(fails(&root));
    run(&at(Options { update: true, ..Options::default() })).unwrap();
    assert!(!fails(&root), "what is known passes");
    assert!(run(&at(Options { strict: true, ..Options::default() })).is_err(), "but not strictly");
    assert_eq!(look(&root).known, 3);

    write(root.path(), "src/long.rs", &long(701));
    assert_eq!(breaches(&root), ["file-lines, src/long.rs, , 701, 600"], "no worse than known");
    for (lines, said) in
        [(650, "650, the list says 700"), (600, "within the limit or gone, the list says 700")]
    {
        write(root.path(), "src/long.rs", &long(lines));
        let report = look(&root);
        assert_eq!(report.stale, [format!("file-lines, crates/alloc-core/src/long.rs: {said}")]);
        assert!(report.new.is_empty() && fails(&root), "what became better leaves the list");
    }
    write(root.path(), "src/long.rs", &long(700));

    // A smaller circle within a known one is better, one with another module is worse.
    write(root.path(), "src/c.rs", "");
    circle(&["a", "b"]).iter().for_each(|(path, text)| write(root.path(), path, text));
    let report = look(&root);
    assert!(report.new.is_empty() && report.stale.len() == 2, "{:?}", report.stale);
    circle(&["a", "b", "c", "d"]).iter().for_each(|(path, text)| write(root.path(), path, text));
    assert!(breaches(&root).contains(&"module-cycle, src/lib.rs, a b c d, 4, 1".to_owned()));
    assert!(fs::read_to_string(root.path().join(FILE)).unwrap().contains("\n[module-cycle]\n"));
}

#[test]
fn production_lines_are_those_of_no_test() {
    let lib = "
        mod a;
        #[cfg(test)]
        mod tests;
        struct S {
            field: u8, // A remark.
            #[cfg(test)]
            probe: u8,
        }
        #[cfg(test)]
        impl S {
            fn probe(&self) {}
        }
        fn f() {
            #[cfg(test)]
            println!();
            g();
        }
    ";
    let root = tree(&[
        ("src/lib.rs", lib),
        ("src/tests.rs", "mod helper;\nfn t() {}\n"),
        ("src/tests/helper.rs", "fn t() {}\n"),
        ("src/a.rs", "/// Said.\npub fn a() {}\n"),
        ("src/made.rs", "//! Do not edit: `cargo xtask made`.\nfn m() {}\n"),
        ("tests/t.rs", "fn t() {}\n"),
        ("benches/b.py", "b = 1\n"),
        ("python/p.py", "# Said.\np = 1\n"),
    ]);
    let packages = source::packages(root.path()).unwrap();
    let count = lines::count(&packages[0]).unwrap();
    let counted: Vec<_> = count.iter().map(|(language, lines)| (language.name(), *lines)).collect();
    assert_eq!(counted, [("Rust", 8), ("Python", 1)]);
    let table = lines::table(&[(packages[0].folder.clone(), count)]);
    assert!(
        table.lines().last().unwrap().split_whitespace().eq(["all", "but", "xtask", "8", "0", "1", "0", "9"]),
        "{table}"
    );
}

#[test]
fn a_folder_without_crates_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let error = run(&Options { root: Some(root.path().to_owned()), ..Options::default() }).unwrap_err();
    assert!(error.to_string().contains("has no crates"), "{error}");
}
