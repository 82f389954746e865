//! Tests of the language, one program.

mod errors;
mod fake;
mod fuzz;
mod language;
