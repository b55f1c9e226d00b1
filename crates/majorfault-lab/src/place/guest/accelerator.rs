//! Whether guests run on this machine's processor: told by a guest that boots, not by the presence of /dev/kvm, because
//! some hypervisors offer one on which stock kernels hang.

use crate::place::guest::architecture::Architecture;
use crate::place::guest::kernel;
use crate::place::guest::spec::{Accelerator, Spec};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// How long a guest may take to its first line where the processor runs it. Emulated it takes 2 to 3 s.
pub const KVM_BOOTS_WITHIN: std::time::Duration = std::time::Duration::from_secs(15);

/// What is to be tried, in order.
pub fn candidates(spec: &Spec, architecture: Architecture) -> Vec<Accelerator> {
    match spec.accel {
        Accelerator::Auto if architecture == Architecture::HOST && may_have_kvm() => {
            vec![Accelerator::Kvm, Accelerator::Tcg]
        }
        Accelerator::Auto => vec![Accelerator::Tcg],
        asked => vec![asked],
    }
}

/// Whether /dev/kvm can be opened, and no guest is known to have failed on it.
fn may_have_kvm() -> bool {
    let opened = fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    opened && fs::read_to_string(note()).map_or(true, |kernel| kernel != own_kernel())
}

/// Remembers for this kernel of the host that no guest boots on its KVM.
pub fn remember_failure() {
    // Only costs the next guest a try.
    let root = kernel::root();
    if fs::DirBuilder::new().recursive(true).mode(0o755).create(&root).is_ok() && kernel::trusted(&root).is_ok() {
        let _ = fs::write(note(), own_kernel());
    }
}

fn note() -> PathBuf {
    kernel::root().join("no-guest-boots-on-kvm")
}

fn own_kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_tried_alone() {
        let tried = |text: &str| candidates(&text.parse().unwrap(), Architecture::HOST);

        assert_eq!(tried("guest:accel=kvm"), [Accelerator::Kvm]);
        assert_eq!(tried("guest:accel=tcg"), [Accelerator::Tcg]);
        assert_eq!(tried("guest:accel=auto").last(), Some(&Accelerator::Tcg));
        let other = Architecture::ALL.iter().copied().find(|it| *it != Architecture::HOST).unwrap();
        assert_eq!(candidates(&"guest:accel=auto".parse().unwrap(), other), [Accelerator::Tcg]);
    }
}
