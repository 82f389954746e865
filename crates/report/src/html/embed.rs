//! Documents within a page: written so that no text of theirs can end the element, and read again.

use serde::Serialize;

/// The tags around a document.
const OPEN: &str = r#"<script type="application/json">"#;
const CLOSE: &str = "</script>";
/// The beginning of every page.
pub(super) const DOCTYPE: &str = "<!DOCTYPE html>";

/// Formats a document as an element that browsers do not show. JSON has `<` in strings only, where
/// it may also be written as a number.
pub(super) fn element(document: &impl Serialize) -> String {
    let json = crate::json_line(document).replace('<', "\\u003c");
    format!("{OPEN}{}{CLOSE}", json.trim_end())
}

/// Returns the documents of a page, a line each. `None`: the text is no page.
pub(crate) fn documents_of(text: &str) -> Option<String> {
    let start = text.trim_start().get(..DOCTYPE.len())?;
    let parts = start.eq_ignore_ascii_case(DOCTYPE).then(|| text.split(OPEN).skip(1))?;
    Some(parts.filter_map(|part| Some(format!("{}\n", part.split_once(CLOSE)?.0))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_comes_back_whatever_its_text_is() {
        let hostile = ["</script><script>alert(1)</script>", "<!--", "\u{2028}&amp;\"\\"];
        let page = format!("{DOCTYPE}<body>{}{}", element(&hostile), element(&[1]));
        assert_eq!(page.matches("</script>").count(), 2);
        let lines = documents_of(&page).unwrap();
        let back: Vec<String> = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!(back, hostile);
        assert_eq!(lines.lines().nth(1), Some("[1]"));
        assert_eq!(documents_of("{}"), None);
        assert_eq!(documents_of("<!doctype html><p>other</p>").as_deref(), Some(""));
    }
}
