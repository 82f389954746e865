//! Documents as JSON.

use mmscale_document::is_control;
use serde::Serialize;

/// Formats a document, of a run or of an analysis, as one line of JSON, including the newline.
/// Control characters are written as numbers.
pub fn json_line(document: &impl Serialize) -> String {
    let mut line =
        serde_json::to_string(document).expect("a document has text keys and finite numbers");
    // JSON itself writes those of C0 as numbers.
    if line.contains(is_control) {
        let escaped = |c| {
            if is_control(c) { format!("\\u{:04x}", u32::from(c)) } else { String::from(c) }
        };
        line = line.chars().map(escaped).collect();
    }
    line.push('\n');
    line
}
