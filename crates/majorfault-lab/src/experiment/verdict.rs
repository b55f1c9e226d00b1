//! What is said of a row: the words of the ledger, each with its reason.

/// What was found of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It holds here.
    Holds,
    /// It does not.
    DoesNotHold,
    /// More runs, or other ones, would tell.
    Undecided(Why),
    /// It cannot be tested here, for this reason.
    CannotTest(String),
    /// The means to test it are not built, for this reason.
    NotBuilt(String),
    /// It is a figure rather than a claim: ours stands beside it.
    Measured,
    /// It is a system rather than a claim, and ours is this command.
    Built(String),
}

/// Why nothing is decided, in a sentence each.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// Not made in this session.
    NotRun(String),
    /// No run counts.
    NoRun(String),
    /// Too few runs for an interval that covers 95 %.
    TooFew(String),
    /// The interval holds the threshold.
    HoldsThreshold(String),
    /// The effect is below the smallest that these runs could have shown.
    BelowDetectable(String),
    /// What every run must show was shown by some.
    RunsContradict(String),
    /// Sessions gave different verdicts.
    SessionsDisagree(String),
}

impl Verdict {
    /// In the words of the ledger.
    pub fn words(&self) -> &'static str {
        match self {
            Verdict::Holds => "holds here",
            Verdict::DoesNotHold => "does not hold here",
            Verdict::Undecided(_) => "undecided, run more",
            Verdict::CannotTest(_) => "cannot be tested here",
            Verdict::NotBuilt(_) => "not built",
            Verdict::Measured => "measured",
            Verdict::Built(_) => "built",
        }
    }

    /// Why it is no yes or no, or which command it is; empty where there is nothing to say.
    pub fn reason(&self) -> String {
        match self {
            Verdict::Holds | Verdict::DoesNotHold | Verdict::Measured => String::new(),
            Verdict::Undecided(why) => format!("{}: {}", why.name(), why.says()),
            Verdict::CannotTest(reason) | Verdict::NotBuilt(reason) | Verdict::Built(reason) => reason.clone(),
        }
    }

    /// Whether the runs gave an answer: a yes, a no, a figure, or that more of them are needed.
    pub fn is_answer(&self) -> bool {
        let is_silent =
            matches!(self, Verdict::CannotTest(_) | Verdict::NotBuilt(_) | Verdict::Undecided(Why::NoRun(_)));
        !is_silent && self.was_run()
    }

    /// Whether the session made what it is judged by. One that did not has no say.
    pub fn was_run(&self) -> bool {
        !matches!(self, Verdict::Undecided(Why::NotRun(_)))
    }
}

impl Why {
    /// Which of the reasons it is.
    pub fn name(&self) -> &'static str {
        match self {
            Why::NotRun(_) => "not run in this session",
            Why::NoRun(_) => "no run counts",
            Why::TooFew(_) => "too few runs",
            Why::HoldsThreshold(_) => "the interval holds the threshold",
            Why::BelowDetectable(_) => "below the smallest detectable effect",
            Why::RunsContradict(_) => "runs contradict each other",
            Why::SessionsDisagree(_) => "sessions disagree",
        }
    }

    fn says(&self) -> &str {
        match self {
            Why::NotRun(says)
            | Why::NoRun(says)
            | Why::TooFew(says)
            | Why::HoldsThreshold(says)
            | Why::BelowDetectable(says)
            | Why::RunsContradict(says)
            | Why::SessionsDisagree(says) => says,
        }
    }
}
