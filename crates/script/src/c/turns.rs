//! The program of a script whose tasks take turns: one round of one task at any time, between marks
//! that an emulator recognises. It is as `mmscale_live::turns`, in a process of a few mappings.

use super::main_part::TASKS;

/// Functions that programs with turns have in addition.
const TURNS: &str = include_str!("turns.c");
/// The head of a loop, and that of a task's outermost one.
const LOOP: &str = "\n\twhile (!shared->stop)";
const EDGE: &str = "\n\twhile (turn())";
/// Statements that measure, after the start.
const MEASURES: &str = "\tnap(warmup);\n";
const PRINTS: &str = "\treturn print_turns();\n";

/// Returns a program with turns. `rounds` of each task count; without it their number follows the
/// operations of a round. `None` if no task has a loop of its own.
pub(super) fn with_turns(program: &str, rounds: Option<u64>) -> Option<String> {
    let (head, tasks) = program.split_once(TASKS)?;
    if !tasks.contains(LOOP) || !tasks.contains(MEASURES) {
        return None;
    }
    let tasks = tasks.replace(LOOP, EDGE).replace(MEASURES, PRINTS);
    let rounds = rounds.unwrap_or(0);
    Some(format!("{head}\n#define ROUNDS\t\t{rounds}L\n{TURNS}{TASKS}{tasks}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_loop_of_a_task_takes_turns() {
        let task = "\nstatic void one_task(void)\n{\n\twhile (!shared->stop) {\n\t\twhile \
                    (!shared->stop)\n\t\t\tcount(1);\n\t}\n}\n";
        let program = format!("head\n{TASKS}{task}main\n{MEASURES}rest");
        let turns = with_turns(&program, Some(7)).unwrap();
        assert!(turns.contains("\n\twhile (turn()) {\n\t\twhile (!shared->stop)\n"), "{turns}");
        assert!(turns.contains("#define ROUNDS\t\t7L") && !turns.contains(MEASURES), "{turns}");
        assert!(turns.find("int turn(void)").unwrap() < turns.find("one_task").unwrap());
        assert_eq!(with_turns(&program.replace(LOOP, "\n\tif (1)"), None), None);
    }
}
