//! The lab: trials of access methods on files, run in places, observed by counters, kept as records, told as reports.
//!
//! One way through: `workload -> access method -> counters -> record -> report, verdict, advice`.

pub mod assist;
pub mod command;
pub mod data;
pub mod doctor;
pub mod experiment;
pub mod jobfile;
pub mod kinds;
pub mod launch;
pub mod lineup;
pub mod machine;
pub mod node;
pub mod outputs;
pub mod peer;
pub mod place;
pub mod procedure;
pub mod program;
pub mod prove;
pub mod record;
pub mod report;
pub mod run;
pub mod scratch;
pub mod session;
pub mod stats;
pub mod traits;
pub mod trial;
pub mod tryout;
pub mod watch;
pub mod workload;
