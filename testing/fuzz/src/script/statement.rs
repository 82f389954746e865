//! Statements of random scripts.

use super::text::{Kind, Text};
use Kind::{File, Memory, Number, Pidfd, Process, Size, Thread, Time};

/// Calls that have no value: name, types of arguments, flags.
const CALLS: &[(&str, &[Kind], &[&str])] = &[
    ("munmap", &[Memory], &[]),
    ("mprotect", &[Memory], &["NONE", "READ", "WRITE", "PROT_READ"]),
    ("madvise", &[Memory], ADVICE),
    ("mlock", &[Memory], &["", "ONFAULT"]),
    ("munlock", &[Memory], &[]),
    ("mbind", &[Memory, Number], &["", "MOVE", "MOVE_ALL"]),
    ("write", &[Memory], &[]),
    ("read", &[Memory], &[]),
    ("check", &[Memory], &[]),
    ("write", &[Memory], &[]),
    ("sleep", &[Time], &[]),
    ("compute", &[Time], &[]),
    ("cpu_offline", &[Number], &[]),
    ("cpu_online", &[Number], &[]),
    ("close", &[File], &[]),
    ("close", &[Pidfd], &[]),
    ("wait", &[Process], &[]),
    ("wait", &[], &[]),
    ("join", &[Thread], &[]),
    ("join", &[], &[]),
    ("kill", &[Process], &[]),
    ("process_mrelease", &[Pidfd], &[]),
    ("oom_score_adj", &[Process, Number], &[]),
    ("mmap", &[Memory], &["", "POPULATE", "LOCKED", "FIXED_NOREPLACE"]),
    ("mmap", &[Memory, File], &["SHARED", "PRIVATE"]),
];

const ADVICE: &[&str] = &[
    "DONTNEED",
    "FREE",
    "COLD",
    "PAGEOUT",
    "POPULATE_READ",
    "POPULATE_WRITE",
    "WILLNEED",
    "COLLAPSE",
    "HUGEPAGE",
    "NOHUGEPAGE",
    "DONTFORK",
    "DOFORK",
    "WIPEONFORK",
    "KEEPONFORK",
    "NORMAL",
    "RANDOM",
    "SEQUENTIAL",
    "MERGEABLE",
    "UNMERGEABLE",
    "DONTDUMP",
    "MADV_DODUMP",
];

/// Calls with a value: name, arguments, flags, type of the value.
const VALUES: &[(&str, &[Kind], &[&str], Kind)] = &[
    ("mmap", &[Size], &["", "POPULATE", "LOCKED", "PROT_READ", "NONE", "MAP_POPULATE"], Memory),
    ("mmap", &[Size], &["", "POPULATE"], Memory),
    ("mmap", &[File], &["SHARED", "PRIVATE", "SHARED, POPULATE"], Memory),
    ("mremap", &[Memory, Size], &["", "NOMOVE", "MAYMOVE", "DONTUNMAP"], Memory),
    ("mremap", &[Memory, Size, Memory], &[""], Memory),
    ("memfd_create", &[Size], &[""], File),
    ("pidfd_open", &[Process], &[""], Pidfd),
    ("mincore", &[Memory], &[""], Number),
];

