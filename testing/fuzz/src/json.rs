//! Damage to JSON values: parts are removed, repeated, swapped, and given other types.

use serde_json::{Map, Number, Value};

use crate::mutate::NUMBERS;
use crate::random::Random;

/// Strings that a terminal, a page, a table or a parser of numbers may treat in a special way.
const STRINGS: &[&str] = &[
    "",
    " ",
    "\n",
    "\0",
    "\u{1b}[2J\u{1b}]0;title\u{7}",
    "\u{9b}31m",
    "\u{202e}",
    "<script>alert(1)</script>",
    "</script><!--",
    "\"'&<>`",
    "=1+cmd|' /C calc'!A0",
    "a,b\n\"c\"",
    "| a | b |",
    "NaN",
    "inf",
    "-1",
    "18446744073709551616",
    "../../../etc/passwd",
    "stock",
    "zone",
    "ops_per_s",
    "mmscale/run/3",
    "mmscale/robust/1",
    "\u{e9}\u{4e2d}\u{1f600}",
];

/// Changes some places of a value.
pub(crate) fn change(random: &mut Random, whole: &mut Value) {
    for _ in 0..=random.few(6) {
        let places = count(whole);
        let place = random.below(places);
        if let Some(value) = nth(whole, &mut { place }) {
            one(random, value);
        }
    }
}

/// Returns the number of values in a value, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(count).sum(),
        Value::Object(all) => all.values().map(count).sum(),
        _ => 0,
    }
}

/// Returns a value by its number in depth-first order.
fn nth<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(all) => all.iter_mut().find_map(|value| nth(value, left)),
        Value::Object(all) => all.values_mut().find_map(|value| nth(value, left)),
        _ => None,
    }
}

fn one(random: &mut Random, value: &mut Value) {
    match value {
        _ if random.percent(15) => *value = any(random, 3),
        Value::Number(number) => *number = self::number(random, number),
        Value::String(text) => string(random, text),
        Value::Bool(flag) => *flag = !*flag,
        Value::Null => *value = any(random, 2),
        Value::Array(all) => array(random, all),
        Value::Object(all) => object(random, all),
    }
}

/// Returns another number: near the given one, or at the end of a type.
fn number(random: &mut Random, number: &Number) -> Number {
    let given = number.as_f64().unwrap_or(0.0);
    let new = match random.below(6) {
        0 => Number::from_f64(given * 2.0),
        1 => Number::from_f64(-given),
        2 => number.as_u64().map(|count| Number::from(count.wrapping_add(1))),
        3 => Number::from_f64(given + 0.5),
        4 => Some(Number::from(random.few(100))),
        _ => serde_json::from_str(NUMBERS[random.below(NUMBERS.len())]).ok(),
    };
    new.unwrap_or_else(|| Number::from(u64::MAX))
}

fn string(random: &mut Random, text: &mut String) {
    match random.below(5) {
        0 => text.push_str(random.one_of(STRINGS)),
        1 => text.insert_str(0, random.one_of(STRINGS)),
        2 => _ = text.pop(),
        3 if random.percent(10) => *text = text.repeat(1 + 20_000 / text.len().max(1)),
        _ => *text = random.one_of(STRINGS).to_owned(),
    }
}

fn array(random: &mut Random, all: &mut Vec<Value>) {
    let (one, other) = (random.below(all.len()), random.below(all.len()));
    match random.below(5) {
        _ if all.is_empty() => all.push(any(random, 2)),
        0 => drop(all.remove(one)),
        1 => all.push(all[one].clone()),
        2 => all.swap(one, other),
        3 if random.percent(10) => {
            let times = random.few(2_000).min(20_000 / count(&all[one]));
            let copies = std::iter::repeat_n(all[one].clone(), times);
            all.extend(copies.collect::<Vec<_>>());
        }
        _ => all.clear(),
    }
}

fn object(random: &mut Random, all: &mut Map<String, Value>) {
    let key = |random: &mut Random, all: &Map<String, Value>| {
        all.keys().nth(random.below(all.len())).cloned().unwrap_or_default()
    };
    let (one, other) = (key(random, all), key(random, all));
    match random.below(5) {
        0 => _ = all.remove(&one),
        1 => {
            let value = all.get(&one).cloned().unwrap_or_default();
            all.insert(random.one_of(STRINGS).to_owned(), value);
        }
        2 => {
            let value = all.get(&one).cloned().unwrap_or_default();
            all.insert(other, value);
        }
        3 => {
            let value = all.remove(&one).unwrap_or_default();
            let mut key = one;
            string(random, &mut key);
            all.insert(key, value);
        }
        _ => _ = all.insert(one, any(random, 3)),
    }
}

/// Returns a value of any type.
fn any(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => Value::Bool(random.percent(50)),
        2 => Value::Number(number(random, &Number::from(1))),
        3 => Value::String(random.one_of(STRINGS).to_owned()),
        4 => Value::Number(Number::from(random.few(5_000))),
        5 => Value::Array((0..random.few(4)).map(|_| any(random, depth - 1)).collect()),
        6 => {
            let pairs = (0..random.few(4))
                .map(|_| (random.one_of(STRINGS).to_owned(), any(random, depth - 1)));
            Value::Object(pairs.collect())
        }
        _ => (0..random.few(120)).fold(Value::Null, |inner, _| Value::Array(vec![inner])),
    }
}
