//! The arms of one document as two documents, so that they are compared like those of two runs.

use mmscale_document::{ArmRecord, Document, Fingerprint};

use super::{CompareError, Saved};

/// Returns a document with the base once for each other arm, under the name of that arm, and one
/// with the other arms. The base is the first arm if none is named.
///
/// # Errors
/// There is no arm with this name, or no other arm.
pub fn by_arm(saved: &Saved, base: Option<&str>) -> Result<[Saved; 2], CompareError> {
    let Document { arms, study, .. } = &saved.document;
    let known = || arms.iter().map(|arm| arm.arm.as_str()).collect::<Vec<_>>().join(", ");
    let name = base.or_else(|| arms.first().map(|arm| arm.arm.as_str())).unwrap_or("");
    let Some(base) = arms.iter().find(|arm| arm.arm == name) else {
        let (study, base) = (study.clone(), name.to_owned());
        return Err(CompareError::NoSuchArm { study, base, known: known() });
    };
    let others: Vec<ArmRecord> = arms.iter().filter(|arm| arm.arm != name).cloned().collect();
    if others.is_empty() {
        return Err(CompareError::OneArm { study: study.clone(), arm: name.to_owned() });
    }
    let bases = others.iter().map(|other| ArmRecord { arm: other.arm.clone(), ..base.clone() });
    let bases = bases.collect();
    let path = format!("{}, arm {name}", saved.path.display());
    Ok([part(saved, path.into(), bases), part(saved, saved.path.clone(), others)])
}

/// Returns a document with other arms of the same run, which has a fingerprint of its own.
fn part(saved: &Saved, path: std::path::PathBuf, arms: Vec<ArmRecord>) -> Saved {
    let mut fingerprint = Fingerprint::new();
    fingerprint.add_str(&saved.document.fingerprint);
    fingerprint.add_str(&path.to_string_lossy());
    let fingerprint = fingerprint.to_hex();
    let document = Document { arms, fingerprint, checksum: None, ..saved.document.clone() };
    Saved { path, document }
}
