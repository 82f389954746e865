//! Profiles with bases: merging, and the file that each number comes from.

use super::builtin::Profiles;
use super::file::read;
use super::kernels::other_key;
use super::{ProfileError, ProfileFile, Section, kernels, parse};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The most files of one profile: itself and its bases.
const MAX_FILES: usize = 6;

/// A profile file merged with its bases.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The profile's name, for messages.
    pub name: String,
    /// All numbers. The field `base` is empty.
    pub file: ProfileFile,
    /// The names of the bases, the nearest first.
    pub bases: Vec<String>,
    /// The name of the kernel, from which it inherits after all bases.
    pub kernel: String,
    /// Whether it comes from a file and is not built in.
    pub(super) own: bool,
    /// The base of each inherited number, by section and key, as an index into `bases`; the number
    /// after the last is the kernel.
    inherited: BTreeMap<(&'static str, String), usize>,
}

impl Merged {
    /// The name without folder and extension, as records have it.
    pub fn title(&self) -> String {
        title(&self.name)
    }

    /// Returns the base, or the kernel, that a number is inherited from; `None` if the profile's
    /// own file has it.
    pub fn inherited_from(&self, section: &str, key: &str) -> Option<&str> {
        let mut inherited = self.inherited.iter();
        let found = inherited.find(|((of, name), _)| *of == section && name == key);
        found.map(|(_, &base)| self.bases.get(base).unwrap_or(&self.kernel).as_str())
    }

    /// Returns the file that has a number, for messages.
    pub fn file_of(&self, section: &str, key: &str) -> &str {
        self.inherited_from(section, key).unwrap_or(&self.name)
    }

    /// Adds the numbers that are missing, of the base at `place`.
    fn inherit(&mut self, place: usize, mut base: ProfileFile) {
        // A nearer file has an operation's time, or the number of its instructions.
        for (section, numbers) in self.file.sections() {
            for (other, key) in numbers.keys().filter_map(|key| other_key(section, key)) {
                base.sections_mut()
                    .filter(|(of, _)| *of == other)
                    .for_each(|(_, of_base)| _ = of_base.remove(&key));
            }
        }
        for ((section, numbers), (_, of_base)) in self.file.sections_mut().zip(base.sections()) {
            for (key, number) in of_base {
                if !numbers.contains_key(key) {
                    numbers.insert(key.clone(), number.clone());
                    self.inherited.insert((section, key.clone()), place);
                }
            }
        }
    }

    /// Returns the profile on another kernel, with its instructions in place of those that come
    /// from the kernel now.
    pub(super) fn with_kernel(&self, name: &str, numbers: &Section) -> Self {
        let mut other = self.clone();
        let place = other.bases.len();
        name.clone_into(&mut other.kernel);
        for (key, number) in &mut other.file.instructions {
            let from = other.inherited.get(&("instructions", key.clone()));
            if from == Some(&place)
                && let Some(of_kernel) = numbers.get(key)
            {
                *number = of_kernel.clone();
            }
        }
        other
    }
}

/// The name of a profile in records: a path without folder and extension, or a name as it is.
pub(super) fn title(name: &str) -> String {
    let file = name.contains('/') || name.ends_with(".toml");
    let stem = Path::new(name).file_stem().filter(|_| file);
    stem.map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// The location of a profile's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ProfileSource {
    /// Built into the program, under this name.
    BuiltIn(String),
    /// In a file.
    File(PathBuf),
    /// In memory.
    Memory,
}

impl ProfileSource {
    /// Returns the location for a name or a path. A relative path begins at `folder`.
    pub(super) fn of(
        profiles: &Profiles,
        name_or_path: &Path,
        folder: &Path,
    ) -> Result<Self, ProfileError> {
        let shown = name_or_path.to_string_lossy();
        if profiles.text(&shown).is_some() {
            return Ok(Self::BuiltIn(shown.into_owned()));
        }
        if shown.contains('/') || shown.ends_with(".toml") {
            let of_base = !folder.as_os_str().is_empty();
            let here = name_or_path.strip_prefix("./").ok().filter(|_| of_base);
            return Ok(Self::File(folder.join(here.unwrap_or(name_or_path))));
        }
        Err(profiles.unknown(&shown))
    }

    /// Returns the folder at which relative paths of bases begin.
    fn folder(&self) -> &Path {
        match self {
            Self::File(path) => path.parent().unwrap_or(Path::new("")),
            Self::BuiltIn(_) | Self::Memory => Path::new(""),
        }
    }

    /// Returns the name for messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::BuiltIn(name) => name.clone(),
            Self::File(path) => path.to_string_lossy().into_owned(),
            Self::Memory => String::new(),
        }
    }

    /// Reads the file without its bases.
    pub(super) fn file(&self, profiles: &Profiles) -> Result<ProfileFile, ProfileError> {
        let shown = self.shown();
        match self {
            Self::BuiltIn(name) => parse(name, profiles.text(name).unwrap_or_default()),
            Self::File(path) => match read(path) {
                Ok(text) => parse(&shown, &text),
                Err(error) => Err(ProfileError::Read { file: shown, reason: error.to_string() }),
            },
            Self::Memory => Err(profiles.unknown(&shown)),
        }
    }

    /// Whether both are the same location, even if their paths differ.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(other)) => {
                let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
                real(one) == real(other)
            }
            _ => self == other,
        }
    }
}

/// Merges `file`, which is at `place`, with its bases. The nearer file's number wins.
pub(super) fn merge(
    profiles: &Profiles,
    name: &str,
    file: ProfileFile,
    place: ProfileSource,
) -> Result<Merged, ProfileError> {
    let name = name.to_owned();
    let own = !matches!(place, ProfileSource::BuiltIn(_));
    let (kernel, inherited) = (String::new(), BTreeMap::new());
    let mut merged = Merged { name, file, own, bases: Vec::new(), kernel, inherited };
    let mut places = vec![place];
    let mut next = merged.file.base.take();
    while let Some(base) = next {
        let of = |bases: &[String]| bases.last().unwrap_or(&merged.name).clone();
        let file = of(&merged.bases);
        let wrong = |why| ProfileError::Base { file: file.clone(), why: Box::new(why) };
        let folder = places[places.len() - 1].folder().to_owned();
        let place = ProfileSource::of(profiles, Path::new(&base), &folder).map_err(wrong)?;
        let chain = || {
            let names = [&merged.name].into_iter().chain(&merged.bases).cloned();
            names.chain([place.shown()]).collect::<Vec<_>>().join(" -> ")
        };
        if places.iter().any(|before| before.is(&place)) {
            return Err(ProfileError::Circle { file, chain: chain() });
        }
        if places.len() == MAX_FILES {
            return Err(ProfileError::Deep { file, max: MAX_FILES, chain: chain() });
        }
        let mut layer = place.file(profiles).map_err(wrong)?;
        next = layer.base.take();
        merged.bases.push(place.shown());
        merged.inherit(merged.bases.len() - 1, layer);
        places.push(place);
    }
    let (name, instructions) = kernels::usual();
    let kernel = ProfileFile { instructions, ..ProfileFile::default() };
    name.clone_into(&mut merged.kernel);
    merged.inherit(merged.bases.len(), kernel);
    Ok(merged)
}
