//! `mmscale lift curve`: a recording, and its replays.

use anyhow::anyhow;
use clap::Parser as _;
use mmscale_harness::{Origin, Registry};

use super::record::record;
use crate::args::{Args, Command, LiftCurveArgs, RunArgs};
use crate::failure::Failure;
use crate::output;
use crate::run::{plans_of, run};

/// Records a script on an image, writes the file, and runs it. A machine that replays cannot have
/// is an error before anything is recorded.
pub(super) fn curve(
    registry: &Registry,
    origin: Origin,
    args: &LiftCurveArgs,
) -> Result<(), Failure> {
    let (script, _) = run_of(args, &args.record.script)?;
    plans_of(registry, origin.clone(), &script)?;
    let file = record(registry, &args.record)?;
    let (replays, words) = run_of(args, &file.to_string_lossy())?;
    output::tell(&format!("replaying it: mmscale {}", words.join(" ")));
    run(registry, origin, &replays)
}

/// Returns the call of `run` that replays `what`, and its words.
fn run_of(args: &LiftCurveArgs, what: &str) -> Result<(RunArgs, Vec<String>), Failure> {
    let seeds = args.seeds.to_string();
    let words = ["run", what, "--profile", &args.on, "--cpus", &args.at, "--seeds", &seeds];
    let call = Args::try_parse_from(["mmscale"].into_iter().chain(words));
    match call.map_err(|why| Failure::Call(anyhow!("{}", why.render())))?.command {
        Some(Command::Run(run)) => Ok((*run, words.map(str::to_owned).to_vec())),
        _ => unreachable!("the words are a call of `run`"),
    }
}
