//! `mmscale lift record`.

use anyhow::{Context, anyhow};
use mmscale_document::class_of_name;
use mmscale_harness::{CallError, Registry, Settings, script_values};
use mmscale_lift::{Origin, Recording};
use mmscale_live::turns::{MAX_ROUNDS, Turns};
use mmscale_vm::recording::{PAGE_TABLE, Recorded, STACK, Taken, record as record_operations};
use mmscale_vm::{Accelerator, BootError, Image, Machine, Topology};
use std::path::PathBuf;

use super::in_c;
use crate::args::{RecordArgs, VmArgs};
use crate::destination::{Destination, RECORDING};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::kernel::class_at;
use crate::kernel::machine::{again, failure, image, job, machine, settings};
use crate::output;

/// Parameters of the kernel that recordings need: huge pages only where a script asks for them,
/// and page tables of four levels, so that addresses say what is there. Pages stay on their node.
/// Caches of objects are not merged, so that their names are those of the objects.
const PARAMETERS: &str = "transparent_hugepage=madvise norandmaps no5lvl numa_balancing=disable \
                          cpu_init_udelay=0 slab_nomerge";

/// Memory of each CPU, if the call names no size: as little as servers have, so that sizes that
/// depend on both are theirs.
const MEMORY_OF_CPU: u64 = 1 << 30;

/// The smallest number of CPUs: one alone shares nothing.
const MIN_CPUS: usize = 2;

/// Records a script on an image, and writes the file. Returns its path.
pub(super) fn record(registry: &Registry, args: &RecordArgs) -> Result<PathBuf, Failure> {
    if args.cpus < MIN_CPUS {
        return Err(Failure::Call(anyhow!(
            "--cpus {}: use {MIN_CPUS} or more: one CPU alone shares nothing",
            args.cpus
        )));
    }
    if args.ops == Some(0) {
        return Err(Failure::Call(anyhow!("--ops 0: use 1 to {MAX_ROUNDS} rounds")));
    }
    let study = registry.find(&args.script).map_err(CallError::from)?;
    // A study may have a script that makes its calls.
    let study = registry.script_like(&study).unwrap_or(study);
    let script = study.script().filter(|script| script.loops()).ok_or_else(|| {
        let why = "is no script with a `loop`: it has no rounds to record";
        Failure::Call(anyhow!("`{}` {why}", args.script))
    })?;
    let known = Settings::parse(&args.set).map_err(CallError::from)?;
    script_values(&study, &known).map_err(CallError::from)?;
    let place = Destination::open(&args.output, output::existing(args.replace), RECORDING)?;
    let machine = machine_of(args)?;
    let image = image(&args.kernel)?;
    let interrupt = interrupt::on_signals(Grace::Live)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let mut words = ["kernel", "turns"].map(str::to_owned).to_vec();
    words.push(args.script.clone());
    words.extend(args.set.iter().map(|set| format!("--set={set}")));
    words.extend(args.ops.map(|ops| format!("--ops={ops}")));
    let program = match args.in_c {
        true => Some(in_c::program(&study, args)?),
        false => None,
    };
    words.extend(program.iter().map(|program| format!("--program={}", program.path)));
    let (job, mut files) = job(registry, words)?;
    files.extend(program);
    output::tell(&format!(
        "recording `{}` on {} with {} CPUs; this takes one to some minutes",
        study.name(),
        image.package.as_deref().unwrap_or(&image.name),
        args.cpus
    ));
    let is_interrupted = || interrupt.is_set();
    let recorded = record_operations(&machine, &image, &job, &files, &is_interrupted, &again);
    let recorded = recorded.map_err(|why| match why {
        BootError::Slow(_) => Failure::Run(anyhow!(
            "{why}; or record fewer rounds or shorter ones, with --ops and the script's --set"
        )),
        why => failure(why),
    })?;
    let origin = Origin {
        script: study.name().to_owned(),
        summary: study.summary().to_owned(),
        text: script.text().to_owned(),
        ..origin_of(args, &image, &recorded)
    };
    let recording = reduced(&recorded, origin)?;
    tell_of(&recording);
    let mut bytes = Vec::new();
    recording.write(&mut bytes).map_err(|why| Failure::Run(why.into()))?;
    place.write_to(bytes)
}

/// Returns the bytes of memory of the machine.
fn memory_of(args: &RecordArgs) -> u64 {
    args.memory.unwrap_or(args.cpus as u64 * MEMORY_OF_CPU)
}

fn machine_of(args: &RecordArgs) -> Result<Machine, Failure> {
    let vm = VmArgs {
        cpus: args.cpus,
        nodes: args.nodes,
        distance: Topology::DISTANCE,
        memory: memory_of(args),
        append: args.append.clone(),
        limit: args.limit.clone(),
    };
    let machine = machine(&vm, Accelerator::Emulation)?;
    let parameters = format!("{PARAMETERS} {}", machine.parameters);
    Ok(Machine { parameters, ..machine })
}

/// Returns the origin without the script.
fn origin_of(args: &RecordArgs, image: &Image, recorded: &Recorded) -> Origin {
    let up = &recorded.ended.up;
    Origin {
        image: image.name.clone(),
        package: image.package.clone(),
        release: up.release.clone(),
        version: up.version.clone(),
        settings: settings(up, &|name| recorded.has_function(name)),
        parameters: args.append.clone(),
        set: args.set.clone(),
        in_c: args.in_c,
        node_of_cpu: (0..args.cpus).map(|cpu| (cpu * args.nodes / args.cpus) as u8).collect(),
        memory_bytes: memory_of(args),
        ..Origin::default()
    }
}

