//! Tests of the command line's output: `cmd/*.md`, and the output that the README and pages show.

mod fake;

#[test]
fn commands_answer_as_written_down() {
    trycmd::TestCases::new()
        .register_bin("fake", fake::path())
        // Results that `robust` keeps.
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .case("tests/cmd/*.md");
}

#[test]
fn the_readme_shows_what_a_run_prints() {
    trycmd::TestCases::new().case("../../README.md");
}

#[test]
fn the_page_about_images_shows_what_is_kept() {
    trycmd::TestCases::new().case("../../docs/kernel-images.md");
}

#[test]
fn the_page_about_recordings_shows_what_commands_print() {
    trycmd::TestCases::new().case("../../docs/lift.md");
}

#[test]
fn the_page_about_waits_shows_what_runs_print() {
    trycmd::TestCases::new()
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .case("../../docs/who-waits.md");
}

#[test]
fn the_page_about_machines_shows_what_a_fit_prints() {
    trycmd::TestCases::new().case("../../docs/your-machine.md");
}
