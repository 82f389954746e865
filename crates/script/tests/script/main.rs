//! Tests of the language, one program.

mod c;
mod errors;
mod fake;
mod fuzz;
mod language;
