//! `mmscale kernel reproduce`.

use anyhow::anyhow;
use mmscale_files::{Existing, Folder};
use mmscale_harness::{
    CallError, ProgramSpec, Registry, SCRIPT_SUFFIX, Settings, Study, script_values,
};

use crate::args::ReproduceArgs;
use crate::failure::Failure;
use crate::output;

/// The beginning of a comment that says what a script lacks of the study that it stands for.
const LACKS: &str = "// Not reproduced: ";

/// Writes the program of a script, or of the script that makes the calls of a study.
pub(super) fn reproduce(registry: &Registry, args: &ReproduceArgs) -> Result<(), Failure> {
    let study = registry.find(&args.study).map_err(CallError::from)?;
    let like = registry.script_like(&study).ok_or_else(|| without_script(registry, &study))?;
    let script = like.script().ok_or_else(|| without_script(registry, &study))?;
    let settings = Settings::parse(&args.set).map_err(CallError::from)?;
    let mut values = script_values(&like, &settings).map_err(CallError::from)?;
    let (Some(params), None) = (values.pop(), values.pop()) else {
        let what = "a program has one value of each parameter; give --set KEY=VALUE one value";
        return Err(Failure::Call(anyhow!(what)));
    };
    let set: String = args.set.iter().map(|set| format!(" --set {set}")).collect();
    let is_script = study.script().is_some();
    // A parameter of a script that stands for a study is none of the study.
    let given = if is_script { set.as_str() } else { "" };
    let simulated = [
        format!("mmscale run {}{given} --cpus 8", args.study),
        format!("mmscale run {}{given} --on live", args.study),
    ];
    let remarks: Vec<String> = script
        .text()
        .lines()
        .filter_map(|line| line.trim().strip_prefix(LACKS).map(str::to_owned))
        .collect();
    let spec = ProgramSpec {
        name: study.name(),
        params: &params,
        written_by: &format!("mmscale kernel reproduce {}{set}", args.study),
        simulated_by: &simulated,
        remarks: &remarks,
    };
    let program = script.reproduce(&spec).map_err(|why| {
        Failure::Call(anyhow!("cannot write `{}` as a program in C: {why}", args.study))
    })?;
    let folder = folder(args)?;
    let files = [
        ("repro.c", program.program.as_str()),
        ("Makefile", program.makefile),
        ("README", program.readme.as_str()),
    ];
    files.iter().try_for_each(|(name, _)| folder.free(name))?;
    let written = files.iter().map(|(name, text)| folder.write(name, text));
    let written = written.collect::<Result<Vec<_>, _>>()?;
    let path = args.output.display();
    output::tell(&format!(
        "wrote repro.c, Makefile, README to {path}; use it with: make -C {path} run"
    ));
    output::as_named(&written)
}

/// Opens the folder, which must be empty or not there.
fn folder(args: &ReproduceArgs) -> Result<Folder, Failure> {
    let path = &args.output;
    // What is no folder is reported by `Folder::open`.
    let names = Folder::only_read(path).and_then(|folder| folder.names(""));
    let is_own = |name: &String| name != "." && name != "..";
    let has_files = names.is_ok_and(|names| names.iter().any(is_own));
    let existing = output::existing(args.replace);
    if existing == Existing::Keep && has_files {
        return Err(Failure::Call(anyhow!(
            "cannot write to `{}`: the folder has files; give -o a new one, or replace repro.c, \
             Makefile and README with --replace",
            path.display()
        )));
    }
    Ok(Folder::open(path, existing)?)
}

/// Returns the error for a study whose calls no script makes.
fn without_script(registry: &Registry, study: &Study) -> Failure {
    let scripts: Vec<&str> = registry.scripts().map(Study::name).collect();
    let near = match &scripts[..] {
        [] => format!("write one: NAME{SCRIPT_SUFFIX}"),
        scripts => format!("scripts are {}", scripts.join(", ")),
    };
    let name = study.name();
    Failure::Call(anyhow!(
        "cannot write `{name}` as a program in C: its programs are Rust, and no script makes their \
         calls; {near}"
    ))
}
