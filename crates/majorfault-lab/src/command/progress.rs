//! What subcommands show while they work.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use majorfault::Nanos;
use std::io::IsTerminal;
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

    /// Whether nothing is to be said.
    pub fn is_quiet(&self) -> bool {
        self.hidden
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

    /// A table as its message, and the time that is gone of `time` at most.
    pub fn table(&self, time: Nanos) -> ProgressBar {
        let bar = self.bar(0, &format!("{{msg}}\n{{elapsed}} of {time} at most; Ctrl-C ends it with what there is"));
        bar.enable_steady_tick(Duration::from_millis(500));
        bar
    }

    /// Of work whose length is not known.
    pub fn spinner(&self, message: &str) -> ProgressBar {
        let bar = self.bar(0, "{spinner} {msg} {elapsed}");
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}
