//! A short digest of a result.

/// A 64-bit digest of a result: equal results have equal fingerprints.
///
/// The function is 64-bit FNV-1a (Fowler, Noll, Vo) over a byte stream, with the finalizer of
/// splitmix64 at the end. Every item in the stream has a fixed size or is preceded by its length,
/// so that different sequences of items give different streams. The function is stable over
/// platforms and versions. It does not resist deliberate collisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self::new()
    }
}

impl Fingerprint {
    /// The fingerprint of an empty result.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Adds a number.
    pub fn add(&mut self, n: u64) {
        self.bytes(&n.to_le_bytes());
    }

    /// Adds a text.
    pub fn add_str(&mut self, text: &str) {
        self.add_bytes(text.as_bytes());
    }

    /// Adds bytes, such as those of a file.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        self.bytes(bytes);
    }

    /// Returns the digest of all items added so far.
    pub const fn finish(self) -> u64 {
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns the digest of all items added so far as 16 hexadecimal digits, as in a document.
    pub fn to_hex(self) -> String {
        format!("{:016x}", self.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(texts: &[&str]) -> u64 {
        let mut fingerprint = Fingerprint::new();
        texts.iter().for_each(|text| fingerprint.add_str(text));
        fingerprint.finish()
    }

    #[test]
    fn items_do_not_run_into_each_other() {
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["ab"]), of(&["ab", ""]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
    }

    #[test]
    fn the_function_does_not_change_between_versions() {
        let mut fingerprint = Fingerprint::new();
        fingerprint.add(72);
        fingerprint.add_str("zone");
        assert_eq!(fingerprint.to_hex(), "c9c9cacc473cb457");
    }
}
