//! The command line as its users see it: `cmd/*.md`.

mod fake;

#[test]
fn commands_answer_as_written_down() {
    trycmd::TestCases::new().register_bin("fake", fake::path()).case("tests/cmd/*.md");
}
