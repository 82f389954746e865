//! Tests of the command line's output: `cmd/*.md`.

mod fake;

#[test]
fn commands_answer_as_written_down() {
    trycmd::TestCases::new().register_bin("fake", fake::path()).case("tests/cmd/*.md");
}
