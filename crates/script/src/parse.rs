//! From text to a syntax tree, by the grammar in `script.pest`.

use crate::ast::{
    Amount, ArmItem, Binary, Block, Call, Change, Expr, ExprKind, FileItem, Given, GroupItem,
    Literal, MemoryGroupItem, Name, On, Order, ParamItem, Placing, Statement, SwapDevice, SwapItem,
    Task, TaskKind, Tree, Unary, Unit, What, WindowItem, Within,
};
use crate::error::{Wrong, nearest, wrong};
use mmscale_system::Backing;
use pest::Parser as _;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::Pair;
use pest_derive::Parser;

#[derive(Parser)]
#[grammar = "script.pest"]
struct Grammar;

/// Maximum length of a script, in bytes.
pub const MAX_BYTES: usize = 1 << 18;
/// Maximum depth of brackets: the parser calls itself for each.
const MAX_DEPTH: usize = 48;
/// Maximum number of operands of an expression without brackets.
const MAX_OPERANDS: usize = 32;
/// Maximum number of prefixes, and of selections, of an operand.
const MAX_AROUND: usize = 4;

type Node<'a> = Pair<'a, Rule>;
type Parsed<T> = Result<T, Wrong>;

/// Parses a script.
pub(crate) fn parse(text: &str) -> Parsed<Tree> {
    if text.len() > MAX_BYTES {
        return wrong(0, format!("the script has {} bytes; at most {MAX_BYTES}", text.len()));
    }
    depth(text)?;
    let mut parsed = Grammar::parse(Rule::script, text).map_err(|why| missing_end(text, &why))?;
    let mut tree = Tree::default();
    for item in parsed.next().into_iter().flat_map(Pair::into_inner) {
        if item.as_rule() == Rule::item {
            add_item(&mut tree, only(item))?;
        }
    }
    Ok(tree)
}

/// Checks that brackets are not nested too deeply. Comments and texts are not skipped: few have
/// that many brackets.
fn depth(text: &str) -> Parsed<()> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return wrong(at, format!("brackets are nested more than {MAX_DEPTH} deep"));
        }
    }
    Ok(())
}

/// Words with which an item or a statement begins.
const WORDS: &[&str] = &[
    "summary", "profile", "window", "param", "file", "swap", "group", "arm", "program", "process",
    "per_cpu", "on", "priority", "loop", "for", "in", "while", "if", "else", "choose", "threads",
    "thread", "start", "count", "break", "continue", "return", "fork", "try",
];

/// Explains an error: a `;` that is missing at the end of the word before it, or something else.
fn missing_end(text: &str, why: &pest::error::Error<Rule>) -> Wrong {
    let end = text[..place_of(why)].trim_end().len();
    let with_end = format!("{};{}", &text[..end], &text[end..]);
    let next = Grammar::parse(Rule::script, &with_end).err();
    // The place after the added `;` is the old one and one more.
    if next.is_none_or(|next| place_of(&next) > place_of(why) + 1) {
        return Wrong { at: end, what: "a `;` is missing here".to_owned() };
    }
    explain(text, why)
}

fn place_of(why: &pest::error::Error<Rule>) -> usize {
    match why.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    }
}

fn explain(text: &str, why: &pest::error::Error<Rule>) -> Wrong {
    let at = place_of(why);
    let mut expected: Vec<String> = match &why.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.iter().map(shown).collect(),
        ErrorVariant::CustomError { message } => vec![message.clone()],
    };
    expected.sort();
    expected.dedup();
    let found = found(&text[at..]);
    let mut what = match expected.split_last() {
        None => format!("{found} is not expected here"),
        Some((last, [])) => format!("expected {last}, found {found}"),
        Some((last, rest)) => format!("expected {} or {last}, found {found}", rest.join(", ")),
    };
    // The place is behind a misspelt word: `lop {`.
    let before = text[..at].trim_end();
    let word = before.rsplit(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next();
    let near = |word: &str| nearest(word, WORDS.iter().copied()).filter(|near| *near != word);
    if let Some((word, near)) = word.and_then(|word| Some((word, near(word)?))) {
        what.push_str(&format!("; did you mean `{near}` for `{word}`?"));
    }
    Wrong { at, what }
}

/// Describes the text at the place of an error.
fn found(rest: &str) -> String {
    let is_word = |letter: &char| letter.is_alphanumeric() || *letter == '_';
    let word: String = rest.chars().take_while(is_word).take(32).collect();
    match rest.chars().next() {
        None => "the end of the file".to_owned(),
        Some(letter) if word.is_empty() => format!("`{}`", letter.escape_debug()),
        Some(_) => format!("`{word}`"),
    }
}

