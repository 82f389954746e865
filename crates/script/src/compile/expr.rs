//! Expressions.

use super::{Compiler, Done, Type};
use crate::ast::{At, Binary, Expr, ExprKind};
use crate::error::wrong;
use crate::op::{Code, End, Known, NONE, Slot};

/// Values that each program has.
pub(super) const KNOWN: &[(&str, Known, Type)] = &[
    ("cpu", Known::Cpu, Type::Number),
    ("cpus", Known::Cpus, Type::Number),
    ("nodes", Known::Nodes, Type::Number),
    ("now", Known::Now, Type::Time),
    ("ok", Known::Ok, Type::Number),
];

impl Compiler<'_> {
    /// Compiles an expression that must have a type. Returns its slot.
    pub(super) fn typed(&mut self, expr: &Expr, wanted: Type) -> Done<Slot> {
        let (slot, of) = self.expr(expr)?;
        if of == wanted {
            return Ok(slot);
        }
        wrong(expr.at, format!("expected {}, found {}", wanted.name(), of.name()))
    }

    /// Compiles an expression. Returns its slot and type.
    pub(super) fn expr(&mut self, expr: &Expr) -> Done<(Slot, Type)> {
        let at = expr.at;
        match &expr.kind {
            ExprKind::Literal(literal) => {
                Ok((self.number(literal.value, at)?, Type::of(literal.unit)))
            }
            ExprKind::Name(name) => self.name(name, at),
            ExprKind::Call(call) => {
                let to = self.slot(at)?;
                match self.function(call, to)? {
                    Some(of) => Ok((to, of)),
                    None => wrong(at, format!("`{}` has no value", call.name.text)),
                }
            }
            ExprKind::Unary(unary, of) => {
                let (slot, given) = self.expr(of)?;
                let Some(result) = given.unary(*unary) else {
                    return wrong(at, format!("this operator does not apply to {}", given.name()));
                };
                let to = self.slot(at)?;
                self.emit(Code::Unary { to, unary: *unary, of: slot }, at)?;
                Ok((to, result))
            }
            ExprKind::Binary(binary, sides) => self.operator(*binary, sides, at),
            ExprKind::Page(of) => {
                let (of, page) = (&of[0], &of[1]);
                let (slot, whole) = self.whole(of)?;
                let page = self.typed(page, Type::Number)?;
                let to = self.slot(at)?;
                self.emit(Code::Page { to, of: slot, page }, at)?;
                Ok((to, whole))
            }
            ExprKind::Part(of, [from, to]) => {
                let (slot, whole) = self.whole(of)?;
                let ends = [self.end(from.as_deref())?, self.end(to.as_deref())?];
                let to = self.slot(at)?;
                self.emit(Code::Part { to, of: slot, ends }, at)?;
                Ok((to, whole))
            }
        }
    }

    fn name(&mut self, name: &str, at: At) -> Done<(Slot, Type)> {
        if let Some(found) = self.find(name, at)? {
            return Ok(found);
        }
        let Some((_, what, of)) = KNOWN.iter().find(|(known, ..)| *known == name) else {
            return Err(self.unknown(name, at));
        };
        let to = self.slot(at)?;
        self.emit(Code::Know { to, what: *what }, at)?;
        Ok((to, *of))
    }

    fn operator(&mut self, binary: Binary, sides: &[Expr; 2], at: At) -> Done<(Slot, Type)> {
        let (a, left) = self.expr(&sides[0])?;
        let (b, right) = self.expr(&sides[1])?;
        let Some(of) = left.binary(binary, right) else {
            let (left, right) = (left.name(), right.name());
            return wrong(at, format!("this operator does not apply to {left} and {right}"));
        };
        Ok((self.binary(binary, a, b, at)?, of))
    }

    /// Compiles an expression that is memory or a file.
    fn whole(&mut self, expr: &Expr) -> Done<(Slot, Type)> {
        let (slot, of) = self.expr(expr)?;
        match of {
            Type::Memory | Type::File => Ok((slot, of)),
            _ => {
                wrong(expr.at, format!("[..] selects pages of memory or a file, not {}", of.name()))
            }
        }
    }

    fn end(&mut self, expr: Option<&Expr>) -> Done<End> {
        let Some(expr) = expr else { return Ok(End { slot: NONE, pages: false }) };
        match self.expr(expr)? {
            (slot, Type::Number) => Ok(End { slot, pages: true }),
            (slot, Type::Size) => Ok(End { slot, pages: false }),
            (_, of) => {
                wrong(expr.at, format!("expected a number of pages or a size, found {}", of.name()))
            }
        }
    }
}
