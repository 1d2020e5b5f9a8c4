//! Opening the page.

use super::address;
use crate::console;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a browser has to say that it does not start.
const PATIENCE: Duration = Duration::from_millis(600);

/// Opens the page in the user's browser, and does not wait for it.
pub(super) fn open(path: &Path) {
    let chosen = std::env::var("BROWSER").unwrap_or_default();
    let mut words = chosen.split_whitespace();
    let browser = words.next().unwrap_or("xdg-open");
    let mut command = Command::new(browser);
    command.args(words).arg(address(path)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // It goes on when the terminal is interrupted.
    let failed = match command.process_group(0).spawn() {
        Err(error) => Some(error.to_string()),
        Ok(mut child) => {
            std::thread::sleep(PATIENCE);
            let ended = child.try_wait().ok().flatten();
            ended.filter(|status| !status.success()).map(|status| status.to_string())
        }
    };
    if let Some(why) = failed {
        console::warning(format_args!("{browser} does not open the page: {why}; BROWSER names another"));
    }
}
