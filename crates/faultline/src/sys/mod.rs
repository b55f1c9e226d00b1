//! The system calls that are used, one thin function each; the only place of the library with unsafe code
//! (next to the pool's region).

pub mod clock;
pub mod ring;
