//! Profiles with a base: the file has the numbers that differ, the rest is inherited, and each
//! number keeps its source and its file.

use mmscale_sim::profile::{self, Merged, ProfileError, builtin_names};
use std::fs;
use std::path::PathBuf;

/// A folder of profile files, removed at the end.
struct Folder(tempfile::TempDir);

impl Folder {
    fn of(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self, name: &str) -> Result<Merged, ProfileError> {
        profile::open(self.path(name))
    }

    /// Returns the message for a file that is refused, without the folder.
    fn refusal(&self, name: &str) -> String {
        let why = self.open(name).and_then(|merged| merged.resolve()).unwrap_err().to_string();
        why.replace(&format!("{}/", self.0.path().display()), "")
    }
}

/// A file with a base, a description and one more line.
fn derived(base: &str, more: &str) -> String {
    format!("base = \"{base}\"\ndescription = \"mine\"\n{more}\n")
}

const HANDOFF: &str = "[costs]\nhandoff_fixed_ns = { value = 300, range = [200, 400], source = \"measured: a test\" }";

#[test]
fn a_file_with_a_base_has_what_differs_and_inherits_the_rest() {
    let folder = Folder::of(&[("mine.toml", &derived("x86-512", HANDOFF))]);
    let mine = folder.open("mine.toml").unwrap();
    assert_eq!(mine.bases, ["x86-512", "x86-2"]);
    assert_eq!(mine.title(), "mine");
    let base = profile::open("x86-512").unwrap();
    for ((section, mine_of), (_, base_of)) in mine.file.sections().zip(base.file.sections()) {
        assert!(mine_of.keys().eq(base_of.keys()), "{section}");
        for (key, number) in mine_of {
            let own = (section, key.as_str()) == ("costs", "handoff_fixed_ns");
            assert_eq!(mine.inherited_from(section, key).is_none(), own, "{section}.{key}");
            // An inherited number equals the base's in every field.
            assert_eq!(*number == base_of[key], !own, "{section}.{key}");
        }
    }
    assert_eq!(mine.inherited_from("costs", "line_node_ns"), Some("x86-512"));
    assert_eq!(mine.inherited_from("costs", "switch_ns"), Some("x86-2"));
    let (resolved, before) = (mine.resolve().unwrap(), base.resolve().unwrap());
    assert_eq!(resolved.costs.handoff_fixed_ps, 300_000);
    assert_eq!((resolved.description.as_str(), resolved.topology), ("mine", before.topology));
    assert_ne!(resolved.hash, before.hash);
    assert_eq!((resolved.bases, before.bases), (vec!["x86-512".into(), "x86-2".into()], vec![]));
}

#[test]
fn a_file_that_changes_nothing_has_the_hash_of_its_base() {
    let folder = Folder::of(&[("same.toml", &derived("arm64-8", ""))]);
    let same = profile::load(folder.path("same.toml")).unwrap();
    let base = profile::load("arm64-8").unwrap();
    assert_eq!((same.hash, same.costs), (base.hash, base.costs));
    assert_eq!(same.name, "same");
}

#[test]
fn a_merged_file_is_written_as_one_that_needs_no_base() {
    for name in builtin_names() {
        let merged = profile::open(name).unwrap();
        let text = profile::write(&merged.file);
        let alone = profile::parse("alone", &text).unwrap();
        assert_eq!(alone, merged.file, "{name}");
        assert_eq!(profile::resolve("alone", &alone).unwrap().hash, merged.resolve().unwrap().hash);
    }
}

#[test]
fn a_path_of_a_base_begins_at_the_folder_of_its_file() {
    let folder = Folder::of(&[
        ("common.toml", &derived("x86-26", HANDOFF)),
        ("rack/mine.toml", &derived("../common.toml", "")),
    ]);
    let mine = folder.open("rack/mine.toml").unwrap();
    let common = folder.path("rack/../common.toml");
    assert_eq!(mine.bases, [&*common.to_string_lossy(), "x86-26", "x86-2"]);
    assert_eq!(mine.inherited_from("costs", "handoff_fixed_ns"), Some(&*common.to_string_lossy()));
    assert_eq!(mine.resolve().unwrap().costs.handoff_fixed_ps, 300_000);
}