/// Names a rule of the grammar for a message.
fn shown(rule: &Rule) -> String {
    let text = match rule {
        Rule::EOI | Rule::item => {
            "an item (summary, profile, window, param, file, swap, group, arm, program, process)"
        }
        Rule::statement => "a statement",
        Rule::device => "`block`, `compressed`",
        Rule::percent => "`to`",
        Rule::expr | Rule::operand | Rule::primary | Rule::from | Rule::to => "a value",
        Rule::literal | Rule::number => "a number",
        Rule::unit => "a unit (pages, B, KiB, MiB, GiB, ns, us, ms, s)",
        Rule::infix | Rule::prefix => "an operator",
        Rule::change => "`=`",
        Rule::dots => "`..`",
        Rule::end => "`;`",
        Rule::index | Rule::range => "`[`",
        Rule::text | Rule::inner => "a text in quotes",
        Rule::block => "a block `{ .. }`",
        Rule::amount => "a number",
        Rule::attribute => "`on`, `priority` or `in`",
        Rule::task => "fork, thread or process",
        other => {
            let name = format!("{other:?}");
            return match name.strip_prefix("kw_") {
                Some(word) => format!("`{word}`"),
                None => format!("a {name}"),
            };
        }
    };
    text.to_owned()
}

fn device(named: Option<Node<'_>>) -> SwapDevice {
    match named.as_ref().map(Node::as_str) {
        Some("compressed") => SwapDevice::Compressed,
        _ => SwapDevice::Block,
    }
}

/// Returns the only child that is not a keyword.
fn only(node: Node<'_>) -> Node<'_> {
    let at = node.clone();
    parts(node).next().unwrap_or(at)
}

/// Returns the children that are neither keywords nor the `;` at the end.
fn parts(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    node.into_inner().filter(|child| child.as_rule() != Rule::end && !is_word(child.as_rule()))
}

fn is_word(rule: Rule) -> bool {
    let stays = [Rule::kw_per_cpu, Rule::kw_fork, Rule::kw_process, Rule::kw_thread];
    !stays.contains(&rule) && format!("{rule:?}").starts_with("kw_")
}

fn place(node: &Node<'_>) -> usize {
    node.as_span().start()
}

fn add_item(tree: &mut Tree, item: Node<'_>) -> Parsed<()> {
    let at = place(&item);
    let rule = item.as_rule();
    let once = |there: bool| {
        if there { wrong(at, "this item is here a second time; write it once") } else { Ok(()) }
    };
    // The keyword of a process is that of a task, too.
    let mut parts = parts(item).filter(|part| part.as_rule() != Rule::kw_process).peekable();
    match rule {
        Rule::summary => {
            once(tree.summary.is_some())?;
            tree.summary = parts.next().map(text);
        }
        Rule::machine => {
            once(tree.profile.is_some())?;
            tree.profile = parts.next().map(text);
            tree.cpus = parts.next().map(literal).transpose()?;
        }
        Rule::window => {
            once(tree.window.is_some())?;
            tree.window = Some(window(parts, at)?);
        }
        Rule::param => {
            let name = must(parts.next().map(name), at)?;
            let default = must(parts.next().map(literal).transpose()?, at)?;
            let range = match parts.next_if(|part| part.as_rule() == Rule::range) {
                Some(range) => {
                    let ends = range.into_inner().map(literal).collect::<Parsed<Vec<_>>>()?;
                    <[Literal; 2]>::try_from(ends).ok()
                }
                None => None,
            };
            let help = must(parts.next().map(text), at)?.text;
            tree.params.push(ParamItem { name, default, range, help });
        }
        Rule::file => {
            let name = must(parts.next().map(name), at)?;
            let size = must(parts.next().map(expr).transpose()?, at)?;
            let on_disk = parts.next_if(|part| part.as_rule() == Rule::on_disk).is_some();
            let backing = if on_disk { Backing::Disk } else { Backing::Memory };
            tree.files.push(FileItem { name, size, backing });
        }
        Rule::swap => {
            once(tree.swap.is_some())?;
            tree.swap = Some(swap(parts, at)?);
        }
        Rule::groups => tree.memory_groups.push(memory_group(parts, at)?),
        Rule::program => {
            let name = must(parts.next().map(name), at)?;
            tree.programs.push((name, block(must(parts.next(), at)?)?));
        }
        Rule::arm => {
            let name = must(parts.next().map(name), at)?;
            let pair = |choice: Node<'_>| {
                let mut words = choice.into_inner().map(self::name);
                Some((words.next()?, words.next()?))
            };
            tree.arms.push(ArmItem { name, choices: parts.filter_map(pair).collect() });
        }
        _ => {
            let name = must(parts.next().map(name), at)?;
            let amount = parts.next_if(|part| part.as_rule() == Rule::amount);
            let amount = amount.map(self::amount).transpose()?;
            let (place, body) = placed(parts)?;
            tree.groups.push(GroupItem { name, amount, place, body });
        }
    }
    Ok(())
}

