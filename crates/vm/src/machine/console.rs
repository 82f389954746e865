//! The console of a machine: what its kernel wrote, and panics in it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::thread::{self, JoinHandle};

/// The most bytes that are kept: the last ones.
const KEPT_BYTES: usize = 4 << 20;
/// Lines of its end that a message shows.
const SHOWN_LINES: usize = 30;

/// Words of the kernel that mean its end, the most telling first.
const DEADLY: [&str; 4] =
    ["Kernel panic - not syncing", "Oops: ", "BUG: ", "general protection fault"];

/// A console that is read by a thread.
pub(super) struct Console(JoinHandle<(Vec<u8>, Option<io::Error>)>);

/// All that a kernel wrote.
pub(super) struct Log {
    text: String,
    /// Why the copy in a file is not whole.
    pub(super) copy: Option<io::Error>,
}

impl Console {
    /// Reads a console until its end, and copies it to a file as it comes.
    pub(super) fn read(mut from: File, mut copy: Option<File>) -> io::Result<Self> {
        let read = move || {
            let (mut kept, mut part) = (Vec::new(), vec![0; 1 << 16]);
            let mut failed = None;
            while let Ok(size @ 1..) = from.read(&mut part) {
                // A copy that cannot be written ends, and the machine goes on.
                if let Some(Err(why)) = copy.as_mut().map(|file| file.write_all(&part[..size])) {
                    copy = None;
                    failed = Some(why);
                }
                kept.extend(&part[..size]);
                if kept.len() > 2 * KEPT_BYTES {
                    kept.drain(..kept.len() - KEPT_BYTES);
                }
            }
            (kept, failed)
        };
        thread::Builder::new().name("console".to_owned()).spawn(read).map(Self)
    }
    /// Returns the log; the machine has ended.
    pub(super) fn finish(self) -> Log {
        let (bytes, copy) = self.0.join().unwrap_or_default();
        // A terminal writes line ends as two characters.
        Log { text: String::from_utf8_lossy(&bytes).replace('\r', ""), copy }
    }
}

impl Log {
    /// Returns its end, for messages.
    pub(super) fn end(&self) -> String {
        let lines: Vec<&str> = self.text.lines().filter(|line| !line.trim().is_empty()).collect();
        match lines.is_empty() {
            true => "  (nothing)".to_owned(),
            false => lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n"),
        }
    }
    /// Returns the line that tells of the kernel's end.
    pub(super) fn panic(&self) -> Option<String> {
        let line = DEADLY.iter().find_map(|words| {
            let line = self.text.lines().find(|line| line.contains(words))?;
            line.find(words).map(|at| line[at..].trim().to_owned())
        });
        line.map(|line| line.trim_start_matches("Kernel panic - not syncing: ").to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str) -> Log {
        Log { text: text.to_owned(), copy: None }
    }

    #[test]
    fn a_panic_is_found() {
        let text = "[    1.0] BUG: unable to handle page fault\n[    1.1] Oops: 0000 [#1]\n\
                    [    2.0] Kernel panic - not syncing: VFS: Unable to mount root fs\n";
        assert_eq!(log(text).panic().unwrap(), "VFS: Unable to mount root fs");
        assert_eq!(log("[ 1.1] Oops: 0000 [#1]\n").panic().unwrap(), "Oops: 0000 [#1]");
        assert_eq!(log("fine\n").panic(), None);
    }

    #[test]
    fn a_console_is_copied_as_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        std::fs::write(&from, "one\r\ntwo\r\n").unwrap();
        let copy = Some(File::create(&to).unwrap());
        let log = Console::read(File::open(&from).unwrap(), copy).unwrap().finish();
        assert_eq!(log.text, "one\ntwo\n");
        assert!(log.copy.is_none());
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "one\r\ntwo\r\n");
    }

    #[test]
    fn a_console_on_a_full_disk_is_kept_and_the_error_reported() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        std::fs::write(&from, "one\n").unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let log = Console::read(File::open(&from).unwrap(), Some(full)).unwrap().finish();
        assert_eq!(log.text, "one\n");
        assert_eq!(log.copy.map(|why| why.kind()), Some(io::ErrorKind::StorageFull));
    }

    #[test]
    fn the_end_of_a_console_is_shown() {
        let text: String = (0..100).map(|line| format!("{line}\n\n")).collect();
        let end = log(&text).end();
        assert_eq!(end.lines().count(), SHOWN_LINES);
        assert!(end.ends_with("\n99") || end.ends_with("99"));
        assert_eq!(log("").end(), "  (nothing)");
    }
}
