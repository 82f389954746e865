//! `mmscale live ab STUDY KEY=A,B`.

use std::fmt::Write;

use anyhow::Context;
use mmscale_document::Target;
use mmscale_harness::{Length, Origin, Registry, Request};
use mmscale_live::ab::{AbError, Answer, Compared, Question, answer, prepare};
use mmscale_report::wrap;

use crate::args::{AbArgs, ChangeArgs, Format, MachineArgs, Size};
use crate::failure::Failure;
use crate::interrupt::{self, Grace};
use crate::output;

use super::preparation::prepare as prepare_kernel;

impl From<AbError> for Failure {
    fn from(error: AbError) -> Self {
        match error {
            AbError::Call(why) => Self::Call(why.into()),
            AbError::Run(why) => Self::Run(why.into()),
            AbError::Sysctl(why) => Self::Run(why.into()),
        }
    }
}

/// Runs the comparison and shows its result.
pub(super) fn ab(registry: &Registry, origin: Origin, args: &AbArgs) -> Result<(), Failure> {
    let question = Question::parse(&args.question)?;
    let plans = prepare(registry, &request(args, origin)?, &question)?;
    let interrupt = interrupt::on_signals(Grace::Live)
        .context("cannot watch for Ctrl-C")
        .map_err(Failure::Run)?;
    prepare_kernel();
    let pairs = plans[0].seeds.len();
    let name = plans[0].study.name();
    let told = |pair: usize| output::tell(&format!("{name}: pair {} of {pairs}", pair + 1));
    let found = answer(&plans, &question, &interrupt, told)?;
    output::print(&match args.format {
        Format::Text => text(&found),
        Format::Json => {
            let line = serde_json::to_string(&found).expect("an answer is plain data");
            format!("{line}\n")
        }
    })
}

/// Returns the request of the runs.
fn request(args: &AbArgs, origin: Origin) -> Result<Request, Failure> {
    let size = Size {
        seeds: args.seeds,
        first: args.first.seed,
        length: if args.quick { Length::Quick } else { Length::Full },
    };
    let arms = args.arm.iter().cloned().collect();
    let machine = MachineArgs { cpus: args.cpus.clone(), ..MachineArgs::default() };
    let changes = ChangeArgs { set: args.set.clone(), ..ChangeArgs::default() };
    let request = machine.request(vec![args.study.clone()], arms, &changes, size, origin)?;
    Ok(Request { on: Some(Target::Live), ..request })
}

fn text(answer: &Answer) -> String {
    let [a, b] = &answer.values;
    let mut text = format!(
        "{} on the live kernel, arm {}, {} CPUs\nA: {key}={a}\nB: {key}={b}\n",
        answer.study,
        answer.arm,
        answer.cpus,
        key = answer.key,
    );
    if let Some(before) = &answer.before {
        text.push_str(&format!("before, and again now: {}={before}\n", answer.key));
    }
    let params: Vec<_> =
        answer.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let (pairs, seed) = (answer.pairs, answer.first_seed);
    let program = answer.program.as_ref().map(|program| format!("{} {program}", program.name));
    for line in [
        wrap(&params.join(", "), "with: ", "  "),
        program.map(|program| wrap(&program, "program: ", "  ")).unwrap_or_default(),
        wrap(&answer.build.to_string(), "mmscale: ", "  "),
        wrap(&answer.command.join(" "), "command: ", "  "),
        wrap(&pairs_of(pairs, seed), "", "  "),
    ]
    .concat()
    {
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    text.push_str("                                     A         B     B/A  95 % interval\n");
    for compared in &answer.metrics {
        row(&mut text, compared);
    }
    if answer.metrics.iter().all(|compared| compared.ci95.is_none()) {
        text.push_str("no interval: at least six pairs are needed\n");
    }
    text.push('\n');
    for (name, value) in &answer.provenance {
        for line in wrap(value, &format!("{name}: "), "  ") {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

fn pairs_of(pairs: usize, first_seed: u64) -> String {
    let last = first_seed + pairs as u64 - 1;
    format!(
        "{pairs} pairs, seeds {first_seed} to {last}, A and B alternating; medians of A and of B; \
         B/A is the Hodges-Lehmann estimate over pairs"
    )
}

fn row(text: &mut String, compared: &Compared) {
    let (a, b) = (median(&compared.a), median(&compared.b));
    let ratio = compared.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
    let interval = compared.ci95.map_or("-".to_owned(), |[lo, hi]| format!("{lo:.3}..{hi:.3}"));
    writeln!(
        text,
        "{:<28}{:>10}{:>10}{ratio:>8}{interval:>16}",
        compared.metric,
        number(a),
        number(b)
    )
    .expect("a string takes all that is written");
}

fn median(values: &[f64]) -> f64 {
    mmscale_stats::median(values).unwrap_or(0.0)
}

/// Formats a number with about four digits.
fn number(x: f64) -> String {
    match x.abs() {
        _ if x == 0.0 => "0".to_owned(),
        size if size >= 1e9 => format!("{:.2}G", x / 1e9),
        size if size >= 1e6 => format!("{:.2}M", x / 1e6),
        size if size >= 1e4 => format!("{:.1}k", x / 1e3),
        size if size >= 100.0 => format!("{x:.0}"),
        size if size >= 0.01 => format!("{x:.3}"),
        _ => format!("{x:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_document::{Build, ParamValue};

    #[test]
    fn an_answer_says_what_was_run() {
        let answer = Answer {
            schema: "mmscale/ab/2",
            study: "pcp".to_owned(),
            arm: "stock".to_owned(),
            key: "watch".to_owned(),
            values: ["off", "auto"].map(str::to_owned),
            before: None,
            cpus: 2,
            params: [("workload".to_owned(), ParamValue::Choice("purger".to_owned()))].into(),
            pairs: 2,
            first_seed: 5,
            metrics: vec![],
            build: Build::new("mmscale", "0.1.0", "0123456789ab"),
            program: None,
            command: ["mmscale", "run"].map(str::to_owned).into(),
            provenance: [("kernel".to_owned(), "6.18".to_owned())].into(),
        };
        let text = text(&answer);
        for line in ["with: workload=purger", "mmscale: 0.1.0, commit 0123456789ab", "kernel: 6.18"]
        {
            assert!(text.lines().any(|other| other == line), "{text}");
        }
        assert!(!text.contains("program:"), "{text}");
        assert!(text.contains("2 pairs, seeds 5 to 6"), "{text}");
        assert!(text.contains("at least six pairs"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 72), "{text}");
    }

    #[test]
    fn rows_fit_a_mail() {
        let compared = Compared {
            metric: "pages_per_s".to_owned(),
            unit: "1/s".to_owned(),
            a: vec![371_000.0, 380_000.0, 360_000.0],
            b: vec![534_000.0, 500_000.0, 540_000.0],
            ratio: Some(1.43),
            ci95: Some([1.38, 1.50]),
            p: Some(0.25),
        };
        let mut text = String::new();
        row(&mut text, &compared);
        let line = "pages_per_s                     371.0k    534.0k   1.430    1.380..1.500\n";
        assert_eq!(text, line);
        assert!(text.len() <= 73);
    }
}