fn swap<'a>(mut parts: impl Iterator<Item = Node<'a>>, at: usize) -> Parsed<SwapItem> {
    let size = must(parts.next().map(expr).transpose()?, at)?;
    let device = device(parts.next());
    let percent = parts.next().map(|to| expr(only(to))).transpose()?;
    if percent.is_some() && device != SwapDevice::Compressed {
        return wrong(at, "pages on a block device have no size: write `compressed to ..`");
    }
    Ok(SwapItem { at, size, device, percent })
}

fn window<'a>(mut parts: impl Iterator<Item = Node<'a>>, at: usize) -> Parsed<WindowItem> {
    let length = must(parts.next().map(literal).transpose()?, at)?;
    let mut window = WindowItem { length, after: None, live: None };
    for part in parts {
        let is_after = part.as_rule() == Rule::after;
        let value = Some(literal(only(part))?);
        if is_after { window.after = value } else { window.live = value }
    }
    Ok(window)
}

fn memory_group<'a>(
    mut parts: impl Iterator<Item = Node<'a>>,
    at: usize,
) -> Parsed<MemoryGroupItem> {
    let name = must(parts.next().map(name), at)?;
    let mut item = MemoryGroupItem { name, number: None, depth: None, limit: None };
    for part in parts {
        let to = match part.as_rule() {
            Rule::number_of => &mut item.number,
            Rule::depth => &mut item.depth,
            _ => &mut item.limit,
        };
        *to = Some(expr(only(part))?);
    }
    Ok(item)
}

/// Returns a part that the grammar requires.
fn must<T>(part: Option<T>, at: usize) -> Parsed<T> {
    part.ok_or_else(|| Wrong { at, what: "a part is missing here".to_owned() })
}

fn name(node: Node<'_>) -> Name {
    Name { text: node.as_str().to_owned(), at: place(&node) }
}

/// Returns the content of a quoted text.
fn text(node: Node<'_>) -> Name {
    name(only(node))
}

fn literal(node: Node<'_>) -> Parsed<Literal> {
    let at = place(&node);
    let mut parts = node.into_inner();
    let number = parts.next().map_or("", |number| number.as_str()).replace('_', "");
    let unit = parts.next().map_or("", |unit| unit.as_str());
    let (factor, unit) = Unit::of_suffix(unit).unwrap_or((1, Unit::One));
    match scaled(&number, factor) {
        Some(value) => Ok(Literal { at, value, unit }),
        None => wrong(at, "this number is too large, or not a whole number of its smallest unit"),
    }
}

/// Returns a decimal number times `factor`, if the product is a whole number that fits.
fn scaled(number: &str, factor: u64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let ten = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits = format!("{whole}{fraction}").parse::<u128>().ok()?;
    let product = digits.checked_mul(u128::from(factor))?;
    product.is_multiple_of(ten).then(|| i64::try_from(product / ten).ok()).flatten()
}

fn amount(node: Node<'_>) -> Parsed<Amount> {
    let mut amount = Amount { number: None, per_cpu: false };
    for part in node.into_inner() {
        match part.as_rule() {
            Rule::kw_per_cpu => amount.per_cpu = true,
            _ => amount.number = Some(expr(part)?),
        }
    }
    Ok(amount)
}

/// Reads `on`, `priority` and the block that follow a task.
fn placed<'a>(parts: impl Iterator<Item = Node<'a>>) -> Parsed<(Placing, Block)> {
    let (mut place, mut body) = (Placing::default(), Vec::new());
    for part in parts {
        if part.as_rule() == Rule::attribute {
            let at = self::place(&part);
            let attribute = only(part);
            let is_second = match attribute.as_rule() {
                Rule::on => place.on.replace(On::Cpu(expr(only(attribute))?)).is_some(),
                Rule::order => place.on.replace(On::Order(order(attribute))).is_some(),
                Rule::within => place.within.replace(within(attribute)?).is_some(),
                _ => place.priority.replace(expr(only(attribute))?).is_some(),
            };
            if is_second {
                return wrong(at, "this attribute is here a second time; write it once");
            }
        } else {
            body = block(part)?;
        }
    }
    Ok((place, body))
}

