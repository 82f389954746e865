//! The result of a case, and the line in which a worker reports it.

use std::fmt;

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The input was valid, and the output is fine.
    Accepted,
    /// The input was refused with this error.
    Refused(String),
    /// Something that must not happen.
    Wrong(String),
}

impl Outcome {
    /// Returns the worse of two outcomes.
    pub(crate) fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Wrong(_) => self,
            Self::Accepted => other(),
            Self::Refused(_) => match other() {
                Self::Accepted => self,
                other => other,
            },
        }
    }
}

/// Longest text of a line.
const LONGEST: usize = 600;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |what: &str| what.escape_debug().take(LONGEST).collect::<String>();
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::Refused(why) => write!(f, "refused {}", shown(why)),
            Self::Wrong(what) => write!(f, "wrong {}", shown(what)),
        }
    }
}

impl Outcome {
    /// Reads what [`fmt::Display`] writes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text.split_once(' ') {
            Some(("refused", why)) => Some(Self::Refused(why.to_owned())),
            Some(("wrong", what)) => Some(Self::Wrong(what.to_owned())),
            _ => (text == "accepted").then_some(Self::Accepted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{self, Accepted, Refused, Wrong};

    #[test]
    fn an_outcome_is_read_as_it_was_written() {
        for outcome in [Accepted, Refused("an error".to_owned()), Wrong("a panic".to_owned())] {
            assert_eq!(Outcome::read(&outcome.to_string()), Some(outcome));
        }
        assert_eq!(Wrong("a\nb".to_owned()).to_string(), "wrong a\\nb");
        assert_eq!(Outcome::read("fine"), None);
    }

    #[test]
    fn of_two_outcomes_the_worse_one_counts() {
        let (wrong, refused) = (|| Wrong(String::new()), || Refused(String::new()));
        assert_eq!(Accepted.and(refused), refused());
        assert_eq!(refused().and(|| Accepted), refused());
        assert_eq!(refused().and(wrong), wrong());
        assert_eq!(wrong().and(|| Accepted), wrong());
    }
}
