//! Standard output, which may be full or closed, and standard error, which may be closed.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use mmscale_document::plain;
use mmscale_files::{Existing, Written};
use signal_hook::consts::SIGXFSZ;

use crate::failure::Failure;

/// Whether stdout still has a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// The reader exists, as far as known.
    There,
    /// The pipe is closed: the reader has seen enough.
    Gone,
}

/// Whether standard output was closed when the process began. The standard library then opens
/// `/dev/null` in its place before `main`, and everything that is written would be lost.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks at standard output before the standard library does.
#[cfg(target_os = "linux")]
#[used]
// SAFETY: the loader calls the functions of this section before `main`. The function calls no
// function of the standard library that needs a runtime.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: the descriptor is only asked for its flags, and may be closed.
        let stdout = unsafe { std::os::fd::BorrowedFd::borrow_raw(1) };
        // Relaxed: no other thread is there yet.
        CLOSED.store(rustix::io::fcntl_getfd(stdout).is_err(), Ordering::Relaxed);
    }
    look
};

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error: by default its signal ends
/// the process.
pub(crate) fn prepare() {
    // Programs that this one starts get the default again, unlike for an ignored signal.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Writes to stdout and flushes it. Control characters are replaced.
pub(crate) fn write(text: &str) -> Result<Reader, Failure> {
    write_to(&mut io::stdout().lock(), plain(text).as_bytes())
}

/// Writes a compressed document to stdout.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    write_to(&mut io::stdout().lock(), bytes).map(|_| ())
}

/// Writes the help, which may have colours, to stdout.
pub(crate) fn print_help(text: &str) -> Result<(), Failure> {
    write_to(&mut io::stdout().lock(), text.as_bytes()).map(|_| ())
}

/// Writes to stdout; a missing reader is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(text).map(|_| ())
}

/// Writes a line to stderr. Errors are ignored, so that results are written even if stderr is
/// closed (`eprintln!` would panic).
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", message(line));
}

/// The most characters of a quoted name or number.
const QUOTE: usize = 120;
/// The most characters of a quoted path.
const PATH: usize = 1000;
/// The most characters of a line.
const LINE: usize = 3000;

/// Returns a message as it is shown: without control characters, and with long quotes cut.
pub(crate) fn message(text: &str) -> String {
    fn quoted((at, part): (usize, &str)) -> Cow<'_, str> {
        let most = if part.contains('/') { PATH } else { QUOTE };
        if at % 2 == 1 { cut(part, most) } else { part.into() }
    }
    let parts: Vec<Cow<'_, str>> = text.split('`').enumerate().map(quoted).collect();
    let lines = parts.join("`");
    let lines: Vec<Cow<'_, str>> = lines.split('\n').map(|line| cut(line, LINE)).collect();
    plain(&lines.join("\n")).into_owned()
}

/// Returns the beginning of a long text, with its length.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) if text.len() > end => {
            Cow::Owned(format!("{}... ({} characters)", &text[..end], text.chars().count()))
        }
        _ => Cow::Borrowed(text),
    }
}

/// Returns the treatment of existing files according to `--replace`.
pub(crate) fn existing(replace: bool) -> Existing {
    if replace { Existing::Replace } else { Existing::Keep }
}

/// Returns a failure if files got other names than requested. They are not lost, but a reader of
/// the requested names would find another run's files.
pub(crate) fn as_named<'a>(all: impl IntoIterator<Item = &'a Written>) -> Result<(), Failure> {
    let renamed = |written: &Written| {
        let wanted = written.instead_of.as_ref()?;
        Some(format!("`{}` in place of `{}`", written.path.display(), wanted.display()))
    };
    let renamed: Vec<String> = all.into_iter().filter_map(renamed).collect();
    if renamed.is_empty() {
        return Ok(());
    }
    Err(Failure::Run(anyhow!(
        "wrote {}: files with the requested names appeared during the run and were kept",
        renamed.join(", ")
    )))
}

fn write_to(out: &mut impl Write, bytes: &[u8]) -> Result<Reader, Failure> {
    // Relaxed: written before `main`.
    if CLOSED.load(Ordering::Relaxed) {
        return Err(Failure::Run(anyhow!("cannot write to standard output: it is closed")));
    }
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::Run(anyhow!("cannot write to standard output: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_message_quotes_little_and_has_no_control_characters() {
        let long = "x".repeat(200_000);
        let shown = message(&format!("there is no call named `{long}`; use `mmap`\u{1b}[2J"));
        assert!(shown.ends_with("... (200000 characters)`; use `mmap`\u{fffd}[2J"), "{shown}");
        assert!(shown.len() < 300);
        assert!(message(&long).len() < 4000);
        let usual = "cannot read `a/b.toml`:\n  1 | x";
        assert_eq!(message(usual), usual);
    }

    #[test]
    fn a_closed_pipe_is_no_failure_and_a_full_disk_is() {
        let gone = write_to(&mut Broken(io::ErrorKind::BrokenPipe), b"x").unwrap();
        assert_eq!(gone, Reader::Gone);
        let full = write_to(&mut Broken(io::ErrorKind::StorageFull), b"x").unwrap_err();
        assert!(matches!(&full, Failure::Run(_)), "{full}");
        assert!(full.to_string().starts_with("cannot write to standard output: "), "{full}");
    }
}
