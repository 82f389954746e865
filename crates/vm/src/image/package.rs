//! A package of Debian: an archive of `ar` with an archive of `tar` for its files, and one for what
//! it says of itself.

use super::LIMIT;
use super::unpack::unpacked;
use std::io::Read;

/// The first bytes of a package.
pub(super) const MAGIC: &[u8] = b"!<arch>\n";

/// Returns the kernel image of a package, and the package's name and version.
///
/// # Errors
/// It has no image, or is broken.
pub(super) fn image(bytes: &[u8]) -> Result<(Vec<u8>, String), String> {
    let mut archive = ar::Archive::new(bytes);
    let (mut image, mut package) = (None, String::new());
    while let Some(entry) = archive.next_entry() {
        let mut entry = entry.map_err(|why| format!("a package that is broken: {why}"))?;
        let name = String::from_utf8_lossy(entry.header().identifier()).into_owned();
        let (is_data, is_control) = (name.starts_with("data.tar"), name.starts_with("control.tar"));
        if !is_data && !is_control {
            continue;
        }
        let mut packed = Vec::new();
        let read = entry.read_to_end(&mut packed);
        let files = read.and_then(|_| match name.ends_with(".tar") {
            true => Ok(packed),
            false => unpacked(&packed, LIMIT),
        });
        let files = files.map_err(|why| format!("a package whose {name} is broken: {why}"))?;
        if is_control {
            package = file(&files, |path| path == "control")
                .map(|control| named(&String::from_utf8_lossy(&control)))
                .unwrap_or_default();
        } else {
            image = file(&files, is_image);
        }
    }
    let image = image.ok_or_else(|| match package.as_str() {
        "" => "a package that has no kernel".to_owned(),
        package => format!(
            "the package {package}, which has no kernel; since Linux 7 it is in linux-binary-*"
        ),
    })?;
    Ok((image, package))
}

/// Whether a file of a package is its kernel: `boot/vmlinuz-VERSION`, or, since Linux 7,
/// `usr/lib/modules/VERSION/vmlinuz`.
fn is_image(path: &str) -> bool {
    path.starts_with("boot/vmlinuz-")
        || (path.contains("lib/modules/") && path.ends_with("/vmlinuz"))
}

/// Returns the first file of an archive whose path is meant.
fn file(tar: &[u8], is_meant: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
    let mut archive = tar::Archive::new(tar);
    for mut entry in archive.entries().ok()?.flatten() {
        let path = entry.path().ok()?.to_string_lossy().into_owned();
        if entry.header().entry_type().is_file() && is_meant(path.trim_start_matches("./")) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).ok()?;
            return Some(bytes);
        }
    }
    None
}

/// Returns name and version of a package from its control file.
fn named(control: &str) -> String {
    let field = |name: &str| {
        let line = control.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_default().to_owned()
    };
    format!("{} {}", field("Package"), field("Version")).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            builder.append_data(&mut header, path, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn package(files: &[(&str, &[u8])]) -> Vec<u8> {
        let control = tar(&[("control", b"Package: linux-x\nVersion: 6.1-2\n")]);
        let mut builder = ar::Builder::new(Vec::new());
        let parts: [(&str, &[u8]); 3] =
            [("debian-binary", b"2.0\n"), ("control.tar", &control), ("data.tar", &tar(files))];
        for (name, bytes) in parts {
            let header = ar::Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
            builder.append(&header, bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_package_has_its_kernel_and_name() {
        for path in ["boot/vmlinuz-6.1", "usr/lib/modules/7.3/vmlinuz"] {
            let found = image(&package(&[("boot/config-6.1", b"no"), (path, b"kernel")])).unwrap();
            assert_eq!(found, (b"kernel".to_vec(), "linux-x 6.1-2".to_owned()));
        }
        let why = image(&package(&[("boot/System.map-6.1", b"no")])).unwrap_err();
        assert!(why.contains("linux-x 6.1-2, which has no kernel"), "{why}");
        let whole = package(&[("boot/vmlinuz-6.1", b"kernel")]);
        for cut in [10, 100, 700, whole.len() - 2000] {
            assert!(image(&whole[..cut]).is_err(), "{cut}");
        }
    }
}
