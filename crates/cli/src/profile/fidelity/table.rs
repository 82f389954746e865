//! The gallery as text and as Markdown.

use std::fmt::Write;

use mmscale_calibrate::gallery::{
    CURVE_WITHIN, Counts, EFFECT_WITHIN, Held, Item, Kept, LEVEL_WITHIN, Lifted, LiftedCurve,
    LiftedPoint, LiftedRow, Row, SHARE_WITHIN, Verdict, What, counts,
};
use mmscale_report::wrap;

/// Formats the gallery in 72 columns, item by item.
pub(super) fn text(items: &[Item], kept: &[Kept], lifted: &Lifted) -> String {
    let mut text = String::new();
    for item in items {
        let rows: Vec<&Row> = rows_of(kept).filter(|row| row.item == item.id).collect();
        if rows.is_empty() {
            continue;
        }
        let head = format!("{}: {}", item.id, item.title);
        wrap(&head, "", "  ").iter().for_each(|line| push(&mut text, line));
        let source = format!("{}. {}.", item.source, item.measured_on);
        wrap(&source, "  ", "  ").iter().for_each(|line| push(&mut text, line));
        for row in rows {
            push(&mut text, &format!("  {:6} {}", row.what.name(), row.label));
            push(&mut text, &format!("         {}", figures(item, row)));
            if let Some(replay) = lifted.of(row) {
                push(&mut text, &format!("         replay {}", of_replay(item, row, replay)));
            }
        }
        if !item.found.is_empty() {
            wrap(&item.found, "  ", "  ").iter().for_each(|line| push(&mut text, line));
        }
        text.push('\n');
    }
    let foot = format!("{} {} {}", summary(kept), summary_of_replays(kept, lifted), limits());
    wrap(&foot, "", "").iter().for_each(|line| push(&mut text, line));
    text
}

