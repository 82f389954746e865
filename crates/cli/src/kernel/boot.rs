//! `mmscale kernel boot`: a command of this program on a kernel image.

use anyhow::{Context, anyhow};
use mmscale_harness::Registry;
use mmscale_vm::{Accelerator, Machine, Output, accelerator};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::machine::{again, failure, image, job, machine};
use crate::args::BootArgs;
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

/// Boots the image, and shows what its command writes as it comes.
pub(super) fn boot(registry: &Registry, args: &BootArgs) -> Result<(), Failure> {
    let accelerator = match args.icount || args.emulate {
        true => Accelerator::Emulation,
        false => accelerator().unwrap_or(Accelerator::Emulation),
    };
    let machine =
        Machine { counts_instructions: args.icount, ..machine(&args.machine, accelerator)? };
    let image = image(&args.kernel)?;
    if args.icount && !image.runs_by_instructions() {
        return Err(Failure::Call(anyhow!(
            "--icount: Linux before 6.5 does not start its CPUs if time passes with instructions; \
             leave it out"
        )));
    }
    let console = args.console.as_deref().map(console).transpose()?;
    let machine = Machine { console, ..machine };
    let (job, files) = job(registry, args.command.clone())?;
    let interrupt = interrupt::on_signals(Grace::Live)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let cpus = machine.topology.cpus();
    let how = match accelerator {
        Accelerator::Kvm => "with KVM",
        Accelerator::Emulation => "emulated: counts mean something, times do not",
    };
    let name = image.package.as_deref().unwrap_or(&image.name);
    output::tell(&format!("booting {name} with {cpus} CPUs, {how}"));
    let mut shown = |written: Output| show(&written);
    let ended = machine.run(&image, &job, &files, &|| interrupt.is_set(), &mut shown, &again);
    let ended = ended.map_err(failure)?;
    output::tell(&format!("the machine used {:.0} s of CPU time", ended.cpu_time.as_secs_f64()));
    match ended.code {
        0 => Ok(()),
        code => Err(Failure::Command(code)),
    }
}

/// Shows a part of the output. A reader that has closed standard output has seen enough.
fn show(written: &Output) {
    let _ = match written {
        Output::Up(up) => {
            output::tell(&format!("up: Linux {}, {} CPUs", up.release, up.cpus));
            Ok(())
        }
        Output::Out(bytes) => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Output::Error(bytes) => io::stderr().lock().write_all(bytes),
    };
}

/// Opens the file for the console.
fn console(path: &Path) -> Result<Arc<File>, Failure> {
    // tidy: opened: the user names the file
    let file = File::create(path);
    file.map(Arc::new)
        .map_err(|why| Failure::Call(anyhow!("cannot write {}: {why}", path.display())))
}
