//! From bytes to characters: UTF-8, UTF-16 with or without a mark, and Latin-1 for everything else.

use std::char::REPLACEMENT_CHARACTER;

use crate::fault::ReadError;

/// The most bytes of a report. That of a kernel has some hundred KiB.
pub const MAX_BYTES: usize = MAX_MIB << 20;
const MAX_MIB: usize = 64;

/// First bytes of formats that are not text, with what to do instead.
const FORMATS: [(&[u8], &str, &str); 6] = [
    (b"PERFILE2", "a recording of perf", "print it with `perf lock contention -i FILE`"),
    (b"\x1f\x8b", "compressed with gzip", "unpack it first (gunzip)"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it first (unzstd)"),
    (b"\xfd7zXZ\0", "compressed with xz", "unpack it first (unxz)"),
    (b"PK\x03\x04", "a zip archive", "unpack it first (unzip)"),
    (b"\x7fELF", "a program", "give a text"),
];

/// Decodes a file. Returns the text, and a note if the encoding was guessed or has errors.
pub(crate) fn decode(bytes: &[u8]) -> Result<(String, Option<String>), ReadError> {
    if bytes.len() > MAX_MIB << 20 {
        return Err(ReadError::Large { mib: bytes.len() >> 20, max_mib: MAX_MIB });
    }
    refuse_formats(bytes)?;
    let (text, note) = match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => utf8(rest),
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [a, 0, b, 0, ..] if *a != 0 && *b != 0 => utf16(bytes, u16::from_le_bytes),
        [0, a, 0, b, ..] if *a != 0 && *b != 0 => utf16(bytes, u16::from_be_bytes),
        _ => utf8(bytes),
    };
    refuse_binary(&text)?;
    if text.trim().is_empty() { Err(ReadError::Empty) } else { Ok((text, note)) }
}

/// Returns the characters of a file, whether it can be read as a report or not.
pub fn text_of(bytes: &[u8]) -> String {
    decode(bytes).map_or_else(|_| String::from_utf8_lossy(bytes).into_owned(), |(text, _)| text)
}

fn refuse_formats(bytes: &[u8]) -> Result<(), ReadError> {
    let known = FORMATS.iter().find(|(first, _, _)| bytes.starts_with(first));
    known.map_or(Ok(()), |&(_, what, advice)| Err(ReadError::NotText { what, advice }))
}

/// Of so many bytes, one may be zero: a serial console adds them when a machine restarts.
const PER_ZERO: usize = 64;

fn refuse_binary(text: &str) -> Result<(), ReadError> {
    let zeros = text.bytes().filter(|byte| *byte == 0).count();
    let advice = "give the text that the tool prints";
    let is_binary = zeros * PER_ZERO > text.len();
    if is_binary { Err(ReadError::NotText { what: "binary", advice }) } else { Ok(()) }
}

/// Refuses a large file that is no text, or in UTF-16, by its first bytes.
pub(crate) fn check_large(bytes: &[u8]) -> Result<(), ReadError> {
    refuse_formats(bytes)?;
    if matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [_, 0, _, 0, ..] | [0, _, 0, _, ..]) {
        return Err(ReadError::Large { mib: bytes.len() >> 20, max_mib: MAX_MIB });
    }
    Ok(())
}

/// Decodes a part of a large file: UTF-8, or Latin-1.
pub(crate) fn decode_part(bytes: &[u8]) -> Result<String, ReadError> {
    let (text, _) = utf8(bytes);
    refuse_binary(&text)?;
    Ok(text)
}

fn utf8(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => {
            let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
            // A mail that says so needs no remark.
            let head = text.to_ascii_lowercase();
            let said = head.contains("iso-8859-1") || head.contains("windows-1252");
            let note = "the text is not UTF-8 and was read as Latin-1".to_owned();
            (text, (!said).then_some(note))
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> (String, Option<String>) {
    let units = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    let mut wrong = bytes.len() % 2;
    let text = char::decode_utf16(units).map(|letter| {
        letter.unwrap_or_else(|_| {
            wrong += 1;
            REPLACEMENT_CHARACTER
        })
    });
    let text = text.collect();
    let note = format!("the text is UTF-16 with {wrong} damaged characters");
    (text, (wrong > 0).then_some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_utf16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn encodings_are_recognised() {
        let text = |bytes: &[u8]| decode(bytes).map(|(text, _)| text);
        assert_eq!(text("Größe 1\n".as_bytes()).unwrap(), "Größe 1\n");
        assert_eq!(text(b"\xef\xbb\xbfabc").unwrap(), "abc");
        for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            assert_eq!(text(&of_utf16("contended 1", bytes)).unwrap(), "contended 1");
            assert_eq!(text(&of_utf16("\u{feff}abc", bytes)).unwrap(), "abc");
        }
        let (latin, note) = decode(b"Gr\xf6\xdfe 1").unwrap();
        assert_eq!(latin, "Größe 1");
        assert!(note.unwrap().contains("Latin-1"));
        let (cut, note) = decode(b"\xff\xfea\0b").unwrap();
        assert_eq!((cut.as_str(), note.is_some()), ("a", true));
    }

    #[test]
    fn other_files_are_refused_with_advice() {
        let why = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
        assert!(why(b"PERFILE2\0\0").contains("perf lock contention -i"), "{}", why(b"PERFILE2"));
        assert!(why(b"\x1f\x8b\x08").contains("gunzip"));
        assert!(why(b"ab\0c").contains("binary"));
        let console = format!("{}\0{}", "a".repeat(100), "b".repeat(100));
        assert!(decode(console.as_bytes()).is_ok(), "a zero of a serial console");
        assert_eq!(decode(b" \n"), Err(ReadError::Empty));
        assert!(matches!(decode(&vec![b'a'; 65 << 20]), Err(ReadError::Large { mib: 65, .. })));
    }
}