fn within(node: Node<'_>) -> Parsed<Within> {
    let at = place(&node);
    let mut parts = parts(node);
    let name = must(parts.next().map(name), at)?;
    Ok(Within { name, index: parts.next().map(expr).transpose()? })
}

fn order(node: Node<'_>) -> Order {
    let rules: Vec<Rule> = node.into_inner().map(|part| part.as_rule()).collect();
    match rules[..] {
        [.., Rule::kw_cores] => Order::Cores,
        [.., Rule::kw_nodes] => Order::Nodes,
        [.., Rule::kw_spread] => Order::Spread,
        _ => Order::Near,
    }
}

fn block(node: Node<'_>) -> Parsed<Block> {
    node.into_inner().map(statement).collect()
}

fn statement(node: Node<'_>) -> Parsed<Statement> {
    let node = if node.as_rule() == Rule::statement { only(node) } else { node };
    let at = place(&node);
    let rule = node.as_rule();
    if rule == Rule::leave {
        let word = node.as_str();
        let what = match word.trim_end_matches(';').trim_end() {
            word if word.starts_with("break") => What::Break,
            word if word.starts_with("continue") => What::Continue,
            _ => What::Return,
        };
        return Ok(Statement { at, what });
    }
    if rule == Rule::task {
        return Ok(Statement { at, what: What::Task(task(node)?) });
    }
    let mut parts = parts(node).peekable();
    let what = match rule {
        Rule::loops => {
            let limit = parts.next_if(|part| part.as_rule() == Rule::expr);
            What::Loop(limit.map(expr).transpose()?, block(must(parts.next(), at)?)?)
        }
        Rule::r#for => {
            let name = must(parts.next().map(name), at)?;
            let from = expr(must(parts.next(), at)?)?;
            let to = expr(must(parts.next(), at)?)?;
            What::For(name, [from, to], block(must(parts.next(), at)?)?)
        }
        Rule::r#while => {
            let condition = expr(must(parts.next(), at)?)?;
            What::While(condition, block(must(parts.next(), at)?)?)
        }
        Rule::r#if => branches(parts, at)?,
        Rule::choose => {
            let option = |option: Node<'_>| {
                let mut parts = option.into_inner();
                let weight = expr(must(parts.next(), at)?)?;
                Ok((weight, block(must(parts.next(), at)?)?))
            };
            What::Choose(parts.map(option).collect::<Parsed<_>>()?)
        }
        Rule::threads => {
            let amount = amount(must(parts.next(), at)?)?;
            let (place, body) = placed(parts)?;
            What::Threads(amount, place, body)
        }
        Rule::time => What::Time(block(must(parts.next(), at)?)?),
        Rule::start => What::Start,
        Rule::count => What::Count(parts.next().map(expr).transpose()?),
        Rule::r#try => What::Try(Box::new(statement(must(parts.next(), at)?)?)),
        Rule::assign => {
            let name = must(parts.next().map(name), at)?;
            let change = match must(parts.next(), at)?.as_str() {
                "+=" => Change::Add,
                "-=" => Change::Subtract,
                _ => Change::Set,
            };
            let value = must(parts.next(), at)?;
            let given = match value.as_rule() {
                Rule::task => Given::Task(task(value)?),
                _ => Given::Expr(expr(value)?),
            };
            What::Assign(name, change, given)
        }
        _ => What::Act(call(must(parts.next(), at)?)?),
    };
    Ok(Statement { at, what })
}

fn branches<'a>(parts: impl Iterator<Item = Node<'a>>, at: usize) -> Parsed<What> {
    let (mut branches, mut condition, mut last) = (Vec::new(), None, None);
    for part in parts {
        if part.as_rule() == Rule::expr {
            condition = Some(expr(part)?);
        } else {
            match condition.take() {
                Some(condition) => branches.push((condition, block(part)?)),
                None => last = Some(block(part)?),
            }
        }
    }
    if branches.is_empty() {
        wrong(at, "a condition is missing")
    } else {
        Ok(What::If(branches, last))
    }
}

fn task(node: Node<'_>) -> Parsed<Task> {
    let at = place(&node);
    let mut parts = node.into_inner();
    let kind = match must(parts.next(), at)?.as_rule() {
        Rule::kw_fork => TaskKind::Fork,
        Rule::kw_process => TaskKind::Process,
        _ => TaskKind::Thread,
    };
    let (place, body) = placed(parts)?;
    Ok(Task { kind, place, body })
}

