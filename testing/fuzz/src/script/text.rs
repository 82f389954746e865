//! Random scripts, written along the grammar with the types of the language: valid ones, and ones
//! with a few errors, each at a random place of a random construct.

use crate::random::Random;

/// The types of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Number,
    Size,
    Time,
    Memory,
    File,
    Process,
    Thread,
    Pidfd,
}

use Kind::{File, Memory, Number, Pidfd, Process, Size, Thread, Time};

pub(super) const KINDS: [Kind; 8] = [Number, Size, Time, Memory, File, Process, Thread, Pidfd];

/// One in this many places has an error, if the script is to have some: early ones and late ones.
const PLACES: [usize; 4] = [20, 60, 200, 600];
/// Statements of a script.
const STATEMENTS: usize = 40;
/// Blocks in blocks.
const DEPTH: usize = 7;

/// A script that is being written.
pub(super) struct Text<'r> {
    pub(super) random: &'r mut Random,
    pub(super) out: String,
    /// The variables that a statement can use.
    pub(super) names: Vec<(String, Kind)>,
    /// Number of them that are parameters and files, which do not change.
    pub(super) constants: usize,
    /// Names of programs that can be used.
    programs: Vec<String>,
    /// Number of names so far, which makes them different.
    named: usize,
    /// Statements that may still be written.
    pub(super) left: usize,
    pub(super) depth: usize,
    pub(super) loops: usize,
    /// Errors that are still to be made.
    slips: usize,
    places: usize,
    /// Whether amounts are small, so that the script can be run.
    pub(super) small: bool,
}

/// Writes a script. `small`: with small amounts and without errors.
pub(super) fn script(random: &mut Random, small: bool) -> String {
    let slips = if small || random.percent(40) { 0 } else { 1 + random.few(4) };
    let places = random.pick(&PLACES);
    let left = 4 + random.few(STATEMENTS);
    let mut text = Text {
        random,
        out: String::new(),
        names: vec![],
        constants: 0,
        programs: vec![],
        named: 0,
        left,
        depth: 0,
        loops: 0,
        slips,
        places,
        small,
    };
    text.items();
    text.out
}

