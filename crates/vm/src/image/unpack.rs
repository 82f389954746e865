//! The compressions of kernels (`CONFIG_KERNEL_*`) and of packages. A kernel has its unpacked size
//! as four bytes behind the compressed data, so input that is left over is no error.

use mmscale_files::Limit;
use std::io::{self, Read};

/// The magic number of a legacy frame of LZ4, which the kernel's build writes.
const LZ4_LEGACY: &[u8] = &0x184c_2102_u32.to_le_bytes();
/// The size of each of its blocks but the last.
const LZ4_BLOCK_BYTES: usize = 8 << 20;
/// Memory that LZMA may use, in KiB: several times what its highest setting needs.
const LZMA_MEMORY_KIB: u32 = 1 << 19;

/// Unpacks what a magic number names.
///
/// # Errors
/// The compression is unknown, or the data is broken or larger than the limit.
pub(super) fn unpacked(data: &[u8], limit: Limit) -> io::Result<Vec<u8>> {
    if data.starts_with(LZ4_LEGACY) {
        return lz4(&data[LZ4_LEGACY.len()..], limit);
    }
    let reader: Box<dyn Read + '_> = if data.starts_with(b"\x1f\x8b") {
        Box::new(flate2::read::GzDecoder::new(data))
    } else if data.starts_with(b"\x28\xb5\x2f\xfd") {
        let decoder = ruzstd::decoding::StreamingDecoder::new(data);
        Box::new(decoder.map_err(|why| broken(&why.to_string()))?)
    } else if data.starts_with(b"\xfd7zXZ\0") {
        Box::new(lzma_rust2::XzReader::new(data, false))
    } else if data.starts_with(b"\x5d\0\0") {
        Box::new(lzma_rust2::LzmaReader::new_mem_limit(data, LZMA_MEMORY_KIB, None)?)
    } else {
        return Err(broken("a compression that is not known here"));
    };
    let mut out = Vec::new();
    reader.take(limit.bytes + 1).read_to_end(&mut out)?;
    within(limit, out)
}

fn lz4(mut data: &[u8], limit: Limit) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut block = vec![0; LZ4_BLOCK_BYTES];
    while let Some((head, rest)) = data.split_first_chunk::<4>() {
        let size = u32::from_le_bytes(*head) as usize;
        // The size of all, behind the last block.
        let Some((packed, rest)) = rest.split_at_checked(size) else { break };
        let bytes = lz4_flex::block::decompress_into(packed, &mut block)
            .map_err(|why| broken(&why.to_string()))?;
        out.extend(&block[..bytes]);
        if out.len() as u64 > limit.bytes {
            break;
        }
        data = rest;
    }
    within(limit, out)
}

fn within(limit: Limit, out: Vec<u8>) -> io::Result<Vec<u8>> {
    match out.len() as u64 > limit.bytes {
        true => Err(broken("it is too large")),
        false => Ok(out),
    }
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const LIMIT: Limit = Limit::new("a test", 1 << 20);

    #[test]
    fn gzip_is_unpacked_up_to_a_limit() {
        let packed = |bytes: usize| {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            out.write_all(&vec![7; bytes]).unwrap();
            // The size behind it.
            [out.finish().unwrap(), vec![1, 2, 3, 4]].concat()
        };
        assert_eq!(unpacked(&packed(70_000), LIMIT).unwrap(), vec![7; 70_000]);
        assert!(unpacked(&packed(2 << 20), LIMIT).is_err());
    }

    #[test]
    fn legacy_lz4_is_unpacked_block_by_block() {
        let mut packed = LZ4_LEGACY.to_vec();
        for part in [&[1; 1000][..], &[2; 10]] {
            let block = lz4_flex::block::compress(part);
            packed.extend((block.len() as u32).to_le_bytes());
            packed.extend(block);
        }
        packed.extend(1010_u32.to_le_bytes());
        assert_eq!(unpacked(&packed, LIMIT).unwrap(), [vec![1; 1000], vec![2; 10]].concat());
        assert!(unpacked(&[LZ4_LEGACY, &[1, 0, 0, 0, 255]].concat(), LIMIT).is_err());
    }

    #[test]
    fn broken_data_is_an_error() {
        let heads: [&[u8]; 4] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"unknown"];
        for head in heads {
            assert!(unpacked(&[head, &[0xaa; 100]].concat(), LIMIT).is_err(), "{head:?}");
            assert!(unpacked(head, LIMIT).is_err(), "{head:?}");
        }
    }
}
