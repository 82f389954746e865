//! Man pages and shell completions of all commands, in `packaging/`. The files there are compared
//! with the commands; `cargo xtask pages` writes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::CommandFactory;
use clap_complete::Shell;

use super::Args;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// Returns the commands without the sources that the program was built from.
fn command() -> clap::Command {
    Args::command().version(env!("CARGO_PKG_VERSION"))
}

fn files() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let pages = tempfile::tempdir().unwrap();
    clap_mangen::generate_to(command(), pages.path()).unwrap();
    for page in fs::read_dir(pages.path()).unwrap() {
        let page = page.unwrap();
        let text = fs::read_to_string(page.path()).unwrap();
        // Editors remove spaces at the end of a line.
        let text = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        files.insert(format!("man/{}", page.file_name().to_string_lossy()), text);
    }
    let shells =
        [(Shell::Bash, "mmscale.bash"), (Shell::Zsh, "_mmscale"), (Shell::Fish, "mmscale.fish")];
    for (shell, name) in shells {
        let mut text = vec![];
        clap_complete::generate(shell, &mut command(), "mmscale", &mut text);
        files.insert(format!("completions/{name}"), String::from_utf8(text).unwrap());
    }
    files
}

#[test]
fn man_pages_and_completions_are_those_of_the_commands() {
    let (folder, files) = (folder(), files());
    if env::var_os("MMSCALE_UPDATE").is_some() {
        let _ = fs::remove_dir_all(&folder);
        for (name, text) in &files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    for (name, text) in &files {
        let found = fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(found == *text, "packaging/{name} is old: run `cargo xtask pages`");
    }
    let there = ["man", "completions"].iter().flat_map(|kind| fs::read_dir(folder.join(kind)));
    assert_eq!(
        there.flatten().count(),
        files.len(),
        "files of no command: run `cargo xtask pages`"
    );
}

#[test]
fn every_command_has_a_page_with_its_options() {
    let files = files();
    assert!(files["man/mmscale.1"].contains("mmscale"));
    assert!(files["man/mmscale-sweep.1"].contains("\\-\\-jobs"));
    assert!(files.contains_key("man/mmscale-profile-new.1"));
    assert!(files["completions/mmscale.bash"].contains("--fail-on-regression"));
}
