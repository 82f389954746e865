//! Checksums of kept documents, which show damage and changes.

use serde::Serialize;

use crate::{Document, Fingerprint, Measurement, Robustness};

/// A document that is kept in a file, with a checksum over all of its other fields.
///
/// The checksum is over the values, not over the text of the file: spaces and the order of fields
/// may change. It detects damage, and a value that was changed without care. It does not resist
/// deliberate forgery.
pub trait Kept: Clone + Serialize {
    /// Returns the place of the checksum.
    fn checksum_mut(&mut self) -> &mut Option<String>;

    /// Returns the document with its checksum.
    #[must_use]
    fn sealed(mut self) -> Self {
        *self.checksum_mut() = None;
        let sum = sum(&self);
        *self.checksum_mut() = Some(sum);
        self
    }

    /// Returns whether the document has the values of its checksum. `None` if it has no checksum,
    /// as those of earlier versions.
    fn is_intact(&self) -> Option<bool> {
        let mut rest = self.clone();
        let kept = rest.checksum_mut().take()?;
        Some(kept == sum(&rest))
    }
}

/// Returns the checksum of a value as 16 hexadecimal digits.
pub fn sum(of: &impl Serialize) -> String {
    sum_of_text(&json(of))
}

fn json(of: &impl Serialize) -> String {
    serde_json::to_string(of).expect("a document has text keys and finite numbers")
}

fn sum_of_text(text: &str) -> String {
    let mut sum = Fingerprint::new();
    sum.add_bytes(text.as_bytes());
    sum.to_hex()
}

impl Kept for Document {
    fn checksum_mut(&mut self) -> &mut Option<String> {
        &mut self.checksum
    }

    /// A document of an earlier version has `linux` for `live`, and a checksum over that word.
    fn is_intact(&self) -> Option<bool> {
        let mut rest = self.clone();
        let kept = rest.checksum.take()?;
        let text = json(&rest);
        let earlier = text.replacen(r#""on":"live""#, r#""on":"linux""#, 1);
        Some([text, earlier].iter().any(|text| kept == sum_of_text(text)))
    }
}

impl Kept for Robustness {
    fn checksum_mut(&mut self) -> &mut Option<String> {
        &mut self.checksum
    }
}

impl Kept for Measurement {
    fn checksum_mut(&mut self) -> &mut Option<String> {
        &mut self.checksum
    }
}
