//! `mmscale lift fit`: what of an operation grows with the number of CPUs.

use anyhow::anyhow;
use mmscale_lift::{Fitted, Growth, Row, fit, sums};

use super::show::{head, number, read};
use crate::args::LiftFitArgs;
use crate::destination::{Destination, RECORDING};
use crate::failure::Failure;
use crate::output;

/// Characters of a place.
const NAME: usize = 44;

/// Fits recordings, shows what grows, and writes the file.
pub(super) fn fitted(args: &LiftFitArgs) -> Result<(), Failure> {
    let recordings: Vec<_> = args.files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    let (made, fitted) = fit(&recordings).map_err(|why| Failure::Call(anyhow!("{why}")))?;
    let place = Destination::open(&args.output, output::existing(args.replace), RECORDING)?;
    let mut lines = head(&made);
    let halves = [0, 1].map(|first| sums(&made.half(first)).instructions);
    lines.extend(made.growth.iter().flat_map(|growth| error(growth, halves)));
    lines.extend(text(&fitted, args.rows));
    output::print(&(lines.join("\n") + "\n"))?;
    let mut bytes = Vec::new();
    made.write(&mut bytes).map_err(|why| Failure::Run(why.into()))?;
    place.write(bytes)
}

fn error(growth: &Growth, [one, other]: [f64; 2]) -> Vec<String> {
    let apart = (one / other - 1.0).abs() * 100.0;
    let largest = growth.sizes.last().copied().unwrap_or(0);
    let said = match growth.error {
        Some(error) => format!(
            "the others predict {:.1} % more or less instructions an operation on {largest} CPUs \
             than were recorded",
            error * 100.0
        ),
        None => "of two sizes no error can be said".to_owned(),
    };
    let text = format!("{said}; halves of the largest recording differ by {apart:.1} %");
    mmscale_report::wrap(&text, "error     ", "          ")
}

fn text(fitted: &Fitted, rows: usize) -> Vec<String> {
    let sizes = fitted.sizes.iter().map(|size| format!("{size} CPUs")).collect::<Vec<_>>();
    let head = |title: &str| line(title, &sizes, "a + b N");
    let law = |[a, b]: [f64; 2]| format!("{} {} {} N", number(a), sign(b), number(b.abs()));
    let all = |values: &[f64]| values.iter().map(|value| number(*value)).collect::<Vec<_>>();
    let name = |row: &Row| format!("  {} < {}", row.function, row.caller);
    let mut lines = vec![
        String::new(),
        head("instructions an operation"),
        line("  all", &all(&fitted.instructions), &law(fitted.line)),
    ];
    let place = |row: &Row| line(&name(row), &all(&row.instructions), &law(row.line));
    lines.extend([String::new(), head("places that grow")]);
    lines.extend(fitted.rows.iter().take(rows).map(place));
    lines.extend(more(fitted.rows.len(), rows));
    if fitted.rows.is_empty() {
        lines.push("  none: operations do not depend on the number of CPUs".to_owned());
    }
    if !fitted.left.is_empty() {
        lines.extend([String::new(), head("places that are left as on the largest")]);
        for (row, why) in fitted.left.iter().take(rows) {
            lines.push(line(&name(row), &all(&row.instructions), why));
        }
        lines.extend(more(fitted.left.len(), rows));
    }
    lines
}

fn sign(value: f64) -> char {
    if value < 0.0 { '-' } else { '+' }
}

fn more(all: usize, shown: usize) -> Option<String> {
    (all > shown).then(|| format!("  and {} more; --rows shows them", all - shown))
}

fn line(name: &str, values: &[String], end: &str) -> String {
    let name: String = match name.chars().count() > NAME {
        true => name.chars().take(NAME - 2).chain("..".chars()).collect(),
        false => format!("{name:<NAME$}"),
    };
    let values: String = values.iter().map(|value| format!(" {value:>8}")).collect();
    format!("{name}{values}  {end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_shown_with_their_law_and_reasons() {
        let row = |function: &str, instructions: [f64; 2], line| Row {
            function: function.to_owned(),
            caller: "smp_call".to_owned(),
            instructions: instructions.into(),
            accesses: vec![0.0; 2],
            line,
        };
        let fitted = Fitted {
            sizes: vec![4, 8],
            instructions: vec![1000.0, 1200.0],
            line: [800.0, 50.0],
            rows: vec![
                row("llist_add", [40.0, 80.0], [0.0, 10.0]),
                row("b", [9.0, 1.0], [0.0, 1.0]),
            ],
            left: vec![(row("find", [9.0, 1.0], [17.0, -2.0]), "it does not grow on a line")],
        };
        let lines = text(&fitted, 1).join("\n");
        assert!(lines.contains("800 + 50 N") && lines.contains("llist_add < smp_call"), "{lines}");
        assert!(lines.contains("and 1 more") && lines.contains("it does not grow"), "{lines}");
        let growth = Growth { sizes: vec![4, 8], ..Growth::default() };
        assert!(error(&growth, [100.0, 101.0]).join(" ").contains("no error can be said"));
    }
}
