//! `granule completions`: what a shell completes after `granule`.

use crate::commands::Outcome;
use crate::failure::Failure;
use clap_complete::Shell;
use std::io::Write;

/// The arguments of `granule completions`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  granule completions bash > ~/.local/share/bash-completion/completions/granule
  granule completions zsh > \"${fpath[1]}/_granule\"
  granule completions fish > ~/.config/fish/completions/granule.fish
  granule completions powershell >> $PROFILE
  granule completions elvish >> ~/.config/elvish/rc.elv")]
pub(crate) struct Args {
    /// The shell that reads it
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, Failure> {
    // Into memory first: the generator takes a closed pipe for a defect of the program.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::commands::command(), "granule", &mut script);
    out.write_all(&script)?;
    Ok(Outcome::Done)
}
