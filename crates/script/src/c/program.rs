//! The whole program: its head, the tasks, and what starts and measures them.

use super::emit::{Emitter, Ending};
use super::helpers::{self, Facts, Helper};
use super::layout::Layout;
use super::lower::{self, Done, Lowered};
use super::main_part;
use super::symbols::of_macro;
use super::text::{Lines, filled, plain};
use super::tree::{Calls, Expr, Group, ONE, What, ZERO, walk};
use super::{ProgramSpec, names, sizes};
use crate::ast::{Binary, On, Tree, Unit};
use crate::error::wrong;
use crate::run::binary;
use mmscale_system::Backing;
use std::fmt::Write as _;

/// The most statements of a program: more than a reader of a mail reads. Analyses take time that
/// grows with the square of it.
const MAX_STATEMENTS: usize = 2000;

/// Writes the program of a script.
pub(super) fn program(
    tree: &Tree,
    text: &str,
    layout: Layout,
    how: &ProgramSpec<'_>,
) -> Done<String> {
    let mut script = lower::lower(tree, text)?;
    script.groups.retain(|group| value(&group.amount, how.params) != Some(0));
    if script.groups.is_empty() {
        return wrong(0, "no process starts with these parameters");
    }
    let mut statements = 0;
    script.groups.iter().for_each(|group| walk(&group.body, &mut |_| statements += 1));
    if statements > MAX_STATEMENTS {
        return wrong(
            0,
            format!("{statements} statements; at most {MAX_STATEMENTS} are written in C"),
        );
    }
    sizes::resolve(&mut script);
    let mut params: Vec<String> = Vec::new();
    for param in &tree.params {
        params.push(names::of_parameter(&param.name.text, &params));
    }
    let mut emitter = Emitter::new(&script, params, how.params, layout);
    let mut functions = Vec::new();
    for group in &script.groups {
        let function = group_function(&mut emitter, group)?;
        functions.append(&mut emitter.threads);
        functions.push(function);
    }
    emitter.need(Helper::Fork);
    let starter = starter(&mut emitter, &script)?;
    let macros = defined(&emitter, tree);
    helpers::complete(&mut emitter.needs);
    let mut kills = false;
    for group in &script.groups {
        walk(&group.body, &mut |what| {
            kills |= matches!(what, What::Call(call) if matches!(call.what, Calls::Kill(_)));
        });
    }
    let facts = Facts { needs: &emitter.needs, kills };
    let mut out = head(tree, text, how);
    out.push_str(&includes(facts, emitter.has_threads()));
    out.push_str(&constants(facts, &format!("{macros}{}", functions.concat())));
    out.push_str(&macros);
    out.push_str(&main_part::shared(facts));
    out.push_str(&helpers::variables(facts));
    for (var, ..) in &script.files {
        let name = emitter.name(*var);
        _ = writeln!(out, "static int {name};");
    }
    out.push('\n');
    out.push_str(main_part::PIN);
    for helper in &emitter.needs {
        let function = helpers::function(*helper, facts);
        if !function.is_empty() {
            out.push('\n');
            out.push_str(&function);
        }
    }
    out.push_str(main_part::TASKS);
    functions.iter().for_each(|function| _ = write!(out, "\n{function}"));
    out.push_str(main_part::MEASURE);
    out.push_str(&main_part::usage(facts.needs.contains(&Helper::Random)));
    out.push_str(&main_part::main(facts, &starter));
    Ok(out)
}

/// Returns the value of an expression of numbers and parameters; with CPUs of one CPU.
pub(super) fn value(expr: &Expr, params: &[i64]) -> Option<i64> {
    match expr {
        Expr::Literal(value, _) => Some(*value),
        Expr::Param(nth) => params.get(*nth).copied(),
        Expr::Cpus => Some(1),
        Expr::Binary(how, sides) => {
            binary(*how, value(&sides[0], params)?, value(&sides[1], params)?).ok()
        }
        Expr::Pick(larger, sides) => {
            let (a, b) = (value(&sides[0], params)?, value(&sides[1], params)?);
            Some(if *larger { a.max(b) } else { a.min(b) })
        }
        _ => None,
    }
}

