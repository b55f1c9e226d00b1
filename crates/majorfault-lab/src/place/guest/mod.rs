//! A guest: a machine of QEMU's with a kernel of one's choice, in which this same program runs as the first process.
//!
//! The host makes an archive of files in memory (our own program as /init, its libraries, its order) and images for the
//! disks, all without a name, and starts QEMU. The guest sends lines of JSON over a virtio port: what the program says,
//! each record, how it ended. Whoever loses the other ends: QEMU dies with us, a guest that says nothing is killed.

mod accelerator;
mod architecture;
mod archive;
mod complaint;
mod disk;
mod filesystem;
mod host;
pub mod init;
pub mod kernel;
mod line;
mod program;
mod qemu;
mod spec;

pub use architecture::Architecture;
pub use filesystem::FileSystem;
pub use host::{become_machine, run};
pub use line::{BROUGHT, FromGuest};
pub use qemu::QEMU;
pub use spec::{DATA, Spec};

/// What a guest of this spec cannot show, as a remark for each of its records.
pub fn remark(spec: &Spec, kernel: &str, accelerator: &str) -> String {
    let times = match accelerator {
        "kvm" => "",
        _ => "; emulated, so counts are exact and times are not",
    };
    let delay = if spec.delay_ms == 0 { String::new() } else { format!("; each read waits {} ms more", spec.delay_ms) };
    format!("guest of QEMU ({accelerator}) with the kernel {kernel}{delay}{times}")
}
