//! Reports: documents made from records alone, whoever made those and whenever.
//!
//! [`Summary::of`] groups and ranks once; [`terminal`], [`html`], [`json`] say the same of it in their own way, and
//! [`fio_json`] hands records on in fio's shape. Nothing here runs anything.

pub mod advice;
pub mod answer;
pub mod conditions;
pub mod counters;
pub mod derive;
pub mod drift;
mod drift_lines;
pub mod drift_markdown;
pub mod drift_page;
pub mod drift_tell;
pub mod fio_json;
pub mod html;
pub mod json;
pub mod ledger;
mod ledger_head;
pub mod ledger_json;
pub mod ledger_page;
mod ledger_table;
pub mod live;
pub mod phases;
pub mod plot;
pub mod question;
pub mod race;
pub mod series;
pub mod stage;
mod summary;
#[cfg(test)]
pub(crate) mod synthetic;
pub mod terminal;
pub mod verdict;
pub mod words;

pub use drift_lines::DriftLines;
pub use summary::{ArmSummary, Group, Role, State, Summary, Trouble};
