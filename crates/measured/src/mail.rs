//! Mails: their text parts, quoted-printable text without a header, and quotes.

use std::borrow::Cow;

use mail_parser::MessageParser;
use mail_parser::decoders::quoted_printable::quoted_printable_decode;

use crate::controls::without_controls;

/// Headers of which a file of a mail has at least one at its beginning.
const HEADERS: [&str; 4] =
    ["content-transfer-encoding:", "content-type:", "mime-version:", "message-id:"];

/// Number of lines in which headers may be.
const HEAD_LINES: usize = 120;

/// Returns the readable text of a mail, with its subject as the first line, and a note if places
/// in it differ from places in the file. Other texts are returned as they are.
pub(crate) fn body(text: &str) -> (Cow<'_, str>, Option<&'static str>) {
    if has_headers(text) {
        let start =
            if text.starts_with("From ") { text.find('\n').map_or(0, |at| at + 1) } else { 0 };
        if let Some(mail) = MessageParser::default().parse(&text.as_bytes()[start..]) {
            let parts: Vec<Cow<'_, str>> =
                (0..mail.text_body_count()).filter_map(|part| mail.body_text(part)).collect();
            if parts.iter().any(|part| !part.trim().is_empty()) {
                let subject = mail.subject().unwrap_or_default();
                let note = "the file is a mail: lines are those of its decoded text, after a line \
                            with its subject";
                return (format!("{subject}\n{}", parts.join("\n")).into(), Some(note));
            }
        }
    }
    if is_quoted_printable(text)
        && let Some(bytes) = quoted_printable_decode(text.as_bytes())
    {
        let note = "the text is quoted-printable: lines are those of the decoded text";
        return (String::from_utf8_lossy(&bytes).into_owned().into(), Some(note));
    }
    if has_soft_ends(text) {
        let joined = text.replace("=\r\n", "").replace("=\n", "");
        let note = "lines end with `=`, as in quoted-printable mails: they are joined";
        return (joined.into(), Some(note));
    }
    if has_coded_blanks(text)
        && let Some(bytes) = quoted_printable_decode(text.as_bytes())
    {
        let note = "lines end with `=20`, as in quoted-printable mails: they are decoded";
        return (String::from_utf8_lossy(&bytes).into_owned().into(), Some(note));
    }
    if ["&lt;", "&gt;"].iter().map(|entity| text.matches(entity).take(2).count()).sum::<usize>()
        >= 2
    {
        let note =
            "the text has characters in the form of web pages, such as `&gt;`: they are decoded";
        return (without_entities(text).into(), Some(note));
    }
    (text.into(), None)
}

/// Replaces the characters that web pages write in another form.
fn without_entities(text: &str) -> String {
    const ENTITIES: [(&str, &str); 6] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ];
    ENTITIES.iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain))
}

/// Returns whether at least two lines end with a blank in the form of quoted-printable.
fn has_coded_blanks(text: &str) -> bool {
    let is_coded = |line: &&str| {
        let inner = line.trim_end_matches('\r').strip_suffix("=20");
        inner.is_some_and(|inner| inner.is_empty() || inner.ends_with([' ', '>', '|', '}']))
    };
    text.lines().filter(is_coded).take(2).count() == 2
}

/// Returns the sender, the subject and the date of a mail, with commas between them.
pub(crate) fn source(text: &str) -> Option<String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let start = if text.starts_with("From ") { text.find('\n').map_or(0, |at| at + 1) } else { 0 };
    let mut head = text[start..].lines().take(HEAD_LINES);
    let is_mail = head.any(|line| line.starts_with("From:") || line.starts_with("Subject:"));
    let is_first = text[start..].lines().next().is_some_and(|line| line.contains(':'));
    let mail = MessageParser::default().parse(&text.as_bytes()[start..]);
    let mail = mail.filter(|_| is_mail && is_first)?;
    let from = mail.from().and_then(|from| from.first());
    let from = from.and_then(|from| from.name.as_deref().or(from.address.as_deref()));
    let date = mail.date().map(|date| format!("{}-{:02}-{:02}", date.year, date.month, date.day));
    let parts = [from.map(str::to_owned), mail.subject().map(str::to_owned), date];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let all = parts.join(", ").replace(['\n', '\r', '\t'], " ");
    (!parts.is_empty()).then(|| without_controls(&all).into_owned())
}

/// Lengths of lines that mail programs end with `=`.
const SOFT: std::ops::RangeInclusive<usize> = 60..=80;
/// Lengths of such lines that are broken at a blank, if others have the usual length.
const SHORT: std::ops::RangeInclusive<usize> = 20..=80;

