//! Man pages and shell completions of all commands. `cargo xtask pages` writes them to
//! `packaging/`.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use clap::CommandFactory;
use clap_complete::Shell;

use super::Args;

/// Writes the files to `packaging/`, in place of older ones.
fn write(files: &BTreeMap<String, String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let _ = fs::remove_dir_all(&folder);
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
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
fn every_command_has_a_page_with_its_options() {
    let files = files();
    assert!(files["man/mmscale.1"].contains("mmscale"));
    assert!(files["man/mmscale-sweep.1"].contains("\\-\\-jobs"));
    assert!(files.contains_key("man/mmscale-profile-new.1"));
    assert!(files["man/mmscale-profile-fit.1"].contains("\\-\\-rate"));
    assert!(files.contains_key("man/mmscale-live-ab.1"));
    assert!(files["completions/mmscale.bash"].contains("--fail-on-regression"));
    if env::var_os("MMSCALE_PAGES").is_some() {
        write(&files);
    }
}
