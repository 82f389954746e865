//! The phrases that are refused, and what to write instead.

/// A phrase.
pub(super) struct Row {
    /// A regular expression over a block of text.
    pub(super) pattern: &'static str,
    /// What to write.
    pub(super) instead: &'static str,
    /// A sentence that has it once.
    pub(super) example: &'static str,
    /// Whether only doc comments are looked at.
    pub(super) docs_only: bool,
}

const fn row(pattern: &'static str, instead: &'static str, example: &'static str) -> Row {
    Row { pattern, instead, example, docs_only: false }
}

const fn docs(pattern: &'static str, instead: &'static str, example: &'static str) -> Row {
    Row { pattern, instead, example, docs_only: true }
}

/// All of them.
pub(super) const PHRASES: &[Row] = &[
    // Subjects are nouns.
    row(
        r"(?i)\b(no|some|any|every)(body|one)\b|\bwhoever\b",
        "name the CPU, task, lock, caller or reader; \"it has no owner\"",
        "Frees a block that nobody owns.",
    ),
    row(r"(?i)\b(he|him|his)\b", "a CPU, task or caller is \"it\"", "It waits until he is done."),
    row(
        r"(?:^|[.;:,(] )[Ww]ho\b|\b(?:for|to|and|than|but|by|of|if|as|from|with|that|only) who\b",
        "begin the clause with a noun: \"a caller that ..\", \"the CPU that ..\"",
        "This is for who has the lock.",
    ),
    row(
        r"\b(?:those|all|CPUs?|tasks?|threads?|process|callers?|holders?|owners?|waiters?) who\b",
        "a CPU, task or caller is \"that\"",
        "It wakes the task who waits.",
    ),
    row(r"(?:[.;] )What\b", "begin the sentence with a noun", "Frees pages. What is left stays."),
    docs(
        r"^(?:What|Who|Whose|The same|The other|And|Of these|Of those|Of it|Of them|So|But)\b",
        "a doc comment stands alone: a verb in the third person or a noun phrase first",
        "The same in another way.",
    ),
    // The field's words.
    row(r"(?i)\blet(?:s|ting)? (?:\w+ ){0,3}go\b", "release", "It lets the lock go."),
    row(
        r"(?i)\bg(?:ive|ives|iving|iven|ave) (?:\w+ ){0,3}back\b",
        "free (frames), return, restore",
        "It gives the page back.",
    ),
    row(
        r"(?i)\b(?:bring|brings|bringing|brought) (?:\w+ )?to light\b",
        "drain, find",
        "It is brought to light.",
    ),
    row(r"(?i)\bmend(?:s|ed|ing)?\b", "fix", "It mends the list."),
    row(r"(?i)\bput(?:s|ting)? (?:\w+ ){0,2}right\b", "fix, correct", "It puts the list right."),
    row(
        r"(?i)\b(?:hangs?|hanging|hung) on\b",
        "depends on; is attached to",
        "All hangs on the order.",
    ),
    row(
        r"(?i)\b(?:stands?|standing|stood) (?:in|on|at|behind|there|before|above|below|alone)\b",
        "is in, is on, follows, precedes",
        "It stands in the list.",
    ),
    row(
        r"(?i)\b(?:comes?|coming|came) out\b",
        "results in; is (not) reproduced",
        "The figure comes out.",
    ),
    row(r"(?i)\b(?:comes?|coming|came) by\b", "visits, obtains", "A walk comes by it."),
    row(
        r"(?i)\b(?:goes|go|going|went|comes?|coming|came|at|way) home\b",
        "returns to its pageblock, its node, its list",
        "The page goes home.",
    ),
    row(
        r"(?i)\b(?:is|are|was|were|be|been) told\b",
        "is reported, passed, known",
        "The CPU is told.",
    ),
    row(
        r"(?i)\btold apart\b|\btells? (?:\w+ ){0,3}apart\b",
        "distinguished",
        "They are not told apart.",
    ),
    row(r"(?i)\bbeside\b", "next to; compared with; with", "It is beside the lock."),
    row(r"(?i)\bin vain\b", "without success", "It looks in vain."),
    row(r"(?i)\b(?:seldom|hardly ever)\b", "rarely", "It seldom waits."),
    row(r"(?i)\bof late\b", "recently", "It ran of late."),
    row(r"(?i)\bbe it\b", "even if", "All frees, be it of one page."),
    row(r"(?i)\bworth of\b", "say the number", "A batch worth of pages."),
    row(r"(?i)\bat once\b", "immediately; in one step; at the same time", "It frees all at once."),
    row(r"(?i)\bto be had\b", "available, free", "No page is to be had."),
    row(r"(?i)\bways? back\b", "free, return", "A page and its way back."),
    row(
        r"(?i)\bway of (?:a|the|its) (?:line|cache line)\b",
        "cache-line transfer",
        "The way of the line costs.",
    ),
    row(
        r"(?i)\bwhat (?:(?:a|the|this|that|another|each|every|other) )?CPUs? keeps?\b",
        "the CPU's cache, stack or batch",
        "It drains what a CPU keeps.",
    ),
    row(
        r"(?i)\bfrom (?:\S+ ){1,2}on(?:[.,;:)]|$)|\bfrom (?:then|here|there|now) on\b",
        "after X; since X",
        "This is so from 6.18 on.",
    ),
    row(r"(?i)\blook(?:s|ed|ing)? whether\b", "checks whether", "It looks whether it is free."),
    row(r"(?i)\bops begun at any time\b", "operations started", "The ops begun at any time."),
];