impl Text<'_> {
    /// Whether to make an error here.
    pub(super) fn slip(&mut self) -> bool {
        let slip = self.slips > 0 && self.random.below(self.places) == 0;
        self.slips -= usize::from(slip);
        slip
    }
    pub(super) fn put(&mut self, text: &str) {
        self.out.push_str(text);
        // A blank, a comment or nothing where a blank belongs.
        if self.slip() {
            self.out
                .push_str(self.random.one_of(&["/*", "//", "\"", "{", "}", ")", "#", "@", "é"]));
        }
        self.out.push_str(match self.random.below(60) {
            0 => "\n",
            1 => " /* a comment */ ",
            2 => " // another\n",
            _ => " ",
        });
    }
    /// Ends a statement.
    pub(super) fn end(&mut self) {
        if !self.slip() {
            self.out.push(';');
        }
        self.out.push('\n');
    }
    /// Returns a new name.
    pub(super) fn fresh(&mut self) -> String {
        self.named += 1;
        let name =
            format!("{}{}", self.random.one_of(&["a", "mem", "x_", "looped", "on_"]), self.named);
        if !self.slip() {
            return name;
        }
        let wrong = ["loop", "cpu", "id", "1x", "a-b", "mmap", "stock", "_", "process", "now"];
        self.random.one_of(&wrong).to_owned()
    }
    /// Returns a word, at times misspelt.
    pub(super) fn word(&mut self, word: &str) -> String {
        if !self.slip() {
            return word.to_owned();
        }
        let mut letters: Vec<char> = word.chars().collect();
        let at = self.random.below(letters.len());
        match self.random.below(4) {
            0 => drop(letters.remove(at)),
            1 => letters.insert(at, 'x'),
            2 => letters.insert(at, letters[at]),
            _ => letters = word.to_uppercase().chars().collect(),
        }
        letters.into_iter().collect()
    }

    fn items(&mut self) {
        if self.random.percent(50) {
            self.out.push_str("summary \"a question\";\n");
        }
        if self.random.percent(40) {
            self.machine();
        }
        if self.random.percent(50) {
            self.window();
        }
        for _ in 0..self.random.few(4) {
            self.param();
        }
        for _ in 0..self.random.few(3) {
            let name = self.fresh();
            let size = self.value(Size, 2);
            self.put(&format!("file {name} = {size}"));
            self.end();
            self.names.push((name, File));
        }
        for _ in 0..self.random.few(3) {
            self.arm();
        }
        let constants = self.names.clone();
        self.constants = constants.len();
        for _ in 0..self.random.few(3) {
            let name = self.fresh();
            self.put(&format!("program {name}"));
            if self.slip() {
                // A program that uses itself.
                self.programs.push(name.clone());
            }
            self.block();
            self.names.clone_from(&constants);
            self.programs.push(name);
        }
        for _ in 0..1 + self.random.few(3) {
            let name = self.fresh();
            let process = self.word("process");
            self.put(&format!("{process} {name}"));
            if self.random.percent(60) {
                self.amount();
            }
            self.attributes();
            self.names.push(("id".to_owned(), Number));
            self.body_of_process();
            self.names.clone_from(&constants);
        }
    }

    /// Writes a block that surely counts and uses a program.
    fn body_of_process(&mut self) {
        self.out.push_str("{\n");
        for program in std::mem::take(&mut self.programs) {
            self.out.push_str(&format!("{program}();\n"));
        }
        self.statements();
        self.out.push_str("start;\nloop {\n");
        self.loops += 1;
        self.statements();
        self.loops -= 1;
        self.out.push_str("sleep(1us); count;\n}\n");
        if !self.slip() {
            self.out.push_str("}\n");
        }
    }

    fn machine(&mut self) {
        let known = ["x86-2", "x86-16", "x86-512", "arm64-72", "arm64-480g-64k-72", "x86-26"];
        let name = self.random.one_of(&known).to_owned();
        let name = self.word(&name);
        self.put(&format!("profile \"{name}\""));
        if self.random.percent(60) {
            let cpus = 1 + self.random.few(64);
            let cpus = if self.slip() { self.literal(Number) } else { cpus.to_string() };
            self.put(&format!("cpus {cpus}"));
        }
        self.end();
    }

    fn window(&mut self) {
        let time = |text: &mut Self| match text.slip() {
            true => text.literal(Time),
            false => text.random.one_of(&["100us", "0.2 ms", "1ms", "20ms", "600s"]).to_owned(),
        };
        let length = time(self);
        self.put(&format!("window {length}"));
        for word in ["after", "live"] {
            if self.random.percent(40) {
                let (word, time) = (self.word(word), time(self));
                self.put(&format!("{word} {time}"));
            }
        }
        self.end();
    }

    fn param(&mut self) {
        let kind = [Number, Size, Time][self.random.below(3)];
        let (name, default) = (self.fresh(), self.literal(kind));
        self.put(&format!("param {name} = {default}"));
        if self.random.percent(40) {
            let other = if self.slip() { [Number, Size, Time][self.random.below(3)] } else { kind };
            let (least, most) = (self.literal(kind), self.literal(other));
            let least = if self.slip() { least } else { "0".to_owned() };
            let most = if most.len() < 4 || self.slip() { most } else { default.clone() };
            self.put(&format!("[{least}..{most}]"));
        }
        self.put("\"a parameter\"");
        self.end();
        self.names.push((name, kind));
    }

    fn arm(&mut self) {
        let name = self.fresh();
        let choices =
            ["lru=lazy", "tick=phased", "calls=requests", "lru=none", "x=y", "tick=stock"];
        let choice = self.random.one_of(&choices).to_owned();
        self.put(&format!("arm {name} {choice}"));
        if self.random.percent(30) {
            let other = self.random.one_of(&choices).to_owned();
            self.put(&format!(", {other}"));
        }
        self.end();
    }

    /// Writes how many tasks there are.
    pub(super) fn amount(&mut self) {
        let number = self.value(Number, 1);
        let amount = match self.random.below(3) {
            0 => "per_cpu".to_owned(),
            1 => number,
            _ => format!("{number} per_cpu"),
        };
        self.put(&amount);
    }
    pub(super) fn attributes(&mut self) {
        for word in ["on", "priority"] {
            if self.random.percent(20) {
                let (word, value) = (self.word(word), self.value(Number, 1));
                self.put(&format!("{word} {value}"));
            }
        }
    }

    /// Writes a block. Its variables are unknown behind it.
    pub(super) fn block(&mut self) {
        let kept = self.names.len();
        self.depth += 1;
        if !self.slip() {
            self.out.push_str("{\n");
        }
        self.statements();
        if !self.slip() {
            self.out.push_str("}\n");
        }
        self.depth -= 1;
        self.names.truncate(kept);
    }
    fn statements(&mut self) {
        for _ in 0..self.random.few(9) {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            if self.depth < DEPTH && self.random.percent(40) {
                self.nested();
            } else {
                self.simple();
            }
        }
    }
    /// Returns the name of a program that may be used in a statement.
    pub(super) fn program(&mut self) -> Option<String> {
        let at = self.random.below(self.programs.len());
        self.programs.get(at).cloned()
    }
}
