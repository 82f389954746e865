//! Commands of `mmscale`, executed in this process, with what they print.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::outcome::Outcome;

/// Bytes of an error that a person reads.
const LONGEST_ERROR: usize = 8 << 10;

/// The output of a command.
pub(crate) struct Printed {
    pub(crate) code: ExitCode,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
}

impl Printed {
    /// Returns the result of a case: the input was accepted if the exit code is 0. Control
    /// characters and endless errors are wrong in any case.
    pub(crate) fn outcome(&self) -> Outcome {
        let accepted = self.code == ExitCode::SUCCESS;
        for (text, name) in [(&self.out, "stdout"), (&self.err, "stderr")] {
            if let Some(found) = control(&String::from_utf8_lossy(text)) {
                return Outcome::Wrong(format!("a control character in {name}: {found:?}"));
            }
        }
        if !accepted && self.err.len() > LONGEST_ERROR {
            return Outcome::Wrong(format!("an error of {} bytes", self.err.len()));
        }
        if accepted {
            return Outcome::Accepted;
        }
        Outcome::Refused(String::from_utf8_lossy(&self.err).into_owned())
    }
}

/// Returns the neighbourhood of the first character that changes what a terminal does.
pub(crate) fn control(text: &str) -> Option<String> {
    let is_wrong = |letter: &char| letter.is_control() && !"\n\t".contains(*letter);
    let at = text.chars().position(|letter| is_wrong(&letter))?;
    Some(text.chars().skip(at.saturating_sub(20)).take(40).collect())
}

/// The folder of a worker, and its output.
pub(crate) struct Calls {
    folder: PathBuf,
    out: File,
    err: File,
}

impl Calls {
    /// Takes over standard output and standard error of this process.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let open = |name: &str| {
            let options = OpenOptions::new().read(true).append(true).create(true).to_owned();
            options.open(folder.join(name))
        };
        let (out, err) = (open("stdout")?, open(crate::STDERR)?);
        rustix::stdio::dup2_stdout(&out)?;
        rustix::stdio::dup2_stderr(&err)?;
        Ok(Self { folder: folder.to_owned(), out, err })
    }
    /// Writes a file into the folder. Returns its path.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).expect("the worker's folder can be written");
        path.to_string_lossy().into_owned()
    }
    /// Returns the path of a file in the folder, which is removed if it is there.
    pub(crate) fn no_file(&self, name: &str) -> String {
        let path = self.folder.join(name);
        let _ = std::fs::remove_file(&path);
        path.to_string_lossy().into_owned()
    }
    /// Executes a command.
    pub(crate) fn call(&self, words: &[&str]) -> Printed {
        self.clear();
        let words: Vec<String> =
            ["mmscale"].iter().chain(words).map(|word| (*word).to_owned()).collect();
        let code = mmscale::call(mmscale_studies::all(), &words);
        let read = |name: &str| std::fs::read(self.folder.join(name)).unwrap_or_default();
        Printed { code, out: read("stdout"), err: read(crate::STDERR) }
    }
    /// Empties the output.
    pub(crate) fn clear(&self) {
        for file in [&self.out, &self.err] {
            file.set_len(0).expect("a file of this process");
        }
    }
}
