//! The file of the swap device: unnamed, removed with the machine.

use crate::arena::PAGE_BYTES;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// Blocks of a page each, of zeros until they are written; the file is made when the first is used.
#[derive(Default)]
pub(crate) struct SwapFile {
    file: OnceLock<Option<File>>,
}

impl SwapFile {
    fn file(&self) -> Result<&File> {
        // An unnamed file, in the folder for temporary files.
        let file = self.file.get_or_init(|| tempfile::tempfile().ok()).as_ref();
        file.ok_or_else(|| {
            Error::other("no room for a swap file in the folder for temporary files")
        })
    }
    pub(crate) fn write(&self, block: u32, page: &[u8; PAGE_BYTES]) -> Result<()> {
        self.file()?.write_all_at(page, offset(block))
    }
    pub(crate) fn read(&self, block: u32, page: &mut [u8; PAGE_BYTES]) -> Result<()> {
        match self.file()?.read_exact_at(page, offset(block)) {
            // A block behind all that were written.
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => page.fill(0),
            other => other?,
        }
        Ok(())
    }
}

fn offset(block: u32) -> u64 {
    u64::from(block) * PAGE_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_keep_what_was_written_and_others_are_zero() {
        let (file, mut page) = (SwapFile::default(), [0; PAGE_BYTES]);
        file.write(3, &[7; PAGE_BYTES]).unwrap();
        file.write(5, &[9; PAGE_BYTES]).unwrap();
        file.read(3, &mut page).unwrap();
        assert_eq!(page, [7; PAGE_BYTES]);
        for block in [4, 6] {
            file.read(block, &mut page).unwrap();
            assert_eq!(page, [0; PAGE_BYTES], "block {block}");
        }
    }
}
