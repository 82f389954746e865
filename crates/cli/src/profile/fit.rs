//! `mmscale profile fit`.

use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use mmscale_calibrate::rates::{self, FitError, FitRequest, Fitted, PLAUSIBLE, REPRODUCED, Rate};
use mmscale_harness::{CallError, Registry, RunError, linux_version};

use super::new;
use crate::args::FitArgs;
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

/// Derives a profile, fits its costs to measured rates, and writes it to a file or to stdout.
pub(super) fn fit(registry: &Registry, args: &FitArgs) -> Result<(), Failure> {
    let rates = args.rates.iter().map(|text| Rate::parse(text)).collect::<Result<Vec<_>, _>>();
    let rates = rates.map_err(|why| Failure::Call(why.into()))?;
    let linux = args.linux.as_deref().map(linux_version).transpose().map_err(CallError::from)?;
    let place = new::place(&args.known)?;
    let known = new::known(registry.profiles(), &args.known)?;
    let interrupt = interrupt::on_signals(Grace::Computing)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    // The bar hides itself if stderr is not a terminal.
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
    bar.set_style(style.expect("the template is well-formed"));
    bar.set_message("running the programs on one simulated CPU");
    bar.enable_steady_tick(Duration::from_millis(200));
    let request = FitRequest { known: &known, rates: &rates, registry, linux, set: &args.set };
    let fitted = rates::fit(&request, &interrupt);
    bar.finish_and_clear();
    let fitted = fitted.map_err(failed)?;
    table(&fitted).iter().for_each(|line| output::tell(line));
    notes(&fitted).iter().for_each(|note| output::tell(&format!("note: {note}")));
    new::written(&fitted.derived, place, &rates::text(&fitted))
}

fn failed(why: FitError) -> Failure {
    match why {
        FitError::Run { why: RunError::Interrupted { .. } } => {
            Failure::Run(anyhow::anyhow!("interrupted; no profile was written"))
        }
        why if why.is_call() => Failure::Call(why.into()),
        why => Failure::Run(why.into()),
    }
}

/// Formats the rates before and after the fit, and the factors, in 72 columns.
fn table(fitted: &Fitted) -> Vec<String> {
    let row = |cells: [&str; 4]| {
        let [name, cells @ ..] = cells;
        let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
        format!("{name:<24}{cells}")
    };
    let mut lines = vec![row(["operations/s on one CPU", "measured", "base", "fitted"])];
    for of in &fitted.rates {
        let all = [of.rate.per_s, of.before_per_s, of.after_per_s].map(Rate::shown);
        let [measured, before, after] = &all;
        lines.push(row([&of.rate.program, measured, before, after]));
    }
    lines.push("factor  of the cost of".to_owned());
    let single = fitted.factors.len() == 1;
    lines.extend(fitted.factors.iter().map(|(group, factor)| {
        let of =
            if single { "all operations but clearing and copying pages" } else { group.name() };
        format!("{factor:>6.2}  {of}")
    }));
    lines.push("The rates are inputs now: everything on more CPUs is a prediction.".to_owned());
    lines
}

/// Returns what a reader of the profile has to know.
fn notes(fitted: &Fitted) -> Vec<String> {
    let mut notes = Vec::new();
    for of in &fitted.rates {
        let left = of.remainder();
        if left.abs() > REPRODUCED {
            let why = if fitted.rates.len() > 1 {
                "no plausible costs of this base have all rates"
            } else {
                "its window has few counts; make it longer with --set duration_ms"
            };
            let (rate, percent) = (&of.rate, left * 100.0);
            notes.push(format!(
                "{rate} is not reproduced: the fitted profile differs by {percent:+.1} %; {why}"
            ));
        }
    }
    let [least, most] = PLAUSIBLE;
    let far = fitted.factors.iter().filter(|(_, factor)| !(least..=most).contains(factor));
    let far: Vec<String> = far.map(|(_, factor)| format!("{factor:.2}")).collect();
    if !far.is_empty() {
        let (s, are) = if far.len() == 1 { ("", "is") } else { ("s", "are") };
        notes.push(format!(
            "factor{s} {} {are} outside {least} to {most}, which is not plausible: the base is a \
             machine of another kind, the script is not the program that was measured, or a rate \
             is not that of one program on one CPU",
            far.join(", ")
        ));
    }
    notes
}
