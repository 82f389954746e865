//! `mmscale trace`.

use std::path::Path;

use anyhow::{Context, anyhow};
use mmscale_harness::{Length, Origin, Registry, fits_host, lock_class, plan, trace as run_again};
use mmscale_report::{folded, perfetto, story};

use crate::args::{Size, TraceArgs};
use crate::destination::{Destination, FOLDED, TRACE};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

/// The time before and after a wait that a trace has, in ps.
const AROUND_PS: u64 = 100_000_000;

/// Runs a seed again, and writes what happened around its worst wait.
pub(crate) fn trace(registry: &Registry, origin: Origin, args: &TraceArgs) -> Result<(), Failure> {
    let wrong = |what: String| Failure::Call(anyhow!(what));
    let Some(lock) = args.around.strip_prefix("worst:") else {
        let what = format!("--around {}: say worst:LOCK, as in --around worst:zone", args.around);
        return Err(wrong(what));
    };
    let class = lock_class(lock)?;
    let existing = output::existing(args.replace);
    let open = |path: &Path, kind| Destination::open(path, existing, kind);
    let place = open(&args.output, TRACE)?;
    let stacks = args.folded.as_deref().map(|path| open(path, FOLDED)).transpose()?;
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    let length = if args.quick { Length::Quick } else { Length::Full };
    let size = Size { seeds: Some(1), first: args.first.seed, length };
    let request = args.of_arm.request(vec![args.study.clone()], size, origin)?;
    let plans = plan(registry, &request)?;
    fits_host(&plans)?;
    let [plan] = &plans[..] else {
        return Err(wrong("a trace is of one run: name one study and one point".to_owned()));
    };
    let arm = args.of_arm.of(&plan.arms);
    let name = plan.study.name();
    output::tell(&format!("{name}: running seed {} twice", args.first.seed));
    let traced = run_again(plan, (arm, args.first.seed), class, AROUND_PS, &interrupt)?;
    if let [first, second] = traced.fingerprints
        && first != second
    {
        let what = "the run with the trace has another fingerprint than the one without it: this \
                    is a bug in mmscale";
        return Err(Failure::Run(anyhow!(what)));
    }
    interrupt::whole(|| {
        place.write(perfetto(&traced.timeline))?;
        if let Some(stacks) = &stacks {
            stacks.write(folded(&traced.timeline, traced.window))?;
        }
        output::print(&format!("{}\n", story(&traced.timeline).join("\n")))
    })
}
