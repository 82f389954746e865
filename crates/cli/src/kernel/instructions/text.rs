//! Tables of one image.

use mmscale_report::wrap;
use mmscale_vm::instructions::{Function, Hold, Spread, Summary};

use super::document::{Document, Model, Row, Script, Side};
use super::locks::{class, place};

/// Characters of the name of a function, or of a lock with its place.
const NAME: usize = 42;

/// Writes the tables, with so many rows each.
pub(super) fn text(document: &Document, rows: usize) -> String {
    let mut lines = document.images.iter().flat_map(|side| image("kernel", side)).collect();
    counted(&mut lines);
    for script in &document.scripts {
        lines.push(String::new());
        lines.extend(head(script));
        if let Some(summary) = script.operations.first() {
            lines.extend(operation(summary, rows));
        }
    }
    lines.extend(document.model.iter().flat_map(model));
    lines.join("\n") + "\n"
}

/// The lines on an image.
pub(super) fn image(word: &str, side: &Side) -> Vec<String> {
    let package = side.package.as_ref().map_or_else(|| side.image.clone(), Clone::clone);
    let text = format!(
        "Linux {}, {} CPUs; {}; {package}",
        side.release,
        side.cpus,
        side.settings.join(", ")
    );
    wrap(&text, &format!("{word:<10}"), &" ".repeat(10))
}

/// The lines on what was counted.
pub(super) fn counted(lines: &mut Vec<String>) {
    let text = "instructions that the kernel executes on one CPU for an operation of a script, \
                counted by an emulator: the same each time and everywhere. No interrupts, no \
                cache misses, no waits, no times. A repeated string instruction is one";
    lines.extend(wrap(text, "counted   ", "          "));
}

/// The lines on a script.
pub(super) fn head(script: &Script) -> Vec<String> {
    wrap(&script.summary, &format!("{:<10}", script.name), &" ".repeat(10))
}

/// The model next to the kernel.
fn model(model: &Model) -> Vec<String> {
    let head = |title: &str| format!("{title:<38} {:>9} {:>9} {:>9}", "instr.", "ns", "ns/instr.");
    let line = |name: &str, row: &Row| {
        let Row { instructions, ns, .. } = row;
        let ratio = ns / instructions;
        let [a, b] = [instructions, ns].map(|value| number(*value));
        format!("{} {a:>9} {b:>9} {ratio:>9.3}", cut(name, 38))
    };
    let what = format!(
        "profile {}, one CPU, policies of Linux {}. Its ns have the clearing of pages, which is \
         one instruction here; a lock that both sides name alike may protect more on one of them",
        model.profile, model.linux
    );
    let mut lines = vec![String::new()];
    lines.extend(wrap(&what, "model     ", "          "));
    lines.push(head("an operation, and its holds by lock"));
    lines.extend(model.rows.iter().map(|row| {
        let name = match row.what.as_str() {
            "all" => format!("  {}", row.script),
            what => format!("    {what}"),
        };
        line(&name, row)
    }));
    lines.push(head("an operation of profiles"));
    lines.extend(model.costs.iter().map(|row| line(&format!("  {}", row.what), row)));
    lines
}

fn operation(summary: &Summary, rows: usize) -> Vec<String> {
    let Summary { instructions, locked, rounds, ops, .. } = summary;
    let mut lines = wrap(
        &format!(
            "{} instructions an operation ({} to {} in {rounds} rounds of {}), {} locked",
            number(instructions.median),
            number(instructions.min),
            number(instructions.max),
            number(ops.median),
            number(locked.median),
        ),
        "  ",
        "  ",
    );
    lines.push(row("  locks by place", ["an op", "median", "range"]));
    lines.extend(summary.holds.iter().take(rows).map(hold));
    lines.push(row("  functions by their own", ["own an op", "a call", "calls"]));
    let mut functions: Vec<&Function> = summary.functions.iter().collect();
    functions.sort_by(|a, b| b.own.total_cmp(&a.own));
    lines.extend(functions.into_iter().take(rows).map(function));
    lines
}

fn hold(hold: &Hold) -> String {
    let name = format!("  {:<11} {}", class(hold), place(hold));
    row(&name, [number(hold.instructions), number(hold.hold.median), range(&hold.hold)])
}

fn function(function: &Function) -> String {
    let name = format!("  {}", function.name);
    let cells = [number(function.own), number(function.call.median), number(function.calls)];
    row(&name, cells)
}

fn row<T: AsRef<str>>(name: &str, cells: [T; 3]) -> String {
    let [first, second, third] = &cells;
    let (first, second, third) = (first.as_ref(), second.as_ref(), third.as_ref());
    format!("{} {first:>9} {second:>8} {third:>10}", cut(name, NAME))
}

/// A name in so many characters.
pub(super) fn cut(name: &str, most: usize) -> String {
    match name.chars().count() > most {
        true => name.chars().take(most - 2).chain("..".chars()).collect(),
        false => format!("{name:<most$}"),
    }
}

fn range(spread: &Spread) -> String {
    match spread.min == spread.max {
        true => String::new(),
        false => format!("{}-{}", number(spread.min), number(spread.max)),
    }
}

/// A number with three digits at least.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        value_abs if value_abs >= 99.95 || value.fract() == 0.0 => format!("{value:.0}"),
        value_abs if value_abs >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let shown = [0.0, 1.0, 0.5, 3.456, 12.34, 99.97, 2938.29].map(number);
        assert_eq!(shown, ["0", "1", "0.50", "3.46", "12.3", "100", "2938"]);
    }

    #[test]
    fn rows_fit_a_mail() {
        let name = "  lruvec      folio_lruvec_lock_irqsave < folio_batch_move_lru";
        let line = row(name, ["123456", "123456", "1234-12345"]);
        assert!(line.chars().count() <= 72, "{line}");
    }
}
