//! Standard output, which may be full or closed, and standard error, which may be closed.

use std::io::{self, Write};

use anyhow::anyhow;
use mmscale_report::{Existing, Written};

use crate::failure::Failure;

/// Whether stdout still has a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// The reader exists, as far as known.
    There,
    /// The pipe is closed: the reader has seen enough.
    Gone,
}

/// Writes to stdout and flushes it.
pub(crate) fn write(text: &str) -> Result<Reader, Failure> {
    write_to(&mut io::stdout().lock(), text)
}

/// Writes to stdout; a missing reader is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(text).map(|_| ())
}

/// Writes a line to stderr. Errors are ignored, so that results are written even if stderr is
/// closed (`eprintln!` would panic).
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
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

fn write_to(out: &mut impl Write, text: &str) -> Result<Reader, Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
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
    fn a_closed_pipe_is_no_failure_and_a_full_disk_is() {
        let gone = write_to(&mut Broken(io::ErrorKind::BrokenPipe), "x").unwrap();
        assert_eq!(gone, Reader::Gone);
        let full = write_to(&mut Broken(io::ErrorKind::StorageFull), "x").unwrap_err();
        assert!(matches!(&full, Failure::Run(_)), "{full}");
        assert!(full.to_string().starts_with("cannot write to standard output: "), "{full}");
    }
}
