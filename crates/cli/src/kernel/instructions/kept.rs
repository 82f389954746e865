//! Counts that are kept with the sources: `cargo xtask kernels --keep` writes them.

use mmscale_harness::UnknownName;

use super::document::Document;
use crate::failure::Failure;

const KEPT: [(&str, &str); 3] = [
    ("6.1", include_str!("../../../../../gallery/kernels/6.1.json")),
    ("6.12", include_str!("../../../../../gallery/kernels/6.12.json")),
    ("7.3", include_str!("../../../../../gallery/kernels/7.3.json")),
];

/// Returns the document of one version, or that of two, with these scripts; all if none is named.
pub(super) fn document(versions: &[String], scripts: &[String]) -> Result<Document, Failure> {
    let mut document = whole(versions)?;
    for name in scripts {
        let names = document.scripts.iter().map(|script| script.name.as_str());
        if !names.clone().any(|known| known == name) {
            let unknown = UnknownName::new("kept operation", name, names);
            return Err(Failure::Call(unknown.into()));
        }
    }
    document.scripts.retain(|script| scripts.is_empty() || scripts.contains(&script.name));
    Ok(document)
}

fn whole(versions: &[String]) -> Result<Document, Failure> {
    let of = |version: &String| {
        let found = KEPT.iter().find(|(name, _)| name == version);
        let text = found.map(|(_, text)| *text).ok_or_else(|| {
            let names = KEPT.iter().map(|(name, _)| *name);
            UnknownName::new("kept kernel", version, names)
        });
        let text = text.map_err(|why| Failure::Call(why.into()))?;
        serde_json::from_str(text).map_err(|why| Failure::Run(why.into()))
    };
    match versions {
        [one] => of(one),
        [one, other] => {
            let one: Document = of(one)?;
            Ok(one.joined(of(other)?))
        }
        _ => Err(Failure::Call(anyhow::anyhow!("--kept: give one version, or two to compare"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kept_kernel_has_the_operations() {
        for (version, _) in KEPT {
            let document = document(&[version.to_owned()], &[]).unwrap();
            assert!(document.scripts.len() >= 8, "{version}");
            assert!(document.images[0].release.starts_with(version));
        }
        let versions = ["6.1".to_owned(), "7.3".to_owned()];
        let two = document(&versions, &["touch".to_owned()]).unwrap();
        assert_eq!((two.scripts.len(), two.scripts[0].operations.len()), (1, 2));
        assert!(document(&versions, &["tuch".to_owned()]).is_err());
    }
}