#[test]
fn bases_that_lead_back_or_too_far_are_refused() {
    let itself = derived("mine.toml", "");
    let folder = Folder::of(&[
        ("mine.toml", &itself),
        ("a.toml", &derived("./b.toml", "")),
        ("b.toml", &derived("./deep/../a.toml", "")),
        ("deep/x.toml", ""),
    ]);
    let message = folder.refusal("mine.toml");
    assert!(message.contains("(mine.toml -> mine.toml); name another `base`"), "{message}");
    let message = folder.refusal("a.toml");
    assert!(message.contains("`b.toml`: its bases form a circle"), "{message}");
    assert!(message.contains("(a.toml -> b.toml -> deep/../a.toml)"), "{message}");

    let files: Vec<(String, String)> = (0..6)
        .map(|n| (format!("{n}.toml"), derived(&format!("{}.toml", n + 1), "")))
        .chain([("6.toml".to_owned(), derived("x86-2", ""))])
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
    let folder = Folder::of(&files);
    assert_eq!(folder.open("2.toml").unwrap().bases.len(), 5);
    let message = folder.refusal("1.toml");
    assert!(message.contains("at most 6 files"), "{message}");
    assert!(message.contains("1.toml -> 2.toml -> 3.toml"), "{message}");
}

#[test]
fn a_base_that_is_not_there_is_named_with_the_nearest() {
    let folder = Folder::of(&[
        ("name.toml", &derived("x86-521", "")),
        ("file.toml", &derived("./none.toml", "")),
        ("broken.toml", &derived("./text.toml", "")),
        ("text.toml", "description = 1\n"),
    ]);
    let message = folder.refusal("name.toml");
    assert!(
        message.starts_with("base of profile `name.toml`: there is no profile named `x86-521`")
    );
    assert!(message.contains("did you mean `x86-512`"), "{message}");
    let message = folder.refusal("file.toml");
    assert!(
        message.contains("base of profile `file.toml`: cannot read the profile `none.toml`"),
        "{message}"
    );
    let message = folder.refusal("broken.toml");
    assert!(
        message.contains("base of profile `broken.toml`: profile `text.toml`, line 1"),
        "{message}"
    );
}

#[test]
fn an_error_names_the_file_that_has_it() {
    let wrong = |key: &str, number: &str| format!("[costs]\n{key} = {{ {number} }}");
    let number = "value = 300, range = [200, 400], source = \"a test\"";
    let above = "value = 500, range = [200, 400], source = \"a test\"";
    let folder = Folder::of(&[
        ("key.toml", &derived("x86-2", &wrong("handof_fixed_ns", number))),
        ("range.toml", &derived("x86-2", &wrong("handoff_fixed_ns", above))),
        (
            "source.toml",
            &derived("x86-2", &wrong("handoff_fixed_ns", &number.replace("a test", ""))),
        ),
        (
            "kind.toml",
            &derived("x86-2", &wrong("handoff_fixed_ns", &number.replace("a test", "guess"))),
        ),
        ("over.toml", &derived("./range.toml", "")),
        ("section.toml", &derived("x86-2", "[cots]")),
        ("words.toml", "base = \"x86-2\"\n"),
    ]);
    let message = folder.refusal("key.toml");
    assert!(message.contains(
        "unknown key `costs.handof_fixed_ns`: correct or remove it; did you mean `handoff_fixed_ns`?"
    ));
    assert!(message.starts_with("profile `key.toml`"), "{message}");
    let message = folder.refusal("range.toml");
    assert!(message.contains("`costs.handoff_fixed_ns` = 500 is outside its range [200, 400]"));
    let message = folder.refusal("over.toml");
    assert!(message.starts_with("profile `range.toml`: `costs.handoff_fixed_ns`"), "{message}");
    assert!(folder.refusal("source.toml").contains("`costs.handoff_fixed_ns` has no source"));
    assert!(folder.refusal("kind.toml").contains("whose kind is unclear"));
    assert!(folder.refusal("section.toml").contains("unknown field `cots`"));
    assert!(folder.refusal("words.toml").contains("missing field `description`"));
}

#[test]
fn bases_of_builtin_profiles_are_builtin() {
    for name in builtin_names() {
        for base in profile::open(name).unwrap().bases {
            assert!(builtin_names().contains(&base.as_str()), "{name} has the base {base}");
        }
    }
}
