//! `granule man`: the manual, made of what `granule COMMAND --help` says.

use crate::commands::Outcome;
use crate::failure::Failure;
use crate::result_file::ResultFile;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The arguments of `granule man`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule man | man -l -
  granule man -o ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// Write granule.1 and a page for each command into this directory, which is made if need be [default: print
    /// granule.1]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints the main page, or writes all of them.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    let mut command = crate::commands::command();
    command.build();
    match &args.output {
        Some(directory) => write_all(&command, directory)?,
        None => page(&command, out)?,
    }
    Ok(Outcome::Done)
}

fn write_all(command: &Command, directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory)
        .map_err(|error| Failure::WriteFile { path: directory.to_owned(), error })?;
    let named = command.get_subcommands().filter(|command| !command.is_hide_set());
    for command in std::iter::once(command).chain(named) {
        let path = directory.join(Man::new(command.clone()).get_filename());
        ResultFile::create(&path)?.write(|file| page(command, file))?;
    }
    Ok(())
}

/// A whole page. The sections are the generator's but for examples and what else follows the options: it would run
/// their lines together.
fn page(command: &Command, mut out: &mut dyn Write) -> io::Result<()> {
    let version = concat!("granule ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(version).manual("Granule");
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    after_help(command).to_writer(&mut out)
}

/// What follows the options: `Word:` begins a section, lines that are set in stay lines of their own.
fn after_help(command: &Command) -> Roff {
    let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let mut roff = Roff::new();
    for line in text.lines() {
        match line.strip_suffix(':') {
            Some(heading) if !line.starts_with(' ') => roff.control("SH", [heading.to_uppercase().as_str()]),
            _ if line.is_empty() => roff.control("PP", []),
            _ if line.starts_with(' ') => {
                roff.control("nf", []);
                roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
                roff.control("fi", [])
            }
            _ => roff.text([roman(line)]),
        };
    }
    roff
}
