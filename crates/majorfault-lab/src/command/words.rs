//! How the command line reads types of the rooms below, which know no command line.

use crate::experiment::Scale;
use crate::outputs::Force;
use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};

impl ValueEnum for Scale {
    fn value_variants<'a>() -> &'a [Scale] {
        Scale::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self {
            Scale::Quick => "All in about a minute: shows that it runs, and which way the figures point",
            Scale::Standard => "All in about 22 minutes on two processors",
            Scale::Full => "The published sizes",
        };
        Some(PossibleValue::new(self.name()).help(help))
    }
}

impl FromArgMatches for Force {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Force, clap::Error> {
        Ok(Force { force: matches.get_flag("force") })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Force::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Force {
    fn augment_args(command: Command) -> Command {
        let help = "Let outputs replace files that majorfault did not write";
        command.arg(Arg::new("force").long("force").action(ArgAction::SetTrue).help(help).help_heading("Output"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Force::augment_args(command)
    }
}
