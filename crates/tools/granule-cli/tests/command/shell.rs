//! What a shell and `man` are given.

use super::Place;
use std::process::{Command, Stdio};

/// The commands, as `--help` lists them.
fn commands() -> Vec<String> {
    let help = Place::new().run(&["-h"]).out;
    let listed = help.split("\n\n").nth(2).unwrap();
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect()
}

/// What a program says about a file; `None` where this machine does not have the program.
fn judge(program: &str, args: &[&str], file: &std::path::Path) -> Option<String> {
    let run = Command::new(program).args(args).arg(file).stdin(Stdio::null()).output();
    let Ok(output) = run else {
        eprintln!("skipped: this machine has no {program}");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program}: {said}");
    Some(said)
}

#[test]
fn every_shell_completes_every_command() {
    let commands = commands();
    assert!(commands.len() >= 7, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let place = Place::new();
        let ran = place.run(&["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        for command in &commands {
            assert!(ran.out.contains(command.as_str()), "{shell}: {command}");
        }
        assert!(ran.out.contains("stop-on-oom"), "{shell}");
        place.file("script", ran.out.as_bytes());
        if ["bash", "zsh", "fish"].contains(&shell) {
            judge(shell, &["-n"], &place.path("script"));
        }
    }
}

#[test]
fn bash_completes_a_command_and_an_option() {
    let place = Place::new();
    place.file("script", place.run(&["completions", "bash"]).out.as_bytes());
    let completed = |words: &str| {
        let program = format!(
            ". ./script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _granule granule \"${{COMP_WORDS[$COMP_CWORD]}}\" \"${{COMP_WORDS[$((COMP_CWORD - 1))]}}\"; \
             echo \"${{COMPREPLY[@]}}\""
        );
        let run = Command::new("bash").args(["-c", &program]).current_dir(place.0.path()).output();
        run.ok().map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let Some(first) = completed("granule min") else {
        eprintln!("skipped: this machine has no bash");
        return;
    };
    assert_eq!(first.trim(), "min-capacity");
    assert_eq!(completed("granule replay --stop").unwrap().trim(), "--stop-on-oom");
}

#[test]
fn an_unknown_shell_is_answered_with_those_there_are() {
    let ran = Place::new().run(&["completions", "tcsh"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("bash, elvish, fish, powershell, zsh"), "{}", ran.err);
}

#[test]
fn there_is_a_page_for_every_command() {
    let place = Place::new();
    let ran = place.run(&["man", "-o", "share/man1"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    let read = |name: &str| std::fs::read_to_string(place.path("share/man1").join(name)).unwrap();
    let main = read("granule.1");
    assert_eq!(main, place.run(&["man"]).out, "without a directory the main page is printed");
    let commands = commands();
    let pages = std::fs::read_dir(place.path("share/man1")).unwrap().count();
    assert_eq!(pages, commands.len() + 1);
    for command in &commands {
        let page = read(&format!("granule-{command}.1"));
        let escaped = command.replace('-', "\\-");
        assert!(main.contains(&format!("granule\\-{escaped}")), "granule.1 does not name {command}");
        for part in ["\n.TH ", "\n.SH NAME\n", "\n.SH SYNOPSIS\n", "\n.SH OPTIONS\n", "\n.SH EXAMPLE"] {
            assert!(page.contains(part), "{command}: {part}");
        }
        assert!(page.contains(&format!("\n.nf\ngranule {escaped}")), "{command}: {page}");
    }
    for part in ["\n.SH ENVIRONMENT\n", "\n.SH EXIT CODES\n", "GRANULE_CONF"] {
        assert!(main.replace("\"EXIT CODES\"", "EXIT CODES").contains(part), "{part}: {main}");
    }
}

#[test]
fn pages_are_formatted_without_a_warning() {
    let place = Place::new();
    place.run(&["man", "-o", "."]);
    for command in commands().iter().map(|command| format!("granule-{command}.1")).chain(["granule.1".into()])
    {
        let args = ["-man", "-Tutf8", "-ww", "-z", "-K", "utf8"];
        if let Some(said) = judge("groff", &args, &place.path(&command)) {
            assert_eq!(said, "", "{command}");
        }
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let place = Place::new();
    place.file("taken", b"");
    let ran = place.run(&["man", "-o", "taken/man1"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("taken/man1: ") && ran.err.contains("hint: "), "{}", ran.err);
}