impl Text<'_> {
    /// Writes a statement with blocks.
    pub(super) fn nested(&mut self) {
        match self.random.below(11) {
            0..=2 => self.loops(),
            3 => {
                let condition = self.value(Number, 2);
                let word = self.word("while");
                self.put(&format!("{word} {condition}"));
                self.in_loop();
            }
            4 | 5 => self.branches(),
            6 => self.choose(),
            7 => {
                let word = self.word("threads");
                self.put(&word);
                self.amount();
                self.attributes();
                self.names.push(("id".to_owned(), Number));
                self.task_body(false);
                self.names.pop();
            }
            _ => self.task(),
        }
    }

    fn loops(&mut self) {
        if self.random.percent(30) {
            let (name, from, to) = (self.fresh(), self.value(Number, 1), self.value(Number, 1));
            let word = self.word("in");
            self.put(&format!("for {name} {word} {from}..{to}"));
            self.names.push((name, Number));
            self.in_loop();
            return;
        }
        let word = self.word("loop");
        self.put(&word);
        let limit = match self.random.below(3) {
            // Statements behind an endless loop are for the end of the run.
            0 => String::new(),
            1 => self.value(Number, 2),
            _ => self.value(Time, 2),
        };
        self.put(&limit);
        self.in_loop();
    }
    fn in_loop(&mut self) {
        self.loops += 1;
        self.block();
        self.loops -= 1;
    }
    fn branches(&mut self) {
        let condition = self.value(Number, 2);
        self.put(&format!("if {condition}"));
        self.block();
        while self.random.percent(25) {
            let condition = self.value(Number, 2);
            self.put(&format!("else if {condition}"));
            self.block();
        }
        if self.random.percent(40) {
            let word = self.word("else");
            self.put(&word);
            self.block();
        }
    }
    fn choose(&mut self) {
        let word = self.word("choose");
        self.put(&format!("{word} {{"));
        for _ in 0..1 + self.random.few(3) {
            let weight = self.value(Number, 1);
            self.put(&format!("{weight}:"));
            self.block();
        }
        self.put("}");
    }

    /// Writes a task with its body.
    fn task(&mut self) {
        let (word, kind) =
            [("fork", Process), ("process", Process), ("thread", Thread)][self.random.below(3)];
        let mut named = None;
        if self.random.percent(15) {
            self.put("try");
        }
        if self.random.percent(60) {
            let name = self.variable(kind).filter(|_| self.random.percent(30));
            let name = name.filter(|name| self.changes(name));
            let name = name.unwrap_or_else(|| self.fresh());
            self.put(&format!("{name} ="));
            named = Some((name, kind));
        }
        let spelt = self.word(word);
        self.put(&spelt);
        self.attributes();
        self.task_body(word == "process");
        self.names.extend(named);
    }
    /// Writes the body of a task, which is in no loop, and to which some variables mean nothing.
    fn task_body(&mut self, is_new: bool) {
        let (kept, loops) = (self.names.clone(), std::mem::take(&mut self.loops));
        if is_new {
            self.names.retain(|(_, kind)| matches!(kind, Number | Size | Time | Process));
        }
        self.block();
        self.names = kept;
        self.loops = loops;
    }

    /// Writes a statement without blocks.
    pub(super) fn simple(&mut self) {
        match self.random.below(20) {
            0 => self.put("start"),
            1 => self.put("count"),
            2 => {
                let number = self.value(Number, 2);
                self.put(&format!("count {number}"));
            }
            3 if self.loops > 0 || self.slip() => {
                let word = self.random.one_of(&["break", "continue"]).to_owned();
                self.put(&word);
            }
            4 if self.random.percent(20) => self.put("return"),
            5 | 6 => self.assignment(),
            7 => match self.program() {
                Some(name) => self.put(&format!("{name}()")),
                None => self.put("sleep(1us)"),
            },
            8..=12 => {
                let (name, args, flags, kind) = VALUES[self.random.below(VALUES.len())];
                if !self.has(args) {
                    return;
                }
                let call = self.call(name, args, flags);
                let name = self.fresh();
                let attempt = if self.random.percent(20) { "try " } else { "" };
                self.put(&format!("{attempt}{name} = {call}"));
                // A call that failed has set nothing.
                if attempt.is_empty() {
                    self.names.push((name, kind));
                }
            }
            _ => {
                let (name, args, flags) = CALLS[self.random.below(CALLS.len())];
                if !self.has(args) {
                    return;
                }
                let call = self.call(name, args, flags);
                let attempt = if self.random.percent(50) { "try " } else { "" };
                self.put(&format!("{attempt}{call}"));
            }
        }
        self.end();
    }

    /// Whether there is a task for each argument that is one.
    fn has(&self, args: &[Kind]) -> bool {
        let is_task = |kind: &&Kind| matches!(kind, Process | Thread | Pidfd);
        let there = |kind: &Kind| self.names.iter().any(|(_, of)| of == kind);
        args.iter().filter(is_task).all(there)
    }

    fn assignment(&mut self) {
        let kind = [Number, Number, Size, Time, Memory][self.random.below(5)];
        let value = self.value(kind, 3);
        match self.variable(kind).filter(|name| self.changes(name)) {
            Some(name) if self.random.percent(50) => {
                let change =
                    if kind == Memory { "=" } else { self.random.one_of(&["+=", "-=", "="]) };
                self.put(&format!("{name} {change} {value}"));
            }
            _ => {
                let name = self.fresh();
                self.put(&format!("{name} = {value}"));
                self.names.push((name, kind));
            }
        }
    }

    /// Whether a name is one of a variable that can be changed.
    fn changes(&mut self, name: &str) -> bool {
        // A process that is not forked lacks some of the parameters and files.
        let is_own = self.names.iter().skip(self.constants).any(|(own, _)| own == name);
        name != "id" && is_own || self.slip()
    }

    fn call(&mut self, name: &str, args: &[Kind], flags: &[&str]) -> String {
        let mut all: Vec<String> = args.iter().map(|kind| self.value(*kind, 2)).collect();
        if !flags.is_empty() {
            let flag = self.random.one_of(flags).to_owned();
            all.extend((!flag.is_empty()).then(|| self.word(&flag)));
        }
        if self.slip() {
            match self.random.below(3) {
                0 => _ = all.pop(),
                1 => all.push(self.value(Number, 1)),
                _ => all.reverse(),
            }
        }
        format!("{}({})", self.word(name), all.join(", "))
    }
}
