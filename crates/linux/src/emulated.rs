//! Whether this computer's processors are emulated.

/// The signature of QEMU's emulator, in the leaf of processors that tells of hypervisors.
const EMULATOR: [u32; 3] = [0x5447_4354, 0x4354_4743, 0x4743_5447];

/// Whether an emulator executes this program: QEMU without KVM. Its processors run one after
/// another, so no time and no wait of this computer means anything; counts do.
pub fn is_emulated() -> bool {
    signature() == Some(EMULATOR)
}

/// Returns the signature of the hypervisor (leaf 0x4000_0000).
#[cfg(target_arch = "x86_64")]
fn signature() -> Option<[u32; 3]> {
    use std::arch::x86_64::__cpuid;
    const LEAF: u32 = 0x4000_0000;
    let is_guest = __cpuid(1).ecx >> 31 == 1;
    let found = is_guest.then(|| __cpuid(LEAF))?;
    Some([found.ebx, found.ecx, found.edx])
}

/// No other processor says it.
#[cfg(not(target_arch = "x86_64"))]
fn signature() -> Option<[u32; 3]> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_the_words_of_the_emulator() {
        let bytes: Vec<u8> = EMULATOR.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(bytes, b"TCGTCGTCGTCG");
    }
}
