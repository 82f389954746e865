//! A kernel image: what QEMU boots.
//!
//! | module | what it has |
//! |---|---|
//! | `bzimage` | the header of a compressed image, and the kernel in it |
//! | `unpack` | the compressions of kernels and of packages |
//! | `package` | a package of Debian: the image in it |
//! | `debian` | packages from Debian's archive |

mod bzimage;
mod debian;
mod package;
mod unpack;

use mmscale_files::{Limit, Pipe};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, elf};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Several times the largest image or package.
const LIMIT: Limit = Limit::new("a kernel image", 1 << 30);

/// The number of the note with the entry of a kernel for virtual machines,
/// `XEN_ELFNOTE_PHYS32_ENTRY`.
const PVH_ENTRY: u32 = 18;

/// The begin of the kernel's banner; the release follows.
const BANNER: &[u8] = b"Linux version ";

/// Why there is no image.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The file cannot be read.
    #[error(
        "cannot read {}: {why}; --kernel is a bzImage (/boot/vmlinuz-*), a vmlinux, a Debian \
         package (.deb) or debian:VERSION", path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        why: mmscale_files::ReadError,
    },
    /// The file is something else.
    #[error(
        "{} is no kernel image ({what}): give a bzImage (/boot/vmlinuz-*, \
         arch/x86/boot/bzImage), a vmlinux with CONFIG_PVH, a Debian package (.deb) or \
         debian:VERSION", path.display()
    )]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Its apparent kind.
        what: String,
    },
    /// The archive of Debian does not give it.
    #[error("{0}")]
    Debian(String),
}

/// A kernel image in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The name that a user gave.
    pub name: String,
    /// The package that it is from, with its version; `None` for a file.
    pub package: Option<String>,
    /// The bytes that QEMU boots: an ELF file, or a compressed image whose kernel unpacks itself.
    pub(crate) bytes: Vec<u8>,
}

impl Image {
    /// Opens the image that `--kernel` names: a file, or `debian:VERSION`, which is fetched once
    /// into the user's cache. `tell` gets a line on long work.
    ///
    /// # Errors
    /// Why there is no image.
    pub fn open(name: &str, tell: &dyn Fn(&str)) -> Result<Self, ImageError> {
        let path = match name.strip_prefix("debian:") {
            Some(version) => debian::package(version, tell).map_err(ImageError::Debian)?,
            None => PathBuf::from(name),
        };
        let bytes = mmscale_files::bytes(&path, LIMIT, Pipe::Refuse)
            .map_err(|why| ImageError::Read { path: path.clone(), why })?;
        Self::of(name, &path, bytes)
    }

    /// Returns what QEMU boots: an unpacked vmlinux where that is possible.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether time of a machine can pass with its instructions. Before Linux 6.5, which brings up
    /// CPUs in parallel, a CPU waits for another one in a loop that lets no time pass for it.
    pub fn runs_by_instructions(&self) -> bool {
        self.version().is_none_or(|version| version >= (6, 5))
    }

    /// Returns the version, from the banner of an unpacked image.
    fn version(&self) -> Option<(u32, u32)> {
        let at = self.bytes.windows(BANNER.len()).position(|bytes| bytes == BANNER)?;
        let rest = self.bytes.get(at + BANNER.len()..)?;
        let text = String::from_utf8_lossy(&rest[..rest.len().min(16)]).into_owned();
        let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    fn of(name: &str, path: &Path, bytes: Vec<u8>) -> Result<Self, ImageError> {
        let unknown = |what: &str| ImageError::Unknown { path: path.into(), what: what.to_owned() };
        let image = |bytes, package| Self { name: name.to_owned(), package, bytes };
        if bytes.starts_with(package::MAGIC) {
            let (found, package) = package::image(&bytes).map_err(|why| unknown(&why))?;
            return Ok(image(Self::of(name, path, found)?.bytes, Some(package)));
        }
        if bytes.starts_with(&elf::ELFMAG) {
            is_bootable(&bytes).map_err(unknown)?;
            return Ok(image(bytes, None));
        }
        if bytes.len() > 0x40 && bytes[0x38..0x3c] == *b"ARM\x64" {
            return Err(unknown("an image for arm64, and only x86-64 is emulated"));
        }
        if bytes.is_empty() {
            return Err(unknown("an empty file"));
        }
        let Some(payload) = bzimage::payload(&bytes) else {
            return Err(unknown("neither a bzImage, nor an ELF file, nor a package"));
        };
        let payload = payload.map_err(|why| unknown(&why))?;
        // Unpacked here, the kernel is up in less time. One that needs its own start unpacks
        // itself.
        let unpacked = unpack::unpacked(payload, LIMIT).ok().filter(|elf| is_bootable(elf).is_ok());
        Ok(image(unpacked.unwrap_or(bytes), None))
    }
}

/// Checks that QEMU can boot an ELF file.
///
/// # Errors
/// Why it cannot.
fn is_bootable(bytes: &[u8]) -> Result<(), &'static str> {
    let Ok(file) = ElfFile64::<Endianness>::parse(bytes) else {
        return Err("an ELF file for another processor, or cut off");
    };
    let endian = file.endian();
    if file.elf_header().e_machine(endian) != elf::EM_X86_64 {
        return Err("an ELF file for another processor, and only x86-64 is emulated");
    }
    let has_entry = file.elf_program_headers().iter().any(|header| {
        let Ok(Some(mut notes)) = header.notes(endian, bytes) else { return false };
        std::iter::from_fn(|| notes.next().ok().flatten())
            .any(|note| note.n_type(endian) == PVH_ENTRY && note.name() == b"Xen")
    });
    if has_entry { Ok(()) } else { Err("an ELF file without the entry of CONFIG_PVH") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> String {
        Image::of("x", Path::new("x"), bytes.to_vec()).unwrap_err().to_string()
    }

    #[test]
    fn other_files_are_refused_with_what_they_are() {
        assert!(refused(b"").contains("an empty file"));
        assert!(refused(b"#!/bin/sh\n").contains("neither a bzImage"));
        assert!(refused(&[0; 4096]).contains("neither a bzImage"));
        let mut arm = vec![0; 0x100];
        arm[0x38..0x3c].copy_from_slice(b"ARM\x64");
        assert!(refused(&arm).contains("arm64"));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(refused(&own).contains("CONFIG_PVH"));
        assert!(refused(&own[..60]).contains("cut off"));
        assert!(refused(b"!<arch>\n").contains("no kernel"), "{}", refused(b"!<arch>\n"));
    }

    #[test]
    fn an_old_kernel_needs_the_clock_of_this_computer() {
        let image =
            |bytes: &[u8]| Image { name: "x".to_owned(), package: None, bytes: bytes.to_vec() };
        assert!(!image(b"..Linux version 6.1.0-56-cloud").runs_by_instructions());
        assert!(image(b"Linux version 6.12.117").runs_by_instructions());
        assert!(image(b"Linux version 7.3").runs_by_instructions());
        assert!(image(b"Linux version ").runs_by_instructions());
        assert!(image(b"compressed").runs_by_instructions());
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let why = Image::open("/no/such/image", &|_| ()).unwrap_err().to_string();
        assert!(why.contains("/no/such/image"), "{why}");
    }
}
