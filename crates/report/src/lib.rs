//! Records as text and JSON.
//!
//! A report knows records and nothing of machines: what a study wants to say about itself comes in
//! [`Notes`]. The text form fits 72 columns, to be pasted into a mail; the JSON form is one
//! document a line. [`Folder`] puts either into files, whole or not at all.

pub mod figure;
mod folder;
mod json;
mod number;
mod text;

pub use folder::{Existing, Folder, FolderError, Written};
pub use json::json_line;
pub use text::{Notes, WIDTH, text, wrap};
