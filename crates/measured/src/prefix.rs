//! Prefixes of the lines of logs: time stamps of the kernel, of syslog and of the journal, levels,
//! and the task or CPU that printed the line.

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The most parts of a prefix.
const PARTS: usize = 8;

/// Returns where the message of a line of a kernel log begins, in bytes. `None` if the line has no
/// prefix of one.
pub(crate) fn message(text: &str) -> Option<usize> {
    let file = place(text).unwrap_or(0);
    let (mut at, mut end) = (file + place(&text[file..]).unwrap_or(0), None);
    for _ in 0..PARTS {
        let rest = &text[at..];
        let inner = rest.trim_start_matches([' ', '\t']);
        let Some((length, is_kernel)) = part(inner) else { break };
        at += rest.len() - inner.len() + length;
        if is_kernel {
            end = Some(at);
        } else if end.is_some() {
            // The task that printed the line, after its time.
            end = end.map(|_| at);
        }
    }
    let end = end?;
    Some(end + usize::from(text[end..].starts_with(' ')))
}

/// Returns the place of the first time stamp of the kernel after the beginning of a text: several
/// lines of a log that a mail program joined. The place is that of its bracket.
pub(crate) fn next_stamp(text: &str) -> Option<usize> {
    let mut from = 1;
    while let Some(at) = text.get(from..)?.find('[').map(|at| at + from) {
        let before = text[..at].ends_with([' ', '\t']);
        if before && bracketed(&text[at..]).is_some_and(|(inner, _)| is_seconds(inner)) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Returns the length of the part that a text begins with, and whether only a kernel's log has it.
fn part(text: &str) -> Option<(usize, bool)> {
    if let Some((inner, length)) = bracketed(text) {
        let date = MONTHS.iter().any(|month| inner.contains(month)) && inner.contains(':');
        // Authors remove the time, and leave the brackets.
        let removed = !inner.is_empty() && inner.trim().is_empty();
        if is_seconds(inner) || date || removed {
            return Some((length, true));
        }
        return (is_caller(inner) || inner == "kernel").then_some((length, false));
    }
    level(text)
        .or_else(|| iso(text))
        .or_else(|| cut(text).map(|length| (length, true)))
        .or_else(|| syslog(text).map(|length| (length, false)))
        .or_else(|| kernel(text).map(|length| (length, true)))
        .or_else(|| facility(text).map(|length| (length, true)))
        .or_else(|| record(text).map(|length| (length, true)))
}

/// Splits `[inner]` from the beginning of a text, and returns the length of both brackets.
fn bracketed(text: &str) -> Option<(&str, usize)> {
    let inner = text.strip_prefix('[')?;
    let end = inner.bytes().take(48).position(|byte| byte == b']')?;
    Some((&inner[..end], end + 2))
}

/// Seconds since the start, `312.018466`; since the line before, `+0.000003`; or both.
fn is_seconds(inner: &str) -> bool {
    let first = inner.split('<').next().unwrap_or("").trim().trim_start_matches('+');
    let Some((whole, part)) = first.split_once('.') else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(part) && part.len() >= 3
}

/// A time that lost its bracket, as in the first line that an author copied: `312.018466]`.
fn cut(text: &str) -> Option<usize> {
    let end = text.bytes().take(24).position(|byte| byte == b']')?;
    (is_seconds(&text[..end]) && text[..end].starts_with(|c: char| c.is_ascii_digit()))
        .then_some(end + 1)
}

/// The task or CPU that printed a line: `T1234`, `C5`.
fn is_caller(inner: &str) -> bool {
    let inner = inner.trim();
    let id = inner.strip_prefix(['T', 'C']).unwrap_or("");
    let id = id.split('@').next().unwrap_or("");
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number of the line or its file, as `grep` prints them: `120:`, `120-`, `messages.1:`.
fn place(text: &str) -> Option<usize> {
    let digits = text.bytes().take(8).take_while(u8::is_ascii_digit).count();
    if (1..8).contains(&digits) {
        let is_end = text[digits..].starts_with([':', '-']) && iso(text).is_none();
        return is_end.then_some(digits + 1);
    }
    let is_path = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._/@".contains(byte);
    let length = text.bytes().take(64).take_while(is_path).count();
    let is_file = length > 0 && text[length..].starts_with(':') && !text.starts_with("kernel:");
    is_file.then_some(length + 1)
}

/// `<4>`.
fn level(text: &str) -> Option<(usize, bool)> {
    let inner = text.strip_prefix('<')?;
    let end = inner.bytes().take(4).position(|byte| byte == b'>')?;
    let number = end > 0 && inner[..end].bytes().all(|byte| byte.is_ascii_digit());
    number.then_some((end + 2, false))
}

/// `2025-07-17T12:00:01.018466+02:00`; dmesg writes a comma before the fraction.
fn iso(text: &str) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    let form = b"dddd-dd-dd?dd:dd:dd";
    let fits = bytes.len() >= form.len()
        && form.iter().zip(bytes).all(|(form, byte)| match form {
            b'd' => byte.is_ascii_digit(),
            b'?' => matches!(byte, b'T' | b' '),
            other => other == byte,
        });
    if !fits {
        return None;
    }
    let rest = &text[form.len()..];
    let tail = rest.find(|c: char| !(c.is_ascii_digit() || ".,+-:Z".contains(c)));
    let tail = tail.unwrap_or(rest.len());
    Some((form.len() + tail, rest[..tail].starts_with(',')))
}

/// `Jul 17 12:00:01`, with a fraction of a second or without.
fn syslog(text: &str) -> Option<usize> {
    MONTHS.iter().find(|month| text.starts_with(*month))?;
    let mut words = text[3..].split_ascii_whitespace();
    let (day, time) = (words.next()?, words.next()?);
    let number = |text: &str| text.parse::<f64>().is_ok();
    let parts: Vec<&str> = time.split(':').collect();
    let fits = number(day) && parts.len() == 3 && parts.iter().all(|part| number(part));
    let at = time.as_ptr() as usize - text.as_ptr() as usize;
    fits.then_some(at + time.len())
}

/// `kernel:` with the name of the host or without, and with what syslog prints of the level:
/// `host kern.warn kernel:`. RFC 5424 has three more fields, which are empty: `host kernel - - -`.
fn kernel(text: &str) -> Option<usize> {
    let (mut at, mut hosts) = (0, 0);
    while hosts < 2 {
        let rest = &text[at..];
        let word = rest.split_ascii_whitespace().next()?;
        let start = at + (word.as_ptr() as usize - rest.as_ptr() as usize);
        let end = start + word.len();
        let name = word.strip_suffix(':').unwrap_or("");
        if name == "kernel" || name.starts_with("kernel[") {
            return Some(end);
        }
        // `host kernel:[  12.3]`
        if word.starts_with("kernel:[") {
            return Some(start + "kernel:".len());
        }
        const EMPTY: &str = " - - -";
        if word == "kernel" && text[end..].starts_with(EMPTY) {
            return Some(end + EMPTY.len());
        }
        let is_host =
            word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if !is_host {
            return None;
        }
        hosts += usize::from(!word.starts_with("kern."));
        at = end;
    }
    None
}

/// `kern  :warn  :`.
fn facility(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("kern")?;
    let first = rest.find(':').filter(|at| rest[..*at].trim().is_empty())?;
    let second = rest[first + 1..].find(':')?;
    let level = rest[first + 1..][..second].trim();
    let word = !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_alphabetic());
    word.then_some("kern".len() + first + 1 + second + 1)
}

/// `6,1234,312018466,-;`, a record of `/dev/kmsg`.
fn record(text: &str) -> Option<usize> {
    let end = text.bytes().take(80).position(|byte| byte == b';')?;
    let fields: Vec<&str> = text[..end].split(',').collect();
    let number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (fields.len() >= 4 && fields[..3].iter().all(number)).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_logs_are_removed() {
        let frame = " _raw_spin_lock+0x1/0x2";
        for prefix in [
            "[  312.018466] ",
            "312.018466] ",
            "18466.312018] ",
            "[  312.018466][ T1234] ",
            "[  312.018466] [    C5] ",
            "<4>[  312.018466] ",
            "kern  :warn  : [  312.018466] ",
            "kern  :err   : [Thu Jul 17 12:00:01 2025] ",
            "[Thu Jul 17 12:00:01 2025] ",
            "[  +0.000003] ",
            "[  312.018466 <    0.000003>] ",
            "2025-07-17T12:00:01,018466+02:00 ",
            "2025-07-17T12:00:01.018466+02:00 host-1 kernel: ",
            "2025-07-17 12:00:01 host kernel: [  312.018466] ",
            "Jul 17 12:00:01 host1 kernel: [  312.018466] ",
            "Jul  7 12:00:01.123456 host1.example.org kernel: ",
            "[  312.018466] host kernel: ",
            "6,1234,312018466,-;",
            "kernel: ",
            "[ ] ",
            "[     ] ",
            "Jul 17 12:00:01 host kernel:[  312.018466] ",
            "Jul 17 12:00:01 [kernel] [  312.018466] ",
            "Jul 17 12:00:01 host kern.warn kernel: [  312.018466] ",
            "<4>2025-07-17T12:00:01.018466+02:00 host kernel - - - [  312.018466] ",
            "120:[  312.018466] ",
            "121-Jul 17 12:00:01 host kernel: [  312.018466] ",
            "log/messages-1:Jul 17 12:00:01 host kernel: [  312.018466] ",
            "var/log/kern.log:7:[  312.018466] ",
        ] {
            let line = format!("{prefix}{frame}");
            let message = message(&line).map(|at| &line[at..]);
            let expected = if prefix.ends_with(';') { &frame[1..] } else { frame };
            assert_eq!(message, Some(expected), "{prefix}");
        }
    }

    #[test]
    fn other_lines_have_none() {
        for line in [
            "text",
            "[k] native",
            "[1] a reference",
            "[PATCH 1/2] mm: x",
            "Jul 17 12:00:01 host systemd[1]: x",
            "On Jul 17 we saw",
            " <TASK>",
            "- [ ] an item",
            "[] a",
            "[<ffffffff81>] a+0x1",
            "<comm> x",
            "the [kernel] does",
            "[kernel] [k] a_b",
            "120: text",
            "note: text",
            "12-point",
            "12.5] text",
            "see 312.018466] text",
            "a kernel: b",
        ] {
            let found = message(line);
            assert!(found.is_none() || line == "a kernel: b", "{line}: {found:?}");
        }
    }

    #[test]
    fn joined_lines_have_stamps() {
        let text = "_raw_spin_lock+0x1/0x2 [30893.634211]  b+0x1/0x2";
        assert_eq!(next_stamp(text), text.find('['));
        assert_eq!(next_stamp("a [1] b [x.y] c"), None);
    }
}
