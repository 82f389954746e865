//! The kind of a number's source.

/// The kind of a number's source. It is determined by the first words of `source`, which only this
/// module reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// `measured ..` or `measured: ..`.
    Measured,
    /// Anything else that is named: a paper, a data sheet, a mailing list, the machine itself.
    Published,
    /// `derived from ..` or `fitted to ..`: computed from a measured or published sum, which the
    /// source names.
    Derived,
    /// `assumption: ..`.
    Assumed,
    /// `not used, ..`: nothing on this machine costs it.
    Unused,
}

/// First words that resemble one of the forms. A source that begins with one of them and matches no
/// form is refused, so that an assumption never counts as published.
const ALIKE: [&str; 16] = [
    "measured",
    "measurement",
    "measure",
    "derived",
    "fitted",
    "assumption",
    "assumptions",
    "assumed",
    "assume",
    "assuming",
    "guess",
    "guessed",
    "estimate",
    "estimated",
    "unused",
    "not",
];

/// Beginnings that mark a copied number. The source of the original follows.
const COPIED: [&str; 2] = ["not measured here; ", "not measured there; "];

impl Basis {
    /// All kinds, from the best known to the least known.
    pub const ALL: [Self; 5] =
        [Self::Measured, Self::Published, Self::Derived, Self::Assumed, Self::Unused];

    /// The printed name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Published => "published",
            Self::Derived => "derived",
            Self::Assumed => "assumed",
            Self::Unused => "unused",
        }
    }

    /// Determines the kind of a source. The error says what is wrong and what to write.
    pub fn of(source: &str) -> Result<Self, String> {
        let source = source.trim();
        if source.is_empty() {
            let what = "has no source; say where the number comes from, or `assumption: ...`";
            return Err(what.to_owned());
        }
        let original = COPIED.iter().find_map(|copied| source.strip_prefix(copied));
        let original = original.unwrap_or(source);
        let starts = |form: &str| original.len() > form.len() && original.starts_with(form);
        let forms = [
            ("measured ", Self::Measured),
            ("measured: ", Self::Measured),
            ("derived from ", Self::Derived),
            ("fitted to ", Self::Derived),
            ("assumption: ", Self::Assumed),
            ("not used, ", Self::Unused),
        ];
        if let Some((_, basis)) = forms.into_iter().find(|(form, _)| starts(form)) {
            return Ok(basis);
        }
        let first = original.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        if ALIKE.iter().any(|alike| first.eq_ignore_ascii_case(alike)) {
            return Err(format!(
                "has the source `{source}`, whose kind is unclear; begin it with `measured: `, \
                 `derived from `, `assumption: `, `not used, ` or the name of a publication"
            ));
        }
        Ok(Self::Published)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_words_say_the_kind() {
        for (source, basis) in [
            ("measured on a guest: 8.7 ns an add", Basis::Measured),
            ("measured: core-to-core CSV x.csv (3 pairs)", Basis::Measured),
            ("derived from llfree-bench: 1.59 us a fault", Basis::Derived),
            ("fitted to llfree-bench at 8 cores", Basis::Derived),
            ("assumption: as on x86", Basis::Assumed),
            ("not used, one node; core-to-core-latency CSVs", Basis::Unused),
            ("not measured here; assumption: as on x86", Basis::Assumed),
            ("not measured there; measured on a guest", Basis::Measured),
            ("LZ4's README: 385 MB/s; assumption that it holds here", Basis::Published),
            ("this processor has none", Basis::Published),
        ] {
            assert_eq!(Basis::of(source), Ok(basis), "{source}");
        }
    }

    #[test]
    fn what_only_looks_like_a_kind_is_refused() {
        for source in [
            "assumed: as on x86",
            "Assumption: x",
            "assumption",
            "Measured, once",
            "derived by hand",
            "unused",
            "not x",
        ] {
            let why = Basis::of(source).unwrap_err();
            assert!(why.contains(source) && why.contains("`assumption: `"), "{why}");
        }
        assert!(Basis::of("assumption: ").unwrap_err().contains("whose kind is unclear"));
        assert!(Basis::of(" ").unwrap_err().contains("has no source"));
    }
}
