//! Controls of terminals in texts.

use std::borrow::Cow;

use mmscale_document::is_control;

/// Removes what terminals act on: escape sequences, all other controls but the line end and the
/// tab, controls of the direction of text, and characters without a width. A sequence ends with its
/// line at the latest.
pub(crate) fn without_controls(text: &str) -> Cow<'_, str> {
    let hidden =
        |c: char| is_control(c) || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{feff}');
    if !text.contains(hidden) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let kind = match letter {
            '\u{1b}' => letters.next_if(|c| ('\u{20}'..='\u{7e}').contains(c)),
            // The same sequences with one character of C1.
            '\u{9b}' => Some('['),
            '\u{9d}' => Some(']'),
            '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => Some('P'),
            other if hidden(other) => None,
            other => {
                plain.push(other);
                None
            }
        };
        match kind {
            Some('[') => {
                while letters.next_if(|c| ('\u{20}'..='\u{3f}').contains(c)).is_some() {}
                letters.next_if(|c| ('\u{40}'..='\u{7e}').contains(c));
            }
            Some(']' | 'P' | 'X' | '^' | '_') => {
                let ends = ['\u{7}', '\u{1b}', '\u{9c}', '\n'];
                while letters.next_if(|c| !ends.contains(c)).is_some() {}
                if letters.next_if(|c| ['\u{7}', '\u{9c}'].contains(c)).is_none()
                    && letters.next_if_eq(&'\u{1b}').is_some()
                {
                    letters.next_if_eq(&'\\');
                }
            }
            // A set of characters: one more character.
            Some('(' | ')' | '*' | '+' | '#' | '%' | ' ') => {
                letters.next_if(|c| ('\u{20}'..='\u{7e}').contains(c));
            }
            _ => {}
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_terminals_act_on_is_removed() {
        for (text, plain) in [
            ("a\u{1b}[1;31mb\u{1b}[mc\u{1b}", "abc"),
            ("a\u{1b}]0;title\u{7}b\u{1b}]2;x\u{1b}\\c\u{1b}]", "abc"),
            ("a\u{1b}[?25lb\u{1b}(Bc\u{1b}Mb\u{1b}=d", "abcbd"),
            ("a\u{9b}2Jb\u{9d}title\u{9c}c\u{1b}Pdata\u{1b}\\d", "abcd"),
            ("a\u{8}b\u{0}c\u{7f}d\u{202e}e\u{2066}f\u{200b}g", "abcdefg"),
            ("a\u{1b}]0;title\nb\tc", "a\nb\tc"),
            ("größe", "größe"),
        ] {
            assert_eq!(without_controls(text), plain, "{text:?}");
        }
    }
}