/// Returns whether lines end with `=` where quoted-printable mails break them, in a text without
/// other traces of that form.
fn has_soft_ends(text: &str) -> bool {
    let (mut soft, mut last) = (0, false);
    for line in text.lines() {
        let line = line.trim_end_matches('\r');
        if last && line.trim_start_matches(['>', ' ']).is_empty() {
            return false;
        }
        last = line.ends_with('=');
        if last {
            let inner = line[..line.len() - 1].chars().last();
            if !SHORT.contains(&line.len())
                || !inner.is_some_and(|c| c.is_alphanumeric() || "_-+ :/.,)]>".contains(c))
            {
                return false;
            }
            soft += usize::from(SOFT.contains(&line.len()));
        }
    }
    soft > 0 && !last
}

/// Returns whether a text begins with the headers of a mail.
fn has_headers(text: &str) -> bool {
    let mut found = false;
    for (at, line) in text.lines().take(HEAD_LINES).enumerate() {
        let folded = line.starts_with([' ', '\t']);
        let name = line.split_once(':').map_or("", |(name, _)| name);
        let named = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if line.trim().is_empty() {
            return found;
        }
        if !(folded && at > 0 || named || at == 0 && line.starts_with("From ")) {
            return false;
        }
        let lower = line.to_ascii_lowercase();
        found |= HEADERS.iter().any(|header| lower.starts_with(header));
    }
    false
}

/// Returns whether a text has the traces of quoted-printable: soft line ends, and characters that
/// are written as `=3D`.
fn is_quoted_printable(text: &str) -> bool {
    let soft = text.lines().filter(|line| line.trim_end().ends_with('=')).take(2).count();
    let hex = |pair: &[u8]| pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
    let coded = text.as_bytes().windows(3).any(|three| three[0] == b'=' && hex(&three[1..]));
    // A separator of `====` has neither.
    soft >= 2 && coded
}

/// Splits the marks of quotes from a line: returns their number, and where the line's own text
/// begins, in bytes.
pub(crate) fn quote(line: &str) -> (usize, usize) {
    let bytes = line.as_bytes();
    // Some programs have a blank before the marks.
    let (mut depth, mut at) = (0, usize::from(line.starts_with(" >")));
    while bytes.get(at) == Some(&b'>') {
        depth += 1;
        at += 1;
        if bytes.get(at) == Some(&b' ') {
            at += 1;
        }
    }
    (depth, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = "From: A <a@b>\nSubject: waits\nMIME-Version: 1.0\n\
        Content-Type: text/plain; charset=iso-8859-1\n\
        Content-Transfer-Encoding: quoted-printable\n\nGr=F6=DFe =3D 1\nlong =\nline\n";

    #[test]
    fn the_text_of_a_mail_is_decoded() {
        let (text, note) = body(MAIL);
        assert_eq!(text, "waits\nGröße = 1\nlong line\n");
        assert!(note.is_some());
        let plain = "Hello,\nSubject: none\n\ntext\n";
        assert_eq!(body(plain), (plain.into(), None));
    }

    #[test]
    fn quoted_printable_without_headers_is_decoded() {
        let (text, note) = body("a =3D b=\n c=\n d\n");
        assert_eq!((text.as_ref(), note.is_some()), ("a = b c d\n", true));
        let row = format!("{:>60} free_pcp=\npages_bulk+0x350\n", "34948");
        assert!(body(&row).0.ends_with("free_pcppages_bulk+0x350\n"));
        let rule = "title=\n====\nx=3\n";
        assert_eq!(body(rule).0, rule);
    }

    #[test]
    fn coded_characters_without_soft_ends_are_decoded() {
        let text = "a =20\n=20\n> > =20\nb =3D 1\n";
        assert_eq!(body(text).0, "a  \n \n> >  \nb = 1\n");
        let parameters = "nr_task=20\nnr_threads=20\n";
        assert_eq!(body(parameters).0, parameters);
        let web = "&gt; [&lt;ffffffff81&gt;] a_b+0x1 &amp;lt;\n";
        assert_eq!(body(web).0, "> [<ffffffff81>] a_b+0x1 &lt;\n");
        assert_eq!(body("&lt; and &amp;").0, "&lt; and &amp;");
    }

    #[test]
    fn marks_of_quotes_are_split_off() {
        assert_eq!(quote("text"), (0, 0));
        assert_eq!(quote("> > |--"), (2, 4));
        assert_eq!(quote(">>  x"), (2, 3));
        assert_eq!(quote(" > x"), (1, 3));
        assert_eq!(quote(""), (0, 0));
    }
}
