//! What subcommands show while they work, and how they write files.

use faultline::{Error, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

/// Progress on standard error, where that is a terminal.
pub struct Bars {
    hidden: bool,
}

impl Bars {
    /// Bars that are shown unless `quiet`.
    pub fn new(quiet: bool) -> Bars {
        Bars { hidden: quiet }
    }

    fn bar(&self, length: u64, template: &str) -> ProgressBar {
        let bar = ProgressBar::new(length);
        if self.hidden || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    }

    /// Of bytes out of `length`.
    pub fn bytes(&self, length: u64, message: &str) -> ProgressBar {
        let bar = self.bar(length, "{msg} {bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec}");
        bar.set_message(message.to_owned());
        bar
    }

    /// Of runs out of `length`.
    pub fn runs(&self, length: u64) -> ProgressBar {
        self.bar(length, "{pos}/{len} runs {bar:30} {elapsed}/{duration} {msg}")
    }

    /// Of work whose length is not known.
    pub fn spinner(&self, message: &str) -> ProgressBar {
        let bar = self.bar(0, "{spinner} {msg} {elapsed}");
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}

/// Writes a file whole or not at all: a page half written would look like a page.
///
/// Errors: Io.
pub fn write_whole(path: &Path, text: &str) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        Error::io("write the file", path, error).with_remedy("name a writable one")
    })
}
