//! Documents as JSON.

use serde::Serialize;

/// Formats a document, of a run or of an analysis, as one line of JSON, including the newline.
pub fn json_line(document: &impl Serialize) -> String {
    let mut line =
        serde_json::to_string(document).expect("a document has text keys and finite numbers");
    line.push('\n');
    line
}
