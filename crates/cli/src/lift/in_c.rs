//! The script of a recording as a small program: written in C, and compiled on this computer.

use anyhow::{Context, anyhow};
use mmscale_harness::{CallError, ProgramSpec, Settings, Study, script_values};
use mmscale_live::Scratch;
use mmscale_vm::{JobFile, static_program};

use crate::args::RecordArgs;
use crate::failure::Failure;
use crate::live::preparation::clear;

/// The place of the program in the machine.
const PATH: &str = "/program";

/// Returns the program of a script, whose tasks take turns.
pub(super) fn program(study: &Study, args: &RecordArgs) -> Result<JobFile, Failure> {
    let settings = Settings::parse(&args.set).map_err(CallError::from)?;
    let mut values = script_values(study, &settings).map_err(CallError::from)?;
    let (Some(params), None) = (values.pop(), values.pop()) else {
        return Err(Failure::Call(anyhow!("--set: give each parameter one value")));
    };
    let spec = ProgramSpec {
        name: study.name(),
        params: &params,
        written_by: "mmscale lift record --in-c",
        simulated_by: &[],
        remarks: &[],
    };
    let script = study.script().expect("scripts are recorded");
    let text = script.in_turns(&spec, args.ops).map_err(|why| {
        Failure::Call(anyhow!("cannot write `{}` as a program in C: {why}", args.script))
    })?;
    // What a call that was killed has left goes first.
    clear();
    let folder = Scratch::new().context("cannot create a folder for a program");
    let folder = folder.map_err(Failure::Run)?;
    let bytes = static_program(&text, folder.path());
    let bytes = bytes.map_err(|why| Failure::Run(anyhow!("{why}")))?;
    Ok(JobFile { path: PATH.to_owned(), bytes })
}
