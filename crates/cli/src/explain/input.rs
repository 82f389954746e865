//! The file of a call: a text, or a recording that another program prints as text.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use mmscale_files::Pipe;

/// A form of recording that a program prints.
struct Recording {
    what: &'static str,
    is: fn(&[u8]) -> bool,
    /// The program with its options; the file follows them.
    program: &'static [&'static str],
    /// Options after the file.
    after: &'static [&'static str],
}

/// The forms, by their first bytes. Those of Perfetto are the length of a message and its field.
const RECORDINGS: [Recording; 3] = [
    Recording {
        what: "a recording of perf",
        is: |start| start.starts_with(b"PERFILE2"),
        program: &["perf", "script", "--ns", "-i"],
        after: &[],
    },
    Recording {
        what: "a recording of trace-cmd",
        is: |start| start.starts_with(b"\x17\x08\x44tracing"),
        program: &["trace-cmd", "report", "-t", "-i"],
        after: &[],
    },
    Recording {
        what: "a recording of Perfetto",
        is: is_perfetto,
        program: &["traceconv", "systrace"],
        after: &["-"],
    },
];

/// Returns whether a file begins with two messages in field 1, as traces of Perfetto do.
fn is_perfetto(start: &[u8]) -> bool {
    let mut at = 0;
    for message in 0..2 {
        if start.get(at) != Some(&0x0a) {
            return false;
        }
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            at += 1;
            let Some(byte) = start.get(at).filter(|_| shift < 28) else { return message > 0 };
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        if length == 0 {
            return false;
        }
        at += 1 + length;
        if at >= start.len() {
            // The first message is longer than what was read: no text begins like that.
            return start.get(1..).is_some_and(|rest| rest.iter().take(64).any(|b| *b < 9));
        }
    }
    true
}

/// Bytes that are read to recognise a form.
const START: u64 = 1 << 20;

/// An opened file.
pub(super) struct Input {
    /// Its first bytes.
    pub(super) start: Vec<u8>,
    rest: Box<dyn Read>,
    printer: Option<Printer>,
    /// The way in which it was read.
    pub(super) note: Option<String>,
}

/// A program that prints a recording.
struct Printer {
    child: Child,
    errors: Option<JoinHandle<String>>,
    name: &'static str,
}

impl Drop for Printer {
    fn drop(&mut self) {
        // A program that has ended cannot be killed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Input {
    /// Opens a file; `-` is stdin.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let mut file = mmscale_files::open(path, Pipe::Read).map_err(|why| why.to_string())?;
        let start = first(&mut file)?;
        match RECORDINGS.iter().find(|form| (form.is)(&start)) {
            Some(form) => printed(form, path),
            None => Ok(Self { start, rest: file, printer: None, note: None }),
        }
    }

    /// Returns the bytes to the end, as far as the limit and one byte more.
    pub(super) fn bytes(&mut self, limit: u64) -> Result<Vec<u8>, String> {
        let mut bytes = std::mem::take(&mut self.start);
        let more = (limit + 1).saturating_sub(bytes.len() as u64);
        let read = self.rest.by_ref().take(more).read_to_end(&mut bytes);
        read.map_err(|why| why.to_string())?;
        if bytes.len() as u64 <= limit {
            self.ended()?;
        }
        Ok(bytes)
    }

    /// Returns the bytes behind those.
    pub(super) fn rest(&mut self) -> &mut dyn Read {
        &mut self.rest
    }

    /// Calls a function for each line.
    pub(super) fn lines(mut self, mut each: impl FnMut(&str)) -> Result<(), String> {
        let start = Cursor::new(std::mem::take(&mut self.start));
        let mut reader = BufReader::with_capacity(1 << 18, start.chain(self.rest.by_ref()));
        let mut line = Vec::new();
        loop {
            line.clear();
            // A longer line is none of a trace: it is read in parts.
            let read = reader.by_ref().take(1 << 16).read_until(b'\n', &mut line);
            if read.map_err(|why| why.to_string())? == 0 {
                break;
            }
            each(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        }
        drop(reader);
        self.ended()
    }

    /// Waits for the program that printed the recording.
    pub(super) fn ended(&mut self) -> Result<(), String> {
        let Some(printer) = &mut self.printer else { return Ok(()) };
        let status = printer.child.wait().map_err(|why| why.to_string())?;
        let errors = printer.errors.take().and_then(|thread| thread.join().ok());
        let errors = errors.unwrap_or_default();
        let last = errors.lines().map(str::trim).rfind(|line| !line.is_empty());
        match (status.success(), last) {
            (true, _) => Ok(()),
            (false, Some(why)) => Err(format!("`{}` failed: {why}", printer.name)),
            (false, None) => Err(format!("`{}` failed: {status}", printer.name)),
        }
    }
}

fn first(from: &mut impl Read) -> Result<Vec<u8>, String> {
    let mut start = Vec::new();
    from.take(START).read_to_end(&mut start).map_err(|why| why.to_string())?;
    Ok(start)
}

/// Starts the program that prints a recording.
fn printed(form: &Recording, path: &Path) -> Result<Input, String> {
    let Recording { what, program, after, .. } = form;
    let (name, options) = program.split_first().expect("a program has a name");
    let shown = |file: &str| [program, &[file][..], after].concat().join(" ");
    let elsewhere = |file: &str| format!("`{} > FILE.txt`", shown(file));
    if path == Path::new("-") {
        return Err(format!(
            "it is {what}; give it as a file, or the output of {}",
            elsewhere("FILE")
        ));
    }
    let mut command = Command::new(name);
    command.args(options).arg(path).args(*after);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => format!(
            "it is {what}, and {name} is not installed here; run {} where it is, and give FILE.txt",
            elsewhere("FILE")
        ),
        _ => format!("it is {what}, and {name} cannot be started: {why}"),
    })?;
    let mut rest = child.stdout.take().expect("the output is piped");
    let errors = child.stderr.take().expect("errors are piped");
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut errors = errors;
        // What is beyond the limit is read, so that the program does not wait for it.
        drop(errors.by_ref().take(1 << 16).read_to_end(&mut text));
        drop(io::copy(&mut errors, &mut io::sink()));
        String::from_utf8_lossy(&text).into_owned()
    });
    let printer = Printer { child, errors: Some(errors), name };
    let start = first(&mut rest)?;
    let file = path.file_name().map_or("FILE".into(), |name| name.to_string_lossy());
    let note = format!("{what}, read by way of `{}`", shown(&file));
    let mut input = Input { start, rest: Box::new(rest), printer: Some(printer), note: Some(note) };
    if input.start.is_empty() {
        input.ended()?;
        return Err(format!("`{}` printed nothing: the recording has no events", shown(&file)));
    }
    Ok(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_known_by_their_first_bytes() {
        let of = |start: &[u8]| RECORDINGS.iter().find(|of| (of.is)(start)).map(|of| of.program[0]);
        assert_eq!(of(b"PERFILE2\x68\0"), Some("perf"));
        assert_eq!(of(b"\x17\x08\x44tracing6\0"), Some("trace-cmd"));
        assert_eq!(of(b"\x0a\x03\x08\x01\x10\x0a\x02\x08\x01"), Some("traceconv"));
        for text in
            [&b"\na line\n"[..], b"", b"\n", b"\n\n\n", b"a", b"\nPERFILE2", b"\ntwo\nlines"]
        {
            assert_eq!(of(text), None, "{text:?}");
        }
    }
}
