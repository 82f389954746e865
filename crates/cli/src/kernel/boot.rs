//! `mmscale kernel boot`: a command of this program on a kernel image.

use anyhow::{Context, anyhow};
use mmscale_harness::Registry;
use mmscale_vm::{Accelerator, Machine, Output, accelerator};
use std::cell::RefCell;
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
    // A machine whose output cannot be written is ended.
    let full = RefCell::new(None);
    let mut shown = |written: Output| {
        if let Err(why) = show(&written) {
            full.borrow_mut().get_or_insert(why);
        }
    };
    let stops = || interrupt.is_set() || full.borrow().is_some();
    let ended = machine.run(&image, &job, &files, &stops, &mut shown, &again);
    if let Some(why) = full.take() {
        return Err(Failure::Run(anyhow!("cannot write to standard output: {why}")));
    }
    let ended = ended.map_err(failure)?;
    output::tell(&format!("the machine used {:.0} s of CPU time", ended.cpu_time.as_secs_f64()));
    if let (Some(why), Some(path)) = (ended.console, &args.console) {
        return Err(Failure::Run(anyhow!(
            "cannot write the console to {}: {why}; give --console a file on a disk with room, the \
             rest of the output is whole",
            path.display()
        )));
    }
    match ended.code {
        0 => Ok(()),
        code => Err(Failure::Command(code)),
    }
}

/// Shows a part of the output. A reader that has closed standard output has seen enough.
fn show(written: &Output) -> io::Result<()> {
    let shown = match written {
        Output::Up(up) => {
            output::tell(&format!("up: Linux {}, {} CPUs", up.release, up.cpus));
            Ok(())
        }
        Output::Out(bytes) => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Output::Error(bytes) => {
            // As other messages.
            let _ = io::stderr().lock().write_all(bytes);
            Ok(())
        }
    };
    shown.or_else(|why| match why.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(why),
    })
}

/// Opens the file for the console.
fn console(path: &Path) -> Result<Arc<File>, Failure> {
    // tidy: opened: the user names the file
    let file = File::create(path);
    file.map(Arc::new)
        .map_err(|why| Failure::Call(anyhow!("cannot write {}: {why}", path.display())))
}
