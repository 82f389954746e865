//! The header of a bzImage (Documentation/arch/x86/boot.rst of Linux).

/// The place of the header's magic number, and the number.
const MAGIC: (usize, &[u8]) = (0x202, b"HdrS");
/// The place of the number of sectors of the code that real mode executes.
const SETUP_SECTORS: usize = 0x1f1;
const SECTOR_BYTES: usize = 512;
/// The sectors if the number is 0.
const SETUP_SECTORS_DEFAULT: usize = 4;
/// The places of the compressed kernel behind that code, and of its size; since version 2.08.
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_BYTES: usize = 0x24c;
const VERSION: usize = 0x206;
const VERSION_OF_PAYLOAD: u16 = 0x0208;

/// Returns the compressed kernel of a bzImage; `None` if it is none.
///
/// # Errors
/// It is one, but lacks its kernel.
pub(super) fn payload(image: &[u8]) -> Option<Result<&[u8], String>> {
    let (at, magic) = MAGIC;
    if image.get(at..at + magic.len())? != magic {
        return None;
    }
    Some(found(image).ok_or_else(|| "a bzImage that is cut off".to_owned()))
}

fn found(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize)
    };
    let version = u16::from_le_bytes(image.get(VERSION..VERSION + 2)?.try_into().ok()?);
    if version < VERSION_OF_PAYLOAD {
        return None;
    }
    let sectors = match usize::from(*image.get(SETUP_SECTORS)?) {
        0 => SETUP_SECTORS_DEFAULT,
        sectors => sectors,
    };
    let from = (sectors + 1) * SECTOR_BYTES + number(PAYLOAD_OFFSET)?;
    image.get(from..from.checked_add(number(PAYLOAD_BYTES)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(sectors: u8) -> Vec<u8> {
        let mut image = vec![0; 0x400];
        image[SETUP_SECTORS] = sectors;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[VERSION..VERSION + 2].copy_from_slice(&0x020f_u16.to_le_bytes());
        image[PAYLOAD_OFFSET] = 16;
        image[PAYLOAD_BYTES] = 4;
        image.resize((usize::from(sectors) + 1) * SECTOR_BYTES + 16, 0);
        image.extend(b"abcd");
        image
    }

    #[test]
    fn the_payload_is_behind_the_setup() {
        assert_eq!(payload(&image(7)), Some(Ok(&b"abcd"[..])));
        let cut = image(7);
        assert!(payload(&cut[..cut.len() - 1]).unwrap().is_err());
        assert_eq!(payload(b"short"), None);
        assert_eq!(payload(&[0; 4096]), None);
    }
}