/// Returns the recording of what the machine wrote.
fn reduced(recorded: &Recorded, origin: Origin) -> Result<Recording, Failure> {
    let said = String::from_utf8_lossy(&recorded.error);
    let last = said.trim().lines().next_back().unwrap_or("no message");
    if recorded.ended.code != 0 {
        return Err(Failure::Run(anyhow!("the script did not run in the machine: {last}")));
    }
    let written = String::from_utf8_lossy(&recorded.output);
    let turns: Option<Turns> = written.lines().find_map(|line| serde_json::from_str(line).ok());
    let turns = turns.ok_or_else(|| {
        Failure::Run(anyhow!("the script said nothing of its rounds in the machine: {last}"))
    })?;
    if !recorded.has_function("_raw_spin_unlock") {
        return Err(Failure::Run(anyhow!(
            "the image has its unlocks inlined (CONFIG_UNINLINE_SPIN_UNLOCK is not set), so no end \
             of a hold can be seen: build it with CONFIG_PREEMPT or CONFIG_PREEMPT_DYNAMIC"
        )));
    }
    let cpus = origin.node_of_cpu.len();
    if turns.members < cpus as u64 {
        return Err(Failure::Run(anyhow!(
            "the script has {} programs that loop, and the machine {cpus} CPUs: use a script with \
             one on each CPU (`process .. per_cpu`), or fewer --cpus",
            turns.members
        )));
    }
    let recording = recorded.recording(origin, &turns.ops, turns.sleeps, &lock_class);
    recording.map_err(|why| Failure::Run(anyhow!("{why}")))
}

/// Returns the class of a lock: by the variable or the member that it is, else by the functions
/// that take it.
fn lock_class(taken: &Taken<'_>) -> String {
    let Taken { acquire, caller, outer, variable, object } = *taken;
    if let Some(class) = variable.and_then(class_of_name) {
        return class.to_owned();
    }
    if object == Some(PAGE_TABLE) {
        return match class_at(acquire, caller, outer) {
            mmscale_document::OTHER_CLASS => "pte".to_owned(),
            class => class.to_owned(),
        };
    }
    // Of memory of some size, and of a stack, nothing is known.
    let object = object.filter(|object| !object.starts_with("kmalloc-") && *object != STACK);
    if let Some((structure, member)) = object.and_then(|object| object.split_once(' ')) {
        // Locks are named by the usual names of pointers to structures.
        let short = match structure {
            "address_space" => "mapping",
            "vma_lock" => return "vma_lock".to_owned(),
            structure => structure.trim_end_matches("_struct"),
        };
        let name = format!("{short}->{member}");
        return class_of_name(&name).map_or(name, str::to_owned);
    }
    match (class_at(acquire, caller, outer), variable) {
        (mmscale_document::OTHER_CLASS, Some(variable)) => variable.to_owned(),
        (mmscale_document::OTHER_CLASS | "mutex" | "rwsem" | "semaphore", None) => {
            format!("{} of {caller}", class_at(acquire, "", ""))
        }
        (class, _) => class.to_owned(),
    }
}

/// Says how much was recorded.
fn tell_of(recording: &Recording) {
    let rounds = recording.operations().count();
    let events: usize = recording.operations().map(|operation| operation.events.len()).sum();
    let dropped = recording.origin.dropped;
    let mut text = format!(
        "recorded {rounds} rounds on {} CPUs, {} events a round",
        recording.cpus.len(),
        events / rounds.max(1)
    );
    for (number, why) in [
        (dropped.switched, "that went to other tasks more or less often than most"),
        (dropped.unbalanced, "that left a lock held"),
        (dropped.too_long, "beyond the most that a recording has"),
    ] {
        if number > 0 {
            text += &format!("; left out {number} {why}");
        }
    }
    output::tell(&text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_named_by_what_it_is_then_by_who_takes_it() {
        let class = |acquire, caller, outer, variable, object| {
            lock_class(&Taken { acquire, caller, outer, variable, object })
        };
        let spin =
            |caller, variable, object| class("_raw_spin_lock", caller, "?", variable, object);
        // The functions that take it would make tasklist_lock of each of these.
        assert_eq!(spin("copy_process", None, Some("sighand_struct siglock")), "siglock");
        assert_eq!(spin("copy_process", None, Some("fs_struct lock")), "fs->lock");
        assert_eq!(spin("copy_process", Some("tasklist_lock"), None), "tasklist");
        assert_eq!(spin("nothing", Some("pgd_lock"), None), "pgd_lock");
        let write =
            |object| class("down_write", "copy_process", "kernel_clone", None, Some(object));
        assert_eq!(write("address_space i_mmap_rwsem"), "i_mmap");
        assert_eq!([write("vma_lock lock"), write("anon_vma rwsem")], ["vma_lock", "anon_vma"]);
        assert_eq!(spin("__pte_offset_map_lock", None, Some(PAGE_TABLE)), "pte");
        assert_eq!(spin("__handle_mm_fault", None, Some(PAGE_TABLE)), "pte");
        for object in [None, Some("kmalloc-64 0x0"), Some(STACK)] {
            assert_eq!(spin("nothing", None, object), "other of nothing");
        }
    }
}
