//! The virtual machine of a call: its options, its image, and the files that its command needs.

use anyhow::anyhow;
use mmscale_files::{Limit, Pipe};
use mmscale_harness::Registry;
use mmscale_vm::{Accelerator, BootError, Image, Job, JobFile, Machine, Topology};
use std::path::Path;
use std::time::Duration;

use crate::args::VmArgs;
use crate::failure::Failure;
use crate::output;

/// The CPU time that a machine may use if the call has no limit, and that of each of its CPUs.
const LIMIT: Duration = Duration::from_secs(300);
const LIMIT_OF_CPU: Duration = Duration::from_secs(10);

/// The largest file that a command in a machine may name.
const FILE: Limit = Limit::new("a file in a virtual machine", 256 << 20);

/// Returns the machine of a call.
pub(super) fn machine(args: &VmArgs, accelerator: Accelerator) -> Result<Machine, Failure> {
    let topology = Topology::new(args.cpus, args.nodes, args.distance, args.memory);
    let limit = match &args.limit {
        Some(text) => crate::live::seconds(text)?,
        None => LIMIT + LIMIT_OF_CPU * args.cpus as u32,
    };
    Ok(Machine {
        topology: topology.map_err(|why| Failure::Call(anyhow!("{why}")))?,
        parameters: args.append.clone(),
        counts_instructions: false,
        accelerator,
        limit,
        console: None,
    })
}

/// Opens an image.
pub(super) fn image(name: &str) -> Result<Image, Failure> {
    Image::open(name, &|line| output::tell(line)).map_err(|why| Failure::Call(anyhow!("{why}")))
}

/// Returns the job of a command of this program, and the files that it needs: those that it names,
/// and those that a development build reads from the source tree.
pub(super) fn job(registry: &Registry, args: Vec<String>) -> Result<(Job, Vec<JobFile>), Failure> {
    let folder = std::env::current_dir().map_err(|why| Failure::Run(why.into()))?;
    let named = args.iter().map(|arg| folder.join(arg)).filter(|path| path.is_file());
    let of_studies = registry.files().iter().cloned();
    let files = named.chain(of_studies).map(|path| file(&path)).collect::<Result<_, _>>()?;
    let folder = folder.to_string_lossy().into_owned();
    Ok((Job { args, folder, wants_symbols: false }, files))
}

fn file(path: &Path) -> Result<JobFile, Failure> {
    let bytes = mmscale_files::bytes(path, FILE, Pipe::Refuse)
        .map_err(|why| Failure::Call(anyhow!("cannot read {}: {why}", path.display())))?;
    Ok(JobFile { path: path.to_string_lossy().into_owned(), bytes })
}

/// Says that a machine is booted once more.
pub(super) fn again(why: &BootError) {
    let first = why.to_string();
    let first = first.lines().next().unwrap_or_default();
    output::tell(&format!(
        "{first}; this may be an error of the emulator: the machine is booted once more"
    ));
}

/// The failure of a machine.
pub(super) fn failure(why: BootError) -> Failure {
    Failure::Run(anyhow!("{why}"))
}
