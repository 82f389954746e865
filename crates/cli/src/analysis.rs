//! The results of analyses: printed one after the other, and written to the folder of a call.

use mmscale_document::plain;
use mmscale_files::{Folder, Written};
use mmscale_report::json_line;
use serde::Serialize;

use crate::args::Format;
use crate::failure::Failure;
use crate::interrupt;
use crate::output;

/// The destination of results.
pub(crate) struct Results {
    folder: Option<Folder>,
    format: Format,
    /// The separator of a text from the one before.
    separator: &'static str,
    written: Vec<Written>,
}

impl Results {
    pub(crate) fn new(folder: Option<Folder>, format: Format) -> Self {
        Self { folder, format, separator: "", written: Vec::new() }
    }

    /// Writes and prints a result; `name` is that of its files without the extension.
    pub(crate) fn add(
        &mut self,
        name: &str,
        result: &impl Serialize,
        text: &str,
    ) -> Result<(), Failure> {
        let separator = std::mem::replace(&mut self.separator, "\n");
        interrupt::whole(|| {
            if let Some(folder) = &self.folder {
                self.written.push(folder.write(&format!("{name}.json"), json_line(result))?);
                self.written.push(folder.write(&format!("{name}.txt"), plain(text).as_bytes())?);
            }
            match self.format {
                Format::Text => output::print(&format!("{separator}{text}")),
                Format::Json => output::print(&json_line(result)),
            }
        })
    }

    /// Returns an error if a file has another name than the call wanted.
    pub(crate) fn end(self) -> Result<(), Failure> {
        output::as_named(&self.written)
    }
}