/// Returns the comparisons of all calls.
fn rows_of(kept: &[Kept]) -> impl Iterator<Item = &Row> {
    kept.iter().flat_map(|call| &call.rows)
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Returns published and predicted figures of a row, and the verdict.
fn figures(item: &Item, row: &Row) -> String {
    let mut text = String::new();
    if let Some(published) = row.published {
        write!(text, "published {}, ", form(item, row.what, published)).expect("a string");
    }
    write!(text, "predicted {}", form(item, row.what, row.predicted)).expect("a string");
    if let Some(range) = range(item, row) {
        write!(text, " [{range}]").expect("a string");
    }
    if row.verdict != Verdict::Blind {
        write!(text, ": {}", verdict(row)).expect("a string");
    }
    text
}

/// Returns the rate of a replay with the verdict, and what is waited for longest.
fn of_replay(item: &Item, row: &Row, replay: &LiftedRow) -> String {
    let value = form(item, row.what, replay.value);
    let judged = replay.judged(row);
    let verdict = judged.map_or(String::new(), |(_, verdict)| format!(": {}", verdict.name()));
    format!("{value}{verdict}; {}", limit_of(replay))
}

/// Locks, or lines, limit a replay from this share of the time of CPUs on.
const LIMITS_FROM: f64 = 0.05;

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns what is waited for longest.
fn limit_of(replay: &LiftedRow) -> String {
    match (replay.share, replay.lines_share) {
        (lock, lines) if lines > lock && lines >= LIMITS_FROM => {
            format!("lines {}, most {}", percent(lines), replay.line)
        }
        (lock, _) if lock >= LIMITS_FROM => format!("{} {}", replay.lock, percent(lock)),
        _ => "none".to_owned(),
    }
}

/// Formats the replays of recorded kernels next to published and to the model's rates.
pub(super) fn replays(items: &[Item], kept: &[Kept], lifted: &Lifted) -> String {
    let mut text = "| item | of | published | model | replay | part | verdict | limit of the \
                    replay | recorded |\n|---|---|---|---|---|---|---|---|---|"
        .to_owned();
    for (row, replay) in lifted.pairs(kept) {
        let Some(item) = items.iter().find(|item| item.id == row.item) else { continue };
        let published = row.published.map(|published| form(item, row.what, published));
        let (part, judged) = match replay.judged(row) {
            Some((part, judged)) => (format!("{part:.2}"), judged.name()),
            None => (String::new(), ""),
        };
        let recorded = replay.recorded.trim_start_matches("lift record --kernel ");
        let cells = [
            row.item.clone(),
            row.label.clone(),
            published.unwrap_or_default(),
            format!("{}, {}", form(item, row.what, row.predicted), verdict(row)),
            form(item, row.what, replay.value),
            part,
            judged.to_owned(),
            limit_of(replay),
            format!("`{recorded}`"),
        ];
        text += &format!("\n| {} |", cells.join(" | "));
    }
    format!("{text}\n\n{}", summary_of_replays(kept, lifted))
}

/// Formats the replays without a measurement next to them.
pub(super) fn curves(lifted: &Lifted) -> String {
    let mut text = String::new();
    for LiftedCurve { name, profile, recorded, points } in &lifted.curves {
        let recorded = recorded.trim_start_matches("lift record --kernel ");
        text += &format!("\n\n{name}; recorded `{recorded}`, profile {profile}:\n\n");
        text += "| CPUs | ops/s | longest waits | time in calls |\n|---|---|---|---|";
        for LiftedPoint { cpus, value, lock, share, calls_share } in points {
            let lock = match *share >= LIMITS_FROM {
                true => format!("{lock} {}", percent(*share)),
                false => "none".to_owned(),
            };
            let (value, calls) = (rate(*value), percent(*calls_share));
            text += &format!("\n| {cpus} | {value} | {lock} | {calls} |");
        }
    }
    text.trim_start().to_owned()
}

/// Returns how many rates of replays hold, and how many of the model's for the same items.
pub(super) fn summary_of_replays(kept: &[Kept], lifted: &Lifted) -> String {
    let pairs = lifted.pairs(kept);
    let holds = |judged: Option<Verdict>| judged == Some(Verdict::Holds);
    let of_replays = pairs.iter().filter(|(row, of)| holds(of.judged(row).map(|judged| judged.1)));
    let of_model = pairs.iter().filter(|(row, _)| holds(Some(row.verdict)));
    format!(
        "Replays of recorded kernels: {} of {} rates hold, of the model's for the same items {}.",
        of_replays.count(),
        pairs.len(),
        of_model.count()
    )
}

fn range(item: &Item, row: &Row) -> Option<String> {
    let [least, greatest] = row.interval?;
    Some(format!("{}..{}", form(item, row.what, least), form(item, row.what, greatest)))
}

fn verdict(row: &Row) -> String {
    match row.parts_at {
        Some(x) => format!("{} at {x}", row.verdict.name()),
        None => row.verdict.name().to_owned(),
    }
}

/// Formats a rate without its unit.
fn rate(value: f64) -> String {
    let (scaled, prefix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = if scaled.abs() < 1.0 { 3 } else { 2 };
    format!("{scaled:.digits$}{prefix}")
}

/// Formats a value: a change, a factor, a share, or a value with its unit.
fn form(item: &Item, what: What, value: f64) -> String {
    match what {
        What::Effect if (0.5..2.0).contains(&value) => format!("{:+.1} %", (value - 1.0) * 100.0),
        What::Effect | What::Curve => format!("x {value:.3}"),
        What::Share | What::Limiter => format!("{:.1} %", value * 100.0),
        What::Level | What::Last => {
            format!("{} {}", rate(value), item.unit).trim_end_matches(" 1").to_owned()
        }
    }
}

/// Formats the gallery as a Markdown table, misses first, and what was found out about them.
pub(super) fn markdown(items: &[Item], kept: &[Kept], lifted: &Lifted) -> String {
    let of = |row: &Row| items.iter().find(|item| item.id == row.item);
    let mut rows: Vec<(&Row, &Item)> =
        rows_of(kept).filter_map(|row| Some((row, of(row)?))).collect();
    rows.sort_by_key(|(row, _)| row.verdict);
    let blind = rows.iter().all(|(row, _)| row.verdict == Verdict::Blind);
    let scores = if blind { String::new() } else { format!("{}\n\n", by_question(kept)) };
    let of_replays = match blind {
        true => String::new(),
        false => {
            let all = [replays(items, kept, lifted), curves(lifted)];
            let all = all.iter().filter(|part| !part.is_empty());
            all.flat_map(|part| [part, "\n\n"]).collect()
        }
    };
    let mut text = format!("{scores}{}\n\n{of_replays}", summary(kept));
    if blind {
        text.push_str("| item | what | of | predicted | interval |\n|---|---|---|---|---|\n");
    } else {
        text.push_str("| item | what | of | published | predicted | interval | part | verdict | ");
        text.push_str("replay |\n|---|---|---|---|---|---|---|---|---|\n");
    }
    for (row, item) in rows {
        let range = range(item, row).unwrap_or_default();
        let predicted = form(item, row.what, row.predicted);
        let (what, label) = (row.what.name(), &row.label);
        if blind {
            push(&mut text, &format!("| {} | {what} | {label} | {predicted} | {range} |", item.id));
            continue;
        }
        let published = row.published.map(|published| form(item, row.what, published));
        let part = row.part.map(|part| format!("{part:.2}")).unwrap_or_default();
        push(
            &mut text,
            &format!(
                "| {} | {what} | {label} | {} | {predicted} | {range} | {part} | {} | {} |",
                item.id,
                published.unwrap_or_default(),
                verdict(row),
                lifted.of(row).map(|of| of_replay(item, row, of)).unwrap_or_default()
            ),
        );
    }
    for call in kept {
        text.push('\n');
        let line = format!("Made by `{}`, {}.", call.command.join(" "), call.build);
        wrap(&line, "", "").iter().for_each(|line| push(&mut text, line));
    }
    text.push('\n');
    for item in items.iter().filter(|item| rows_of(kept).any(|row| row.item == item.id)) {
        let (id, title, source, on) = (&item.id, &item.title, &item.source, &item.measured_on);
        let mut line = format!("- **{id}**, {title}. Source: {source}. Measured on: {on}.");
        if !item.found.is_empty() {
            write!(line, " Found: {}", item.found).expect("a string");
        }
        wrap(&line, "", "  ").iter().for_each(|line| push(&mut text, line));
    }
    text
}

/// A prediction that differs by less than this share has not moved.
const MOVED_BEYOND: f64 = 0.01;

/// Formats the rows that differ from earlier results, in 72 columns.
pub(super) fn moved(items: &[Item], before: &[Kept], after: &[Kept]) -> String {
    let mut text = String::new();
    let mut equal = 0;
    for item in items {
        for row in rows_of(after).filter(|row| row.item == item.id) {
            let is_same = |old: &&Row| (old.what, &old.label) == (row.what, &row.label);
            let old = rows_of(before).filter(|old| old.item == item.id).find(is_same);
            let has_moved = old.is_none_or(|old| {
                (row.predicted / old.predicted - 1.0).abs() > MOVED_BEYOND
                    || verdict(old) != verdict(row)
            });
            if !has_moved {
                equal += 1;
                continue;
            }
            push(&mut text, &format!("{:11} {:6} {}", item.id, row.what.name(), row.label));
            let of = |row: &Row| form(item, row.what, row.predicted);
            let published = row.published.map(|published| form(item, row.what, published));
            let published = published.map(|published| format!("published {published}, "));
            let (was, judged) = old.map_or(("none".to_owned(), String::new()), |old| {
                (of(old), format!(", before {}", verdict(old)))
            });
            let line = format!(
                "{}predicted {was} -> {}: {}{judged}",
                published.unwrap_or_default(),
                of(row),
                verdict(row)
            );
            wrap(&line, "    ", "    ").iter().for_each(|line| push(&mut text, line));
        }
    }
    let line = format!("{equal} rows are as before.");
    push(&mut text, &line);
    for (word, kept) in [("before", before), ("after", after)] {
        wrap(&format!("{word}: {}", summary(kept)), "", "  ")
            .iter()
            .for_each(|line| push(&mut text, line));
    }
    text
}

/// Returns the counts of verdicts, in a sentence for each half of the gallery.
pub(super) fn summary(kept: &[Kept]) -> String {
    let rows: Vec<Row> = rows_of(kept).cloned().collect();
    let halves = [("", false), ("Predicted blind: ", true)].map(|(head, blind)| {
        let counts = counts(&rows, blind);
        (counts.items > 0).then(|| format!("{head}{}", counted(&counts)))
    });
    let halves: Vec<String> = halves.into_iter().flatten().collect();
    if halves.is_empty() {
        return "Predictions; the published results were not known when they were made.".to_owned();
    }
    halves.join(" ")
}

/// Returns the scores by kind of question, as a Markdown table: items whose results were known when
/// the model was made, and those that were predicted before.
pub(super) fn by_question(kept: &[Kept]) -> String {
    let rows: Vec<Row> = rows_of(kept).cloned().collect();
    let (open, blind) = (counts(&rows, false), counts(&rows, true));
    type Score = fn(&Counts) -> Held;
    let score = |of: Score| {
        let cell = |held: Held| if held.all == 0 { "-".to_owned() } else { held.to_string() };
        format!("{} | {}", cell(of(&open)), cell(of(&blind)))
    };
    let questions: [(&str, Score); 8] = [
        ("Which lock is waited for most?", |counts| counts.limiters),
        ("Is it better or worse with the change?", |counts| counts.signs),
        ("By how much? (25 %)", |counts| counts.effects),
        ("How does it grow with CPUs? (each point next to the first, 15 %)", |counts| {
            counts.points
        }),
        ("The same, the whole curve", |counts| counts.curves),
        ("What is the rate on all CPUs? (25 %)", |counts| counts.lasts),
        ("What is the rate or the time at the first point? (25 %)", |counts| counts.levels),
        ("What share of CPU time goes into a lock? (10 points)", |counts| counts.shares),
    ];
    let mut text = "| question | known before | predicted blind |\n|---|---|---|".to_owned();
    for (question, of) in questions {
        text.push_str(&format!("\n| {question} | {} |", score(of)));
    }
    text
}

fn counted(counts: &Counts) -> String {
    let parts = [
        (counts.limiters, "limiters are right"),
        (counts.signs, "effects have the right sign"),
        (counts.effects, "effects the size"),
        (counts.points, "points of curves the growth"),
        (counts.curves, "curves hold as a whole"),
        (counts.lasts, "last points hold"),
        (counts.levels, "levels hold"),
        (counts.shares, "shares hold"),
        (counts.covered, "published values are within the interval of drawn machines"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(held, _)| held.all > 0)
        .map(|(held, what)| format!("{held} {what}"))
        .collect();
    format!("{} items: {}.", counts.items, parts.join(", "))
}

/// Returns what counts as a prediction that holds.
fn limits() -> String {
    let percent = |share: f64| share * 100.0;
    format!(
        "An effect holds within {} % of its size, a curve if all points relative to the first are \
         within {} %, a level within {} %, a share of CPU time within {} points. Intervals: the \
         profile's machine and machines whose costs are drawn from their ranges.",
        percent(EFFECT_WITHIN),
        percent(CURVE_WITHIN),
        percent(LEVEL_WITHIN),
        percent(SHARE_WITHIN)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmscale_calibrate::gallery::{self, Knowledge};

    fn item() -> Item {
        let all = gallery::items().unwrap_or_else(|why| panic!("{why}"));
        all.into_iter().find(|item| item.seen == Knowledge::Open).expect("there are some")
    }

    #[test]
    fn values_have_the_form_of_their_kind() {
        let item = item();
        assert_eq!(form(&item, What::Effect, 1.196), "+19.6 %");
        assert_eq!(form(&item, What::Effect, 2.89), "x 2.890");
        assert_eq!(form(&item, What::Curve, 6.9), "x 6.900");
        assert_eq!(form(&item, What::Share, 0.645), "64.5 %");
        assert_eq!(form(&item, What::Level, 898_781.8), format!("898.78k {}", item.unit));
    }

    #[test]
    fn misses_come_first() {
        let item = item();
        let row = |verdict| Row {
            item: item.id.clone(),
            what: What::Level,
            label: "one".to_owned(),
            published: Some(1.0),
            predicted: 2.0,
            interval: None,
            part: Some(2.0),
            sign: None,
            verdict,
            parts_at: None,
            predicted_blind: false,
            points: Vec::new(),
        };
        let rows = vec![row(Verdict::Holds), row(Verdict::Off)];
        let build = mmscale_document::Build::new("mmscale", "0", "unknown");
        let lifted = Lifted { build: build.clone(), rows: vec![], curves: vec![] };
        let kept = Kept { build, command: vec![], rows };
        let text = markdown(&[item], &[kept], &lifted);
        assert!(text.find("| off |").unwrap() < text.find("| holds |").unwrap(), "{text}");
    }
}