/// Returns the amount of a group, with a computed number in place of an expression of parameters.
fn amount(group: &Group, params: &[i64]) -> Expr {
    let short = |expr: &Expr| match expr {
        Expr::Binary(..) | Expr::Pick(..) => value(expr, params)
            .map_or_else(|| expr.clone(), |value| Expr::Literal(value, Unit::One)),
        other => other.clone(),
    };
    match &group.amount {
        Expr::Binary(Binary::Multiply, sides) if sides[1] == Expr::Cpus => {
            Expr::binary(Binary::Multiply, short(&sides[0]), Expr::Cpus)
        }
        Expr::Cpus => Expr::Cpus,
        other if other.any(&mut |part| *part == Expr::Cpus) => other.clone(),
        other => short(other),
    }
}

/// Returns the name of the function of a group. Another name than that of the group alone cannot be
/// one of the C library.
fn task_name(group: &Group) -> String {
    format!("{}_task", group.name)
}

fn group_function(emitter: &mut Emitter<'_>, group: &Group) -> Done<String> {
    let name = task_name(group);
    emitter.function.clone_from(&name);
    emitter.ending = Ending::Group;
    emitter.told = false;
    emitter.leaves = super::task::leaves(&group.body);
    emitter.undeclared = emitter.owned(&group.body, group.owner);
    emitter.undeclared.remove(&group.id);
    let mut body = Lines::at(1);
    emitter.block(&group.body, &mut body)?;
    if emitter.leaves != (false, false) {
        emitter.end(&mut body);
    }
    let body = body.into_text();
    let body = body.strip_suffix("\treturn;\n").unwrap_or(&body);
    let given = if emitter.is_read(group.id) { "long id" } else { "void" };
    Ok(format!("static void {name}({given})\n{{\n{body}}}\n"))
}

/// Whether the program chooses the CPU.
fn is_placed(group: &Group) -> bool {
    !group.per_cpu && group.on.as_ref().is_none_or(|on| on.cpu().is_none())
}

/// Writes the creation of the files of the script.
fn files(emitter: &mut Emitter<'_>, script: &Lowered, out: &mut Lines) {
    for (file, size, backing) in &script.files {
        let (helper, function) = match backing {
            Backing::Memory => (Helper::Memfd, "new_file"),
            Backing::Disk => (Helper::DiskFile, "new_file_on_disk"),
        };
        emitter.need(helper);
        let size = emitter.expr(size);
        out.line(&format!("{} = {function}({size});", emitter.name(*file)));
    }
}

/// Returns the part of `main` that starts the tasks.
fn starter(emitter: &mut Emitter<'_>, script: &Lowered) -> Done<String> {
    let mut out = Lines::at(1);
    files(emitter, script, &mut out);
    let mut ready = ZERO;
    let several = script.groups.iter().filter(|group| is_placed(group)).count() > 1;
    if several {
        out.line("placed = 0;");
    }
    for group in &script.groups {
        let amount = amount(group, emitter.values);
        let each = emitter.starts(&group.body)?;
        let all = Expr::binary(Binary::Multiply, amount.clone(), each);
        ready = Expr::binary(Binary::Add, ready, all);
        let id = emitter.name(group.id);
        let single = amount == ONE;
        let cpu = match &group.on {
            Some(On::Order(order)) => {
                let nth = match several {
                    true => "placed++",
                    false if single => "0",
                    false => id.as_str(),
                };
                emitter.next(*order, nth)
            }
            Some(On::Cpu(on)) => {
                let mut on = on.clone();
                // The only one has the number 0, and no variable for it.
                sizes::visit(&mut on, &mut |part| {
                    if single && *part == Expr::Var(group.id) {
                        *part = ZERO;
                    }
                });
                emitter.expr(&on)
            }
            None if group.per_cpu && amount == Expr::Cpus => id.clone(),
            None if several && !group.per_cpu => "placed++ % cpus".to_owned(),
            None if single => "0".to_owned(),
            None => format!("{id} % cpus"),
        };
        let count = emitter.expr(&amount);
        let argument = if emitter.is_read(group.id) { id.clone() } else { String::new() };
        let argument = if single && !argument.is_empty() { "0".to_owned() } else { argument };
        if !single {
            out.line(&format!("for (long {id} = 0; {id} < {count}; {id}++) {{"));
            out.indent += 1;
        }
        out.line(&format!("if (!start_child({cpu})) {{"));
        out.indent += 1;
        if let Some(priority) = &group.priority {
            emitter.need(Helper::Realtime);
            let line = format!("realtime({});", emitter.expr(priority));
            out.line(&line);
        }
        out.line(&format!("{}({argument});", task_name(group)));
        out.line("_exit(0);");
        out.indent -= 1;
        out.line("}");
        out.line("running++;");
        if !single {
            out.indent -= 1;
            out.line("}");
        }
    }
    let ready = emitter.expr(&ready);
    out.line(&format!("while (running && shared->ready < {ready})"));
    Ok(out.into_text())
}

