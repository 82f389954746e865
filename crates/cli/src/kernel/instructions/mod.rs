//! `mmscale kernel instructions`: what an operation costs a kernel image, in instructions.
//!
//! | module | what it has |
//! |---|---|
//! | `operations` | the scripts of basic operations |
//! | `document` | what a call found |
//! | `kept` | counts that are kept with the sources |
//! | `locks` | the name of a lock, by the functions that take it |
//! | `counts` | instructions of the operations that a profile has |
//! | `model` | the same scripts on a simulated CPU, and the operations of a profile |
//! | `text` | tables of one image |
//! | `change` | tables of two images |

mod change;
mod counts;
mod document;
mod kept;
mod locks;
mod model;
mod operations;
mod text;

use anyhow::{Context, anyhow};
use mmscale_calibrate::{ProfileFile, write as text_of};
use mmscale_harness::{Interrupt, Registry, Study};
use mmscale_vm::instructions::{Counted, count};
use mmscale_vm::{Accelerator, Image, JobFile, Machine};
use std::path::Path;

use super::machine::{again, failure, image, job, machine};
use super::rounds::Ran;
use crate::args::{Format, InstructionsArgs};
use crate::destination::{Destination, PROFILE, base_of};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;
use document::{Document, Operation, Side};

/// Parameters of the kernel that the counts need: huge pages only where a script asks for them.
const PARAMETERS: &str = "transparent_hugepage=madvise norandmaps";

/// The smallest number of CPUs: with one, the kernel takes the locked prefix away.
const MIN_CPUS: usize = 2;

/// Counts the instructions of the images, and shows them.
pub(super) fn instructions(registry: &Registry, args: &InstructionsArgs) -> Result<(), Failure> {
    if !args.kept.is_empty() {
        return show(&kept::document(&args.kept, &args.scripts)?, args);
    }
    let cpus = args.machine.cpus;
    if cpus < MIN_CPUS {
        let why = "with one CPU, Linux removes the locked prefix from its own code";
        return Err(Failure::Call(anyhow!("--cpus {cpus}: use {MIN_CPUS} or more: {why}")));
    }
    let most = mmscale_live::rounds::MAX_ROUNDS;
    if !(1..=most).contains(&args.rounds) {
        return Err(Failure::Call(anyhow!("--rounds {}: use 1 to {most}", args.rounds)));
    }
    if args.kernel.len() > 2 {
        return Err(Failure::Call(anyhow!("--kernel: give one image, or two to compare")));
    }
    if args.profile.is_some() && args.kernel.len() > 1 {
        return Err(Failure::Call(anyhow!(
            "--profile compares one image with the model: give one"
        )));
    }
    let place = args.output.as_deref();
    let place = place.map(|path| Destination::open(path, output::existing(args.replace), PROFILE));
    let mut place = place.transpose()?;
    let machine = machine(&args.machine, Accelerator::Emulation)?;
    let parameters = format!("{PARAMETERS} {}", machine.parameters);
    let machine = Machine { parameters, ..machine };
    let (studies, files) = scripts(registry, &args.scripts)?;
    let interrupt = interrupt::on_signals(Grace::Live)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let counting = Counting { registry, machine, rounds: args.rounds, interrupt };
    let mut document = Document::new(&studies);
    for name in &args.kernel {
        let image = image(name)?;
        output::tell(&format!("counting instructions of {}", image.name));
        let (side, operations) = counting.count(&image, &studies, &files, "")?;
        document.add(side, operations);
        if let Some(profile) = &args.profile {
            counting.add_bulk(&image, &mut document)?;
            let registry = operations::with_all(registry);
            let model =
                model::model(&registry, &document, &args.scripts, profile, &counting.interrupt)?;
            document.model = Some(model);
            if let (Some(path), Some(place)) = (&args.output, place.take()) {
                place.write(&written(&document, profile, path)?)?;
            }
        }
    }
    show(&document, args)
}

/// The text of a profile that has another one as its base, and the instructions of the image.
fn written(document: &Document, base: &Path, path: &Path) -> Result<String, Failure> {
    let release = document.images.first().map_or("", |side| side.release.as_str());
    Ok(text_of(&ProfileFile {
        base: Some(base_of(&base.to_string_lossy(), Some(path))?),
        description: format!("{} with operations of Linux {release}", base.display()),
        instructions: counts::section(document),
        ..ProfileFile::default()
    }))
}

