//! Kernel images: whether a virtual machine can be started, and how it runs.

use mmscale_vm::{EMULATOR, accelerator, emulator_version};

use super::{Finding, State};

pub(super) fn examine() -> Finding {
    const WHAT: &str = "kernel images";
    let Some(version) = emulator_version() else {
        return Finding {
            what: WHAT,
            state: State::Missing,
            seen: format!("{EMULATOR} is not installed"),
            means: "`mmscale kernel` cannot boot images of kernels",
            remedy: "on Debian apt-get install qemu-system-x86, on Fedora dnf install \
                     qemu-system-x86-core",
        };
    };
    match accelerator() {
        Ok(_) => Finding::good(WHAT, format!("QEMU {version} with KVM")),
        Err(why) => Finding {
            what: WHAT,
            state: State::Limited,
            seen: format!("QEMU {version} without KVM: {why}"),
            means: "`mmscale kernel` emulates processors: counts of such a machine mean something, \
                    and times do not",
            remedy: "none is needed for counts; for times use a computer with KVM",
        },
    }
}
