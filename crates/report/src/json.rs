//! Documents as JSON.

use mmscale_document::Document;

/// Formats a document as one line of JSON, including the newline.
pub fn json_line(document: &Document) -> String {
    let mut line =
        serde_json::to_string(document).expect("a document has text keys and finite numbers");
    line.push('\n');
    line
}
