//! The findings as text on the terminal, as JSON, as a page, as metrics.

pub mod describe;
pub mod endpoint;
mod json;
pub mod openmetrics;
mod page;
mod stacks;
mod terminal;
pub mod totals;

pub use json::{document, schema};
pub use page::page;
pub use stacks::StackFormat;
pub use terminal::{print, print_proofs};