/// Shows a document.
fn show(document: &Document, args: &InstructionsArgs) -> Result<(), Failure> {
    output::print(&match args.format {
        Format::Text if document.images.len() == 2 => change::text(document, args.rows),
        Format::Text => text::text(document, args.rows),
        Format::Json => {
            let line = serde_json::to_string(document).expect("plain data");
            format!("{line}\n")
        }
    })
}

/// Counts of a call.
struct Counting<'a> {
    registry: &'a Registry,
    machine: Machine,
    rounds: usize,
    interrupt: Interrupt,
}

impl Counting<'_> {
    /// Counts the instructions of scripts on an image, in a machine with further parameters.
    fn count(
        &self,
        image: &Image,
        studies: &[Named],
        files: &[JobFile],
        parameters: &str,
    ) -> Result<(Side, Vec<Operation>), Failure> {
        let names = studies.iter().map(|(word, _)| word.clone());
        let words = ["kernel", "rounds", "--rounds"].map(str::to_owned).into_iter();
        let words = words.chain([self.rounds.to_string()]).chain(names).collect();
        let (job, carried) = job(self.registry, words)?;
        let parameters = format!("{} {parameters}", self.machine.parameters);
        // Time passes with instructions where it can, so that interrupts come at the same places
        // each time. Elsewhere counts differ by a few instructions from call to call.
        let counts_instructions = image.runs_by_instructions();
        let machine = Machine { parameters, counts_instructions, ..self.machine.clone() };
        let files = [&carried[..], files].concat();
        let is_interrupted = || self.interrupt.is_set();
        let counted = count(&machine, image, &job, &files, &is_interrupted, &again);
        let counted = counted.map_err(failure)?;
        Ok((Side::new(image, &counted), summaries(&counted, self.rounds)?))
    }

    /// Adds the script whose pages come from the zone.
    fn add_bulk(&self, image: &Image, document: &mut Document) -> Result<(), Failure> {
        let (named, file) = operations::named(self.registry, operations::BULK)
            .map_err(|why| Failure::Call(anyhow!("{why}")))?;
        let parameters = operations::parameters_of_bulk();
        let study = named.1.clone();
        let (_, operations) = self.count(image, &[named], &[file], &parameters)?;
        operations.into_iter().for_each(|operation| document.add_script(&study, operation));
        Ok(())
    }
}

/// A script as its name in the machine, and its study.
type Named = (String, Study);

/// Returns the scripts of a call, and the files of those that the machine's program does not have.
fn scripts(registry: &Registry, names: &[String]) -> Result<(Vec<Named>, Vec<JobFile>), Failure> {
    let wrong = |why: String| Failure::Call(anyhow!("{why}"));
    if names.is_empty() {
        return operations::all(registry).map_err(wrong);
    }
    let mut named = Vec::new();
    for name in names {
        let study = registry.find(name).map_err(|why| wrong(why.to_string()))?;
        if study.script().is_none_or(|script| !script.loops()) {
            return Err(wrong(format!("`{name}` is no script with a `loop`: no rounds to count")));
        }
        named.push((name.clone(), study));
    }
    Ok((named, Vec::new()))
}

/// Returns the operations of each script, in order.
fn summaries(counted: &Counted, rounds: usize) -> Result<Vec<Operation>, Failure> {
    let said = String::from_utf8_lossy(&counted.error);
    let failed = |why: &str| {
        let last = said.trim().lines().next_back().unwrap_or("no message");
        Failure::Run(anyhow!("{why}: {last}"))
    };
    if counted.ended.code != 0 {
        return Err(failed("the scripts did not run in the machine"));
    }
    let output = String::from_utf8_lossy(&counted.output);
    let ran: Vec<Ran> = output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if counted.rounds() != ran.len() * rounds {
        return Err(failed("the plugin did not see all rounds"));
    }
    let summary = |(at, ran): (usize, &Ran)| {
        let summary = counted.summary(at * rounds..(at + 1) * rounds, &ran.ops);
        Operation { script: ran.script.clone(), summary }
    };
    Ok(ran.iter().enumerate().map(summary).collect())
}
