//! The sources of a crate as syntax, and what the floors, the registries and the kinds' names say about them.

pub mod kinds;
pub mod names;
pub mod rooms;
pub mod source;
pub mod uses;
pub mod words;
