//! `mmscale claim`: items of the gallery from the tables of a mail.

mod item;

use std::path::Path;

use anyhow::anyhow;
use mmscale_calibrate::gallery;
use mmscale_files::{Limit, Pipe};
use mmscale_harness::{CallError, PolicyArm, Registry, Settings, linux_version};
use mmscale_measured::{Chosen, Comparison, MAX_BYTES, comparisons};

use crate::args::ClaimArgs;
use crate::destination::{Destination, ITEMS};
use crate::failure::Failure;
use crate::output;

/// As many bytes as the parser accepts.
const LIMIT: Limit = Limit::new("a text with tables", MAX_BYTES as u64);
/// Number of doubts that are shown.
const DOUBTS: usize = 10;

/// Reads a file and writes an item for each comparison in it.
pub(crate) fn claim(registry: &Registry, args: &ClaimArgs) -> Result<(), Failure> {
    check(registry, args)?;
    let existing = output::existing(args.out.replace);
    let place = args.out.output.as_deref();
    let place = place.map(|path| Destination::open(path, existing, ITEMS)).transpose()?;
    let named = match args.file == Path::new("-") {
        true => "stdin".to_owned(),
        false => format!("`{}`", args.file.display()),
    };
    let fail = |why: String| Failure::Call(anyhow!("cannot read {named}: {why}"));
    let bytes = mmscale_files::bytes(&args.file, LIMIT, Pipe::Read);
    let bytes = bytes.map_err(|why| fail(why.to_string()))?;
    let chosen = Chosen { sides: args.sides.iter().map(|side| side.trim().to_owned()).collect() };
    let (report, all) = comparisons(&bytes, &chosen).map_err(|why| fail(why.to_string()))?;
    for doubt in all.doubts.iter().take(DOUBTS) {
        output::tell(&format!("not used: line {}: {}", doubt.line, doubt.what));
    }
    if let Some(more) = all.doubts.len().checked_sub(DOUBTS).filter(|more| *more > 0) {
        output::tell(&format!("not used: {more} more"));
    }
    let found: Vec<Comparison> = all.found.into_iter().filter(|one| is_chosen(one, args)).collect();
    if found.is_empty() {
        let what = args.only.as_ref().map_or(String::new(), |only| format!(" named `{only}`"));
        output::tell(&format!(
            "no table{what} before and after a change in {} lines; a table needs a line with the \
             names of its columns, as in `test before after`, a list lines such as \
             `page_fault1: +34.3 %`",
            report.lines
        ));
        return Err(Failure::Nothing);
    }
    let known = item::Known::of(registry, args, &report);
    let items = item::items(&known, &found);
    let text = item::text(&args.file, &items);
    for what in item::open(&items) {
        output::tell(&format!("fill {what}"));
    }
    match place {
        Some(place) => place.write(text),
        None => output::print(&text),
    }
}

fn is_chosen(one: &Comparison, args: &ClaimArgs) -> bool {
    let of = |only: &String| one.metric.contains(only) || one.caption.contains(only);
    args.only.as_ref().is_none_or(of)
}

/// Checks the names of a call, so that an item is not refused for them later.
fn check(registry: &Registry, args: &ClaimArgs) -> Result<(), Failure> {
    let wrong = |why: String| Failure::Call(anyhow!(why));
    if let Some(machine) = &args.machine {
        gallery::profiles().load(machine).map_err(|why| wrong(format!("--machine: {why}")))?;
    }
    if let Some(script) = &args.script
        && gallery::scripts().find(script).is_err()
    {
        registry.find(script).map_err(|why| wrong(format!("--script: {why}")))?;
    }
    if let Some(linux) = &args.linux {
        linux_version(linux).map_err(CallError::from)?;
    }
    Settings::parse(&args.set).map_err(CallError::from)?;
    for policy in &args.policies {
        let (_, policies) = policy.split_once(':').ok_or_else(|| {
            wrong(format!("--policy `{policy}`: name the side, as in patched:lru=lazy"))
        })?;
        PolicyArm::parse(policies).map_err(CallError::from)?;
    }
    Ok(())
}
