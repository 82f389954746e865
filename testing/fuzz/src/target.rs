//! The interface of a target.

use crate::call::Calls;
use crate::outcome::Outcome;
use crate::random::Random;

/// The file of a case.
pub(crate) struct Input {
    /// The end of its name.
    pub(crate) extension: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// A kind of input, with the code of the project that reads it.
pub(crate) trait Target {
    /// Returns the input of a case.
    fn input(&self, random: &mut Random) -> Input;
    /// Reads an input as a command does.
    fn check(&self, calls: &Calls, input: &Input, random: &mut Random) -> Outcome;
}
