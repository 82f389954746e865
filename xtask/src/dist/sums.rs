//! SHA-256 sums of the files of a release, in the form of `sha256sum`.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

/// The file with the sums.
pub(super) const NAME: &str = "SHA256SUMS";

/// Writes the sums of all files in a folder. Returns a line for each file, with its size.
pub(super) fn write(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |why: std::io::Error| format!("cannot read {}: {why}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>();
    let mut names: Vec<String> = entries
        .map_err(failed)?
        .into_iter()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name != NAME)
        .collect();
    names.sort();
    let (mut sums, mut lines) = (String::new(), vec![]);
    for name in names {
        let bytes = fs::read(folder.join(&name)).map_err(failed)?;
        let sum: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        sums.push_str(&format!("{sum}  {name}\n"));
        lines.push(format!("{:>9.1} MB  {name}", bytes.len() as f64 / 1e6));
    }
    fs::write(folder.join(NAME), sums).map_err(failed)?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b"), "").unwrap();
        fs::write(folder.path().join("a"), "abc").unwrap();
        let lines = write(folder.path()).unwrap();
        assert_eq!(lines.len(), 2);
        write(folder.path()).unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let none = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let text = fs::read_to_string(folder.path().join(NAME)).unwrap();
        assert_eq!(text, format!("{abc}  a\n{none}  b\n"));
    }
}
