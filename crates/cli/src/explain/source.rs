//! Reads another tool's report, for an explanation or into a document for `compare`.

use std::io::{Cursor, Read};
use std::path::Path;

use anyhow::anyhow;
use mmscale_document::{Kept, MEASURED_SCHEMA, Measurement, plain};
use mmscale_harness::Origin;
use mmscale_measured::{
    MAX_BYTES, ReadError, Report, Snapshot, Stream, Table, read, read_parts, text_of,
};
use mmscale_report::json_line;

use super::input::Input;
use crate::args::{ExplainArgs, SourceArgs};
use crate::destination::{Destination, MEASUREMENT};
use crate::failure::Failure;
use crate::output;

/// Seconds of a measurement: a year is enough.
const MAX_S: f64 = 366.0 * 86_400.0;

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Call(error.into())
    }
}

/// Reads a report and writes its waits to a file, as a document.
pub(super) fn save(origin: Origin, args: &ExplainArgs, path: &Path) -> Result<(), Failure> {
    let place = Destination::open(path, output::existing(args.replace), MEASUREMENT)?;
    let file = &args.source.file;
    let wrong = |what: String| Failure::Call(anyhow!("cannot save {}: {what}", named(file)));
    let report = open(&args.source)?;
    let table = chosen(&report, &args.source)?;
    if let Some(fault) = &table.fault {
        return Err(wrong(fault.to_string()));
    }
    if table.waits.is_empty() {
        return Err(wrong(format!("the table at line {} has no rows", table.lines.0)));
    }
    let measured = measurement(&report, table, &args.source, origin);
    measured.notes.iter().for_each(|note| output::tell(&format!("note: {note}")));
    for (what, option) in unknown(&measured) {
        output::tell(&format!("note: the report does not have {what}: give {option}"));
    }
    place.write(json_line(&measured))
}

/// Checks the duration that a call gives.
pub(super) fn check_seconds(args: &SourceArgs) -> Result<(), Failure> {
    if args.seconds.is_some_and(|s| !(s > 0.0 && s <= MAX_S)) {
        let what = "a measurement takes more than 0 s and at most a year: give --seconds 10";
        return Err(Failure::Call(anyhow!(what)));
    }
    Ok(())
}

/// Reads the file of a call.
pub(super) fn open(args: &SourceArgs) -> Result<Report, Failure> {
    check_seconds(args)?;
    let path = &args.file;
    let fail = |why: String| Failure::Call(anyhow!("cannot read {}: {why}", named(path)));
    let mut input = Input::open(path).map_err(fail)?;
    let note = input.note.clone();
    if Snapshot::begins(&input.start) {
        let name = named(path);
        return Err(Failure::Call(anyhow!(
            "{name} is a snapshot of a machine: give a later one too, for rates between the two; \
             `mmscale list limits --from` and `mmscale profile new --from` take one"
        )));
    }
    let has_events = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().any(Stream::is_event);
    let mut stream = Stream::default();
    let mut report = if input.start.len() as u64 > WITH_TEXT && has_events(&input.start) {
        // A trace has no other contents, and may be of any size.
        input.lines(|line| stream.line(line)).map_err(fail)?;
        Report::default()
    } else {
        let bytes = input.bytes(MAX_BYTES as u64).map_err(fail)?;
        if bytes.len() > MAX_BYTES {
            let all = Cursor::new(bytes).chain(input.rest());
            let report = read_parts(all, MAX_BYTES).map_err(|why| fail(why.to_string()))?;
            input.ended().map_err(fail)?;
            report
        } else {
            let report = read(&bytes).map_err(|why| fail(why.to_string()))?;
            text_of(&bytes).lines().for_each(|line| stream.line(line));
            report
        }
    };
    report.notes.splice(0..0, note);
    report.add(stream.finish());
    Ok(report)
}

/// Bytes of a file in which there may be a trace and other contents.
const WITH_TEXT: u64 = (1 << 20) - 1;

fn named(path: &Path) -> String {
    if path == Path::new("-") { "stdin".to_owned() } else { format!("`{}`", path.display()) }
}

/// Returns the table of a call, or the only one.
fn chosen<'a>(report: &'a Report, args: &SourceArgs) -> Result<&'a Table, Failure> {
    let wrong = |what: String| Failure::Call(anyhow!("cannot save {}: {what}", named(&args.file)));
    let listed = || {
        let each = report.tables.iter().enumerate().map(|(at, table)| {
            let Table { tool, lines, caption, .. } = table;
            let caption = if caption.is_empty() { String::new() } else { format!(" ({caption})") };
            format!("{} at line {}: {tool}{caption}", at + 1, lines.0)
        });
        each.collect::<Vec<_>>().join("; ")
    };
    match (report.tables.as_slice(), args.table) {
        ([], _) => {
            let others = report.others.first();
            Err(wrong(others.cloned().unwrap_or_else(|| {
                format!(
                    "no table found in its {} lines; known are `perf lock contention` (also -x), \
                     /proc/lock_stat, klockstat and `mmscale live watch --format json`; to look \
                     for stacks and names in a mail, leave --save out",
                    report.lines
                )
            })))
        }
        ([only], None | Some(1)) => Ok(only),
        (all, Some(n)) => all.get(n as usize - 1).ok_or_else(|| {
            wrong(format!("there is no table {n}; choose with --table from: {}", listed()))
        }),
        (_, None) => {
            Err(wrong(format!("it has several tables, choose with --table: {}", listed())))
        }
    }
}

/// Returns the waits of a table as a document.
pub(super) fn measurement(
    report: &Report,
    table: &Table,
    args: &SourceArgs,
    origin: Origin,
) -> Measurement {
    let file = args.file.file_name().filter(|_| args.file != Path::new("-"));
    let file = file.map_or("stdin".into(), |name| name.to_string_lossy());
    let file = plain(&file).into_owned();
    let given_ns = args.seconds.map(|s| (s * 1e9).round() as u64);
    let only = |sizes: &std::collections::BTreeMap<u32, usize>| {
        let mut all = sizes.keys();
        all.next().copied().filter(|_| all.next().is_none())
    };
    let mut waits = table.waits.clone();
    waits.sort_by_key(|wait| std::cmp::Reverse((wait.wait_total_ns, wait.contentions)));
    let mut notes = report.notes.clone();
    notes.extend(table.notes.iter().cloned());
    Measurement {
        schema: MEASURED_SCHEMA.to_owned(),
        build: origin.build,
        command: origin.command,
        tool: table.tool.clone(),
        file,
        cpus: args.cpus.or(table.cpus).or_else(|| only(&report.sizes.cpus)),
        window_ns: given_ns.or(table.window_ns).or(report.prose.window_ns),
        waits,
        notes,
        checksum: None,
    }
    .sealed()
}

/// Returns the facts that are missing, each with the option that gives it.
fn unknown(measured: &Measurement) -> Vec<(&'static str, &'static str)> {
    let cpus = measured.cpus.is_none().then_some(("the number of CPUs", "--cpus"));
    let window = measured.window_ns.is_none().then_some(("its duration", "--seconds"));
    cpus.into_iter().chain(window).collect()
}