fn call(node: Node<'_>) -> Parsed<Call> {
    let at = place(&node);
    let mut parts = node.into_inner();
    let name = must(parts.next().map(name), at)?;
    Ok(Call { name, args: parts.map(expr).collect::<Parsed<_>>()? })
}

fn expr(node: Node<'_>) -> Parsed<Expr> {
    let at = place(&node);
    let (mut operands, mut infixes) = (Vec::new(), Vec::new());
    for part in node.into_inner() {
        match part.as_rule() {
            Rule::infix => infixes.push(infix(part.as_str())),
            _ => operands.push(operand(part)?),
        }
    }
    // The compiler calls itself for each operand.
    if operands.len() > MAX_OPERANDS {
        return wrong(at, format!("more than {MAX_OPERANDS} operands in one value"));
    }
    // Operators of equal precedence group from the left.
    let (mut left, mut waiting) = (Vec::new(), Vec::<(Binary, u8)>::new());
    let reduce = |left: &mut Vec<Expr>, binary| {
        if let (Some(b), Some(a)) = (left.pop(), left.pop()) {
            let (at, sides) = (a.at, Box::new([a, b]));
            left.push(Expr { at, kind: ExprKind::Binary(binary, sides) });
        }
    };
    let mut operands = operands.into_iter();
    left.extend(operands.next());
    for ((binary, precedence), operand) in infixes.into_iter().zip(operands) {
        while let Some((earlier, _)) = waiting.pop_if(|(_, earlier)| *earlier >= precedence) {
            reduce(&mut left, earlier);
        }
        waiting.push((binary, precedence));
        left.push(operand);
    }
    while let Some((binary, _)) = waiting.pop() {
        reduce(&mut left, binary);
    }
    must(left.pop(), at)
}

fn infix(text: &str) -> (Binary, u8) {
    match text {
        "||" => (Binary::Or, 0),
        "&&" => (Binary::And, 1),
        "==" => (Binary::Equal, 2),
        "!=" => (Binary::Unequal, 2),
        "<=" => (Binary::AtMost, 3),
        ">=" => (Binary::AtLeast, 3),
        "<" => (Binary::Less, 3),
        ">" => (Binary::More, 3),
        "+" => (Binary::Add, 4),
        "-" => (Binary::Subtract, 4),
        "*" => (Binary::Multiply, 5),
        "/" => (Binary::Divide, 5),
        _ => (Binary::Remainder, 5),
    }
}

fn operand(node: Node<'_>) -> Parsed<Expr> {
    let at = place(&node);
    let (mut prefixes, mut value, mut indexes) = (Vec::new(), None, 0);
    for part in node.into_inner() {
        match part.as_rule() {
            Rule::prefix if part.as_str() == "-" => prefixes.push(Unary::Minus),
            Rule::prefix => prefixes.push(Unary::Not),
            Rule::index => {
                indexes += 1;
                value = Some(index(must(value, at)?, part)?);
            }
            _ => value = Some(primary(only(part))?),
        }
    }
    if prefixes.len().max(indexes) > MAX_AROUND {
        return wrong(at, format!("more than {MAX_AROUND} prefixes or [..] of one value"));
    }
    let apply = |value, unary| Expr { at, kind: ExprKind::Unary(unary, Box::new(value)) };
    Ok(prefixes.into_iter().rev().fold(must(value, at)?, apply))
}

fn primary(node: Node<'_>) -> Parsed<Expr> {
    let at = place(&node);
    let kind = match node.as_rule() {
        Rule::literal => ExprKind::Literal(literal(node)?),
        Rule::call => ExprKind::Call(call(node)?),
        Rule::name => ExprKind::Name(node.as_str().to_owned()),
        _ => return expr(node),
    };
    Ok(Expr { at, kind })
}

fn index(of: Expr, node: Node<'_>) -> Parsed<Expr> {
    let at = place(&node);
    let (mut ends, mut is_part) = ([None, None], false);
    for part in node.into_inner() {
        match part.as_rule() {
            Rule::dots => is_part = true,
            Rule::from => ends[0] = Some(Box::new(expr(only(part))?)),
            _ => ends[1] = Some(Box::new(expr(only(part))?)),
        }
    }
    let kind = match ends {
        ends if is_part => ExprKind::Part(Box::new(of), ends),
        [Some(page), _] => ExprKind::Page(Box::new([of, *page])),
        _ => return wrong(at, "expected a page, or a part as in [0..8]"),
    };
    Ok(Expr { at, kind })
}
