//! The virtual machine of a call: its options, its image, and the files that its command needs.

use anyhow::anyhow;
use mmscale_files::{Limit, Pipe};
use mmscale_harness::Registry;
use mmscale_vm::{Accelerator, BootError, Image, Job, JobFile, Machine, Topology, Up};
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
pub(crate) fn machine(args: &VmArgs, accelerator: Accelerator) -> Result<Machine, Failure> {
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
pub(crate) fn image(name: &str) -> Result<Image, Failure> {
    Image::open(name, &|line| output::tell(line)).map_err(|why| Failure::Call(anyhow!("{why}")))
}

/// Returns the job of a command of this program, and the files that it needs: those that it names,
/// and those that a development build reads from the source tree.
pub(crate) fn job(registry: &Registry, args: Vec<String>) -> Result<(Job, Vec<JobFile>), Failure> {
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
pub(crate) fn again(why: &BootError) {
    let first = why.to_string();
    let first = first.lines().next().unwrap_or_default();
    output::tell(&format!(
        "{first}; this may be an error of the emulator: the machine is booted once more"
    ));
}

/// The failure of a machine.
pub(crate) fn failure(why: BootError) -> Failure {
    Failure::Run(anyhow!("{why}"))
}

/// Returns the settings of a kernel's build that change many functions.
pub(crate) fn settings(up: &Up, has_function: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut settings = Vec::new();
    let models = ["PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT_LAZY", "PREEMPT"];
    let words: Vec<&str> = up.version.split_whitespace().collect();
    let model = models.iter().find(|model| words.contains(model));
    settings.push((*model.unwrap_or(&"PREEMPT_NONE or PREEMPT_VOLUNTARY")).to_owned());
    // The checks of lists are functions of their own, under one of these names.
    if ["__list_add_valid_or_report", "__list_add_valid"].iter().any(|name| has_function(name)) {
        settings.push("LIST_HARDENED or DEBUG_LIST".to_owned());
    }
    if up.auto_init.contains("heap alloc:on") {
        settings.push("init_on_alloc".to_owned());
    }
    if up.auto_init.contains("heap free:on") {
        settings.push("init_on_free".to_owned());
    }
    if !has_function("_raw_spin_unlock") {
        settings.push("unlocks are inlined: holds of spin locks cannot be seen".to_owned());
    }
    settings.push(if up.mglru { "MGLRU" } else { "no MGLRU" }.to_owned());
    settings
}
