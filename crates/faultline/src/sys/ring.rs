//! io_uring: rings, registered files and buffers.

use crate::needs::{Missing, Need, Probe};

/// The io_uring interface (Linux 5.1), often closed in containers.
pub const IO_URING: Need =
    Need { name: "io_uring", summary: "several reads in flight from one thread, without a call each", probe };

fn probe() -> Probe {
    match io_uring::IoUring::new(2) {
        Ok(_) => Ok("rings can be made".to_owned()),
        Err(error) => Err(Missing::new(
            "io_uring",
            format!("io_uring_setup(2) says {error}"),
            "allow it in the container's seccomp profile and set kernel.io_uring_disabled=0",
        )),
    }
}
