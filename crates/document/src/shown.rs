//! Text from outside, made safe to show.
//!
//! A document, a profile, a script, a report or a file name may come from a stranger. Its
//! control characters could move the cursor of a terminal, change its title or the order in which
//! its text appears, so none of them is written.

use std::borrow::Cow;

/// The most characters of an input that a message quotes.
const QUOTED: usize = 100;

/// Returns whether a character may control a terminal or the direction of text: all controls of C0
/// and C1 but the line end and the tab, and the controls of bidirectional text.
pub fn is_control(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' => true,
        '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

/// Returns the text with each control character replaced by U+FFFD, so that its width stays.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(is_control, "\u{fffd}"))
}

/// Returns the beginning of a text that a message quotes, in one line.
pub fn short(text: &str) -> Cow<'_, str> {
    let end = text.char_indices().nth(QUOTED).map(|(at, _)| at);
    let text = match end {
        None => Cow::Borrowed(text),
        Some(end) => {
            Cow::Owned(format!("{}... ({} characters)", &text[..end], text.chars().count()))
        }
    };
    if text.contains(['\n', '\t']) { text.replace(['\n', '\t'], " ").into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_stays() {
        let hostile = "a\u{1b}[31mb\u{9b}2J\u{7}\r\u{202e}c\u{2066}\u{7f}\u{0}";
        let shown = plain(hostile);
        assert_eq!(shown.chars().count(), hostile.chars().count());
        assert!(!shown.contains(is_control));
        for code in (0..0x20).chain(0x7f..0xa0).filter_map(char::from_u32) {
            assert_eq!(is_control(code), code != '\n' && code != '\t', "{code:?}");
        }
        assert_eq!(plain("µs\tüber\n"), "µs\tüber\n");
    }

    #[test]
    fn a_quote_is_short() {
        assert_eq!(short("stock"), "stock");
        let long = "x".repeat(200_000);
        assert_eq!(short(&long), format!("{}... (200000 characters)", "x".repeat(100)));
        assert_eq!(short("a\nb"), "a b");
    }
}
