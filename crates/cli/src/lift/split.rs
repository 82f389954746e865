//! `mmscale lift split`: a recording as a change of a structure's layout would make it.

use anyhow::anyhow;
use mmscale_lift::Words;

use super::show::read;
use crate::args::LiftSplitArgs;
use crate::destination::{Destination, RECORDING};
use crate::failure::Failure;
use crate::output;

/// Moves words to lines of their own, and writes the file.
pub(super) fn split(args: &LiftSplitArgs) -> Result<(), Failure> {
    let words = words(&args.words)?;
    let recording = read(&args.file)?;
    let place = Destination::open(&args.output, output::existing(args.replace), RECORDING)?;
    let (split, lines) = recording.split(&words).map_err(|why| Failure::Call(anyhow!("{why}")))?;
    output::tell(&format!("{lines} lines of `{}` have a line more", words.object));
    let mut bytes = Vec::new();
    split.write(&mut bytes).map_err(|why| Failure::Run(why.into()))?;
    place.write(bytes)
}

/// Reads `NAME+OFFSET:LENGTH`.
fn words(text: &str) -> Result<Words, Failure> {
    let parts = text.rsplit_once('+').and_then(|(object, rest)| {
        let (offset, length) = rest.split_once(':')?;
        Some(Words {
            object: object.to_owned(),
            offset: offset.parse().ok()?,
            length: length.parse().ok()?,
        })
    });
    parts.filter(|words| !words.object.is_empty()).ok_or_else(|| {
        Failure::Call(anyhow!(
            "`{text}`: expected NAME+OFFSET:LENGTH, such as 'line of zone+24:8': the name of a \
             line in `mmscale lift show`, its first byte to move, and how many"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_a_name_a_byte_and_a_length() {
        let read = words("line of zone+24:8").unwrap();
        assert_eq!((read.object.as_str(), read.offset, read.length), ("line of zone", 24, 8));
        for wrong in ["", "zone", "zone+8", "+8:8", "zone+x:8", "zone+8:300", "zone+-1:8"] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }
}
