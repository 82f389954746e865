//! Values in C.

use super::emit::Emitter;
use super::helpers::Helper;
use super::symbols::{LEAST, MOST, PREFIX, literal, operator};
use super::tree::{Expr, PAGE, Range, VarId, What, walk};
use crate::ast::{Binary, Unary};

impl Emitter<'_> {
    /// Returns a value in C.
    pub(super) fn expr(&mut self, expr: &Expr) -> String {
        self.bound(expr, LEAST)
    }

    /// Returns a value in C, in brackets if it binds less than `least`.
    pub(super) fn bound(&mut self, expr: &Expr, least: u8) -> String {
        let (text, binds) = self.any(expr);
        if binds < least { format!("({text})") } else { text }
    }

    fn any(&mut self, expr: &Expr) -> (String, u8) {
        let name = match expr {
            Expr::Literal(value, unit) => {
                return literal(*value, *unit);
            }
            Expr::Unary(unary, of) => {
                let sign = if *unary == Unary::Minus { "-" } else { "!" };
                // Not `--x`.
                let of = self.bound(of, MOST);
                return (format!("{sign}{of}"), PREFIX);
            }
            Expr::Binary(binary, sides) => return self.binary(*binary, sides),
            Expr::PagesIn(of) => return self.pages(of),
            Expr::Param(nth) => {
                self.used.insert(*nth);
                self.params[*nth].clone()
            }
            Expr::Var(var) => self.name(*var),
            Expr::Cpu => "cpu".to_owned(),
            Expr::Cpus => "cpus".to_owned(),
            Expr::Nodes => {
                self.need(Helper::Nodes);
                "nodes()".to_owned()
            }
            Expr::Now => {
                self.need(Helper::SinceStart);
                "since_start()".to_owned()
            }
            Expr::Ok => {
                self.need(Helper::Ok);
                "ok".to_owned()
            }
            Expr::Pick(larger, sides) => {
                let name = if *larger { "max" } else { "min" };
                self.need(if *larger { Helper::Max } else { Helper::Min });
                format!("{name}({}, {})", self.expr(&sides[0]), self.expr(&sides[1]))
            }
            Expr::Random(ends) => {
                self.need(Helper::Random);
                format!("rnd({}, {})", self.expr(&ends[0]), self.expr(&ends[1]))
            }
            Expr::SizeOf(var) => self.size_name(*var),
            Expr::Present(range) => {
                self.need(Helper::Present);
                format!("present_pages({}, {})", self.address(range), self.expr(&range.size))
            }
            Expr::Address(range) => {
                return (self.address(range), if range.from.is_zero() { MOST } else { 9 });
            }
        };
        (name, MOST)
    }

    fn binary(&mut self, binary: Binary, sides: &[Expr; 2]) -> (String, u8) {
        let (sign, binds) = operator(binary);
        // Brackets also where the compiler warns without them.
        let (left, right) = match binary {
            Binary::Or | Binary::And => (5, 5),
            Binary::Equal | Binary::Unequal => (8, 8),
            Binary::AtMost | Binary::AtLeast | Binary::Less | Binary::More => (8, 8),
            Binary::Remainder | Binary::Divide => (binds, binds + 1),
            _ => (binds, binds + 1),
        };
        let same = |side: &Expr| matches!(side, Expr::Binary(other, _) if *other == binary);
        let left = if same(&sides[0]) { binds } else { left };
        (format!("{} {sign} {}", self.bound(&sides[0], left), self.bound(&sides[1], right)), binds)
    }

    fn pages(&mut self, of: &Expr) -> (String, u8) {
        match of {
            Expr::Literal(value, _) => {
                (value.unsigned_abs().div_ceil(mmscale_system::PAGE_BYTES).to_string(), MOST)
            }
            Expr::Binary(Binary::Multiply, sides) if sides[1] == PAGE => self.any(&sides[0]),
            of if self.is_whole(of, &mut Vec::new()) => {
                (format!("{} / PAGE", self.bound(of, 10)), 10)
            }
            of => (format!("DIV_ROUND_UP({}, PAGE)", self.expr(of)), MOST),
        }
    }

    /// Whether a size is one of whole pages.
    fn is_whole(&self, size: &Expr, seen: &mut Vec<VarId>) -> bool {
        let page = mmscale_system::PAGE_BYTES as i64;
        match size {
            Expr::Literal(value, _) => value % page == 0,
            Expr::Param(nth) => self.values[*nth] % page == 0,
            Expr::Binary(Binary::Multiply, sides) => {
                sides.iter().any(|side| self.is_whole(side, seen))
            }
            Expr::Binary(Binary::Add | Binary::Subtract, sides) | Expr::Pick(_, sides) => {
                sides.iter().all(|side| self.is_whole(side, seen))
            }
            Expr::Var(var) if seen.contains(var) => true,
            Expr::Var(var) => {
                seen.push(*var);
                let mut given = Vec::new();
                let mut unknown = false;
                for group in &self.script.groups {
                    walk(&group.body, &mut |what| match what {
                        What::Set(to, value) | What::Change(to, _, value) if to == var => {
                            given.push(value);
                        }
                        what => unknown |= what.sets() == Some(*var),
                    });
                }
                !unknown && given.into_iter().all(|value| self.is_whole(value, seen))
            }
            _ => false,
        }
    }

    /// Returns the address of the first byte of a part of memory.
    pub(super) fn address(&mut self, range: &Range) -> String {
        let name = self.name(range.var);
        if range.from.is_zero() {
            return name;
        }
        format!("{name} + {}", self.bound(&range.from, 10))
    }

    pub(super) fn name(&self, var: VarId) -> String {
        self.script.vars[var.0].name.clone()
    }
    /// Returns the name of the variable with the size of memory.
    pub(super) fn size_name(&self, var: VarId) -> String {
        format!("{}_size", self.script.vars[var.0].name.trim_end_matches('_'))
    }
}
