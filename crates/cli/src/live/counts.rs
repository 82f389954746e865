//! `mmscale live counts`: compares counts of this kernel's mechanisms with those of the simulator.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use mmscale_document::Build;
use mmscale_files::{Limit, Pipe};
use mmscale_harness::Interrupt;
use mmscale_live::counts::counts as compared;
use mmscale_live::counts::{Counts, CountsError, Recording, Row, Section, Verdict};
use mmscale_report::wrap;
use serde::Serialize;

use crate::args::{CountsArgs, Format};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

use super::preparation::clear;
use super::watch::seconds;

/// Characters of a line.
const WIDTH: usize = 72;
/// Characters of what a row counts.
const NAME: usize = 24;
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// The most bytes of a recording.
const RECORDING: Limit = Limit::new("a recording of `live counts`", 256 << 20);

/// Runs the program on both sides, then shows the comparison; or does one half of it.
pub(super) fn counts(build: &Build, args: &CountsArgs) -> Result<(), Failure> {
    let interrupt = interrupt::on_signals(Grace::Live)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let failed = |why: CountsError| Failure::Run(anyhow!("{why}"));
    let recording = match &args.of {
        Some(file) => read(file)?,
        None => record(args, &interrupt)?,
    };
    if args.record {
        let mut bytes = Vec::new();
        recording.write(&mut bytes).context("writing to memory").map_err(Failure::Run)?;
        return output::print_bytes(&bytes);
    }
    let found = compared(&recording, &interrupt).map_err(failed)?;
    output::print(&match args.format {
        Format::Text => text(build, &found),
        Format::Json => {
            let named = Named { build, found: &found };
            let line = serde_json::to_string(&named).expect("counts are plain data");
            format!("{line}\n")
        }
    })
}

/// Runs the program on this kernel.
fn record(args: &CountsArgs, interrupt: &Interrupt) -> Result<Recording, Failure> {
    let busy = seconds(&args.length)?;
    if !(SHORTEST..=LONGEST).contains(&busy) {
        let text = &args.length;
        return Err(Failure::Call(anyhow!("--for {text}: each CPU must be busy for 10s to 10m")));
    }
    clear();
    let sides = if args.record { "on this kernel" } else { "on this kernel and on the simulator" };
    let about = busy.as_secs() + 20;
    output::tell(&format!("running one program {sides}, for about {about} s"));
    Recording::make(busy, interrupt).map_err(|why| Failure::Run(anyhow!("{why}")))
}

fn read(file: &Path) -> Result<Recording, Failure> {
    let shown = file.display();
    let bytes = mmscale_files::bytes(file, RECORDING, Pipe::Read)
        .map_err(|why| Failure::Call(anyhow!("reading {shown}: {why}")))?;
    Recording::read(&bytes).map_err(|why| Failure::Call(anyhow!("{shown}: {why}")))
}

/// A comparison with the build that made it.
#[derive(Serialize)]
struct Named<'a> {
    #[serde(flatten)]
    found: &'a Counts,
    build: &'a Build,
}

fn text(build: &Build, found: &Counts) -> String {
    let of = |is: fn(&Verdict) -> bool| found.rows().filter(|row| is(&row.verdict)).count();
    let explained = of(|verdict| matches!(verdict, Verdict::Explained(_)));
    let different = of(|verdict| *verdict == Verdict::Different);
    let mut lines = vec![format!(
        "counts    {} of {} are equal, {explained} differ for a known reason, {different} for none",
        of(|verdict| *verdict == Verdict::Equal),
        found.rows().count(),
    )];
    let Counts { release, cpus, hz, zone_pages, cached_pages, high_pages, .. } = found;
    lines.push(format!("kernel    Linux {release}, {cpus} CPUs, HZ={hz}"));
    let memory = format!(
        "zone of {zone_pages} pages; page cache of CPU 0: {cached_pages} pages, high {high_pages}"
    );
    lines.extend(wrap(&memory, "memory    ", "          "));
    let policies = format!("the same program with these sizes, this state, and {}", found.policies);
    lines.extend(wrap(&policies, "simulated ", "          "));
    lines.push(format!("mmscale   {build}"));
    for section in &found.sections {
        lines.push(String::new());
        lines.extend(of_section(section));
    }
    lines.join("\n") + "\n"
}

fn of_section(section: &Section) -> Vec<String> {
    let mut lines = wrap(section.title, "", "");
    if let Some(columns) = &section.columns {
        lines.push(format!("{:NAME$}{columns}", ""));
    }
    let mut reasons: Vec<&str> = Vec::new();
    for row in &section.rows {
        lines.extend(of_row(row));
        if let Verdict::Explained(why) = row.verdict
            && !reasons.contains(&why)
        {
            reasons.push(why);
        }
    }
    for (at, why) in reasons.iter().enumerate() {
        let first = if at == 0 { "  reasons " } else { "          " };
        lines.extend(wrap(why, first, "          "));
    }
    lines
}

fn of_row(row: &Row) -> Vec<String> {
    let name = format!("  {}", row.what);
    let side = |side: &str, numbers: &str| {
        let (side, rest) = (format!("{side:NAME$}"), " ".repeat(NAME));
        if side.len() + numbers.len() <= WIDTH {
            vec![side + numbers]
        } else {
            wrap(numbers, &side, &rest)
        }
    };
    let mark = match &row.verdict {
        Verdict::Equal => return side(&name, &row.kernel),
        Verdict::Explained(_) => "explained",
        Verdict::Different => "different",
    };
    let mut lines = vec![format!("{name} ({mark})")];
    lines.extend(side("    kernel", &row.kernel));
    lines.extend(side("    simulated", &row.simulated));
    lines
}
