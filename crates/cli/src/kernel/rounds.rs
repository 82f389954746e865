//! `mmscale kernel rounds`: scripts for a number of rounds between marks, in a virtual machine.

use anyhow::{Context, anyhow};
use mmscale_harness::Registry;
use mmscale_live::rounds::{Marks, run};
use mmscale_vm::marks;
use serde::{Deserialize, Serialize};

use crate::args::RoundsArgs;
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

/// The rounds of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ran {
    /// Its name.
    pub(super) script: String,
    /// Operations of each round.
    pub(super) ops: Vec<u64>,
}

/// Runs the scripts one after another, and prints a line for each.
pub(super) fn rounds(registry: &Registry, args: &RoundsArgs) -> Result<(), Failure> {
    let studies = args.scripts.iter().map(|name| registry.find(name));
    let studies: Vec<_> =
        studies.collect::<Result<_, _>>().map_err(|why| Failure::Call(anyhow!("{why}")))?;
    let interrupt = interrupt::on_signals(Grace::Live)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let marks = Marks { arm: marks::arm, begin: marks::begin, end: marks::end };
    for study in studies {
        let ops = run(&study, args.rounds, marks, &interrupt)
            .map_err(|why| Failure::Run(anyhow!("{why}")))?;
        let ran = Ran { script: study.name().to_owned(), ops };
        let line = serde_json::to_string(&ran).expect("plain data");
        output::print(&format!("{line}\n"))?;
    }
    Ok(())
}
