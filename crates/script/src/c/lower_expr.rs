//! Values and parts of memory of a script as those of a program in C.

use super::lower::{Done, Lowering};
use super::tree::{Block, Expr, PAGE, Range, ZERO};
use crate::ast::{self, Binary, ExprKind};
use crate::compile::Type;
use crate::error::wrong;

impl<'a> Lowering<'a> {
    /// Reads a value. Calls with an effect are put before it.
    pub(super) fn expr(&mut self, expr: &'a ast::Expr, out: &mut Block) -> Done<(Expr, Type)> {
        Ok(match &expr.kind {
            ExprKind::Literal(literal) => {
                (Expr::Literal(literal.value, literal.unit), Type::of(literal.unit))
            }
            ExprKind::Name(name) => self.name(name),
            ExprKind::Call(call) => self.function(call, expr.at, out)?,
            ExprKind::Unary(unary, of) => {
                let (value, of) = self.expr(of, out)?;
                (Expr::Unary(*unary, Box::new(value)), of)
            }
            ExprKind::Binary(binary, sides) => {
                let (a, left) = self.expr(&sides[0], out)?;
                let (b, right) = self.expr(&sides[1], out)?;
                let of = left.binary(*binary, right).unwrap_or(left);
                (Expr::Binary(*binary, Box::new([a, b])), of)
            }
            ExprKind::Page(_) | ExprKind::Part(..) => {
                let range = self.range(expr, out)?;
                let of = self.vars[range.var.0].of;
                (Expr::Address(Box::new(range)), of)
            }
        })
    }

    fn name(&self, name: &str) -> (Expr, Type) {
        if let Some(var) = self.find(name) {
            let of = self.vars[var.0].of;
            if of == Type::Memory || of == Type::File {
                let range = Range { var, from: ZERO, size: Expr::SizeOf(var) };
                return (Expr::Address(Box::new(range)), of);
            }
            return (Expr::Var(var), of);
        }
        let params = &self.tree.params;
        if let Some(nth) = params.iter().position(|param| param.name.text == name) {
            return (Expr::Param(nth), Type::of(params[nth].default.unit));
        }
        match name {
            "cpu" => (Expr::Cpu, Type::Number),
            "cpus" => (Expr::Cpus, Type::Number),
            "nodes" => (Expr::Nodes, Type::Number),
            "now" => (Expr::Now, Type::Time),
            _ => (Expr::Ok, Type::Number),
        }
    }

    /// Reads memory, a file, or a part of one.
    pub(super) fn range(&mut self, expr: &'a ast::Expr, out: &mut Block) -> Done<Range> {
        match &expr.kind {
            ExprKind::Page(of) => {
                let whole = self.range(&of[0], out)?;
                let (page, _) = self.expr(&of[1], out)?;
                let from = Expr::binary(Binary::Multiply, page, PAGE);
                Ok(Range {
                    var: whole.var,
                    from: Expr::binary(Binary::Add, whole.from, from),
                    size: PAGE,
                })
            }
            ExprKind::Part(of, [from, to]) => {
                let whole = self.range(of, out)?;
                let from = self.end(from.as_deref(), out)?;
                let to = self.end(to.as_deref(), out)?;
                let bytes = |end: Option<End>, other: Expr| end.map_or(other, End::bytes);
                let size = match (from.clone(), to.clone()) {
                    (Some(End::Page(from)), Some(End::Page(to))) => {
                        End::Page(Expr::binary(Binary::Subtract, to, from)).bytes()
                    }
                    (from, to) => {
                        let (from, to) = (bytes(from, ZERO), bytes(to, whole.size));
                        Expr::binary(Binary::Subtract, to, from)
                    }
                };
                let from = Expr::binary(Binary::Add, whole.from, bytes(from, ZERO));
                Ok(Range { var: whole.var, from, size })
            }
            _ => match self.expr(expr, out)? {
                (Expr::Address(range), _) => Ok(*range),
                _ => wrong(expr.at, "this is not memory"),
            },
        }
    }

    /// Reads an end of a part.
    fn end(&mut self, end: Option<&'a ast::Expr>, out: &mut Block) -> Done<Option<End>> {
        let Some(end) = end else { return Ok(None) };
        let (value, of) = self.expr(end, out)?;
        Ok(Some(if of == Type::Size { End::Byte(value) } else { End::Page(value) }))
    }
}

/// An end of a part.
#[derive(Clone)]
enum End {
    Byte(Expr),
    Page(Expr),
}

impl End {
    fn bytes(self) -> Expr {
        match self {
            Self::Byte(bytes) => bytes,
            Self::Page(page) => Expr::binary(Binary::Multiply, page, PAGE),
        }
    }
}