/// Returns the comment at the top: the question, the command, and the script.
fn head(tree: &Tree, text: &str, how: &ProgramSpec<'_>) -> String {
    let mut out = String::from("// SPDX-License-Identifier: MIT OR Apache-2.0\n/*\n");
    let summary = tree.summary.as_ref().map(|summary| format!(": {}", summary.text));
    let title = format!("{}{}", how.name, summary.unwrap_or_default());
    for line in filled(&plain(&title), 76) {
        _ = writeln!(out, " * {line}");
    }
    let from = format!("Written by `{}` from this script:", how.written_by);
    out.push_str(" *\n");
    for line in filled(&plain(&from), 76) {
        _ = writeln!(out, " * {line}");
    }
    out.push_str(" *\n");
    for line in text.lines() {
        let line = format!(" *   {}", plain(line));
        _ = writeln!(out, "{}", line.trim_end());
    }
    out.push_str(" */\n");
    out
}

fn includes(facts: Facts<'_>, threads: bool) -> String {
    let mut names = vec![
        "err.h",
        "sched.h",
        "signal.h",
        "stdio.h",
        "stdlib.h",
        "sys/mman.h",
        "sys/prctl.h",
        "sys/wait.h",
        "time.h",
        "unistd.h",
    ];
    let has = |helper| facts.needs.contains(&helper);
    if threads {
        names.extend(["errno.h", "pthread.h", "string.h"]);
    }
    if has(Helper::Mbind) {
        names.extend(["linux/mempolicy.h"]);
    }
    if has(Helper::DiskFile) {
        names.extend(["fcntl.h", "linux/magic.h", "sys/vfs.h"]);
    }
    if has(Helper::Fadvise) {
        names.extend(["errno.h", "fcntl.h"]);
    }
    if has(Helper::Mbind) || has(Helper::Syscalls) {
        names.push("sys/syscall.h");
    }
    names.sort_unstable();
    names.dedup();
    let mut text = String::from("#define _GNU_SOURCE\n");
    names.iter().for_each(|name| _ = writeln!(text, "#include <{name}>"));
    text.push('\n');
    text
}

/// Returns the definitions of constants that `text` has, and of what older headers lack.
fn constants(facts: Facts<'_>, text: &str) -> String {
    let mut out = String::from("#define PAGE\t\t4096L\n#define MAX_CPUS\t8192\n");
    for (name, value) in
        [("NSEC_PER_USEC", "1000L"), ("NSEC_PER_MSEC", "1000000L"), ("NSEC_PER_SEC", "1000000000L")]
    {
        if text.contains(name) {
            _ = writeln!(out, "#define {name}\t{value}");
        }
    }
    if text.contains("DIV_ROUND_UP") {
        out.push_str("#define DIV_ROUND_UP(n, d)\t(((n) + (d) - 1) / (d))\n");
    }
    for (name, value) in super::call::NEWER {
        if text.contains(name) {
            _ = write!(out, "#ifndef {name}\n#define {name}\t{value}\n#endif\n");
        }
    }
    if facts.needs.contains(&Helper::Syscalls) {
        out.push_str("#ifndef SYS_process_mrelease\n#define SYS_process_mrelease\t448\n#endif\n");
    }
    out.push('\n');
    out
}

/// Returns the definitions of the parameters.
fn defined(emitter: &Emitter<'_>, tree: &Tree) -> String {
    let mut text = String::new();
    for nth in &emitter.used {
        let (name, param) = (&emitter.params[*nth], &tree.params[*nth]);
        let value = of_macro(emitter.values[*nth], param.default.unit);
        let tabs = if name.len() < 8 { "\t\t" } else { "\t" };
        let help = plain(&param.help);
        let width = name.len().div_ceil(8) * 8 + 16 + value.len() + help.len() + 14;
        if width > 80 {
            let mut comment = Lines::at(0);
            comment.comment(&help);
            _ = writeln!(text, "{}#define {name}{tabs}{value}", comment.into_text());
        } else {
            _ = writeln!(text, "#define {name}{tabs}{value}\t/* {help} */");
        }
    }
    if !emitter.used.is_empty() {
        text.push('\n');
    }
    text
}
