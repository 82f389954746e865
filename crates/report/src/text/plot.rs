//! Curves as text, both axes logarithmic.

use super::{WIDTH, wrap};
use crate::number::{change, scaled};

/// Lines of a plot, and columns between its axis and the right edge.
const HEIGHT: usize = 12;
const LEFT: usize = 9;
const ACROSS: usize = WIDTH - LEFT - 1;
/// The marks of curves, in order.
const MARKS: [char; 6] = ['o', 'x', '+', '*', '#', '@'];
/// The mark of a point that several curves share, and of the ideal.
const SHARED: char = '%';
const IDEAL: char = '.';

/// A named curve: points with x and y above 0. Others are left out.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Returns a plot of up to six curves. With `ideal`, dots show the first point of the first curve
/// times x, up to the largest x, so that the distance of a curve from them is what it loses. Empty
/// if there are fewer than two different values of x.
pub(super) fn plot(y: &str, x: &str, curves: &[Curve], ideal: bool) -> Vec<String> {
    let seen = |&(x, y): &(f64, f64)| x > 0.0 && y > 0.0;
    let points: Vec<(f64, f64)> =
        curves.iter().flat_map(|curve| &curve.points).copied().filter(seen).collect();
    let span = |of: fn(&(f64, f64)) -> f64| {
        let least = points.iter().map(of).fold(f64::INFINITY, f64::min);
        let most = points.iter().map(of).fold(0.0, f64::max);
        (least, most)
    };
    let (xs, mut ys) = (span(|point| point.0), span(|point| point.1));
    if points.is_empty() || xs.0 == xs.1 {
        return vec![];
    }
    let first = curves.first().and_then(|curve| {
        let points = curve.points.iter().copied().filter(seen);
        points.min_by(|a, b| a.0.total_cmp(&b.0))
    });
    let first = first.filter(|_| ideal);
    if let Some((x, y)) = first {
        ys = (ys.0.min(y * xs.0 / x), ys.1.max(y * xs.1 / x));
    }
    let place = |value: f64, (least, most): (f64, f64), size: usize| -> Option<usize> {
        let share = if most > least { (value / least).ln() / (most / least).ln() } else { 0.5 };
        let at = (share * (size - 1) as f64).round();
        (0.0..size as f64).contains(&at).then_some(at as usize)
    };
    let mut grid = vec![vec![' '; ACROSS]; HEIGHT];
    let mut put = |(x, y): (f64, f64), mark: char| {
        let (Some(column), Some(row)) = (place(x, xs, ACROSS), place(y, ys, HEIGHT)) else {
            return;
        };
        let cell = &mut grid[HEIGHT - 1 - row][column];
        *cell = match *cell {
            ' ' | IDEAL => mark,
            other if other == mark => mark,
            _ => SHARED,
        };
    };
    if let Some((x, y)) = first {
        for column in 0..ACROSS {
            let share = column as f64 / (ACROSS - 1) as f64;
            let at = xs.0 * (xs.1 / xs.0).powf(share);
            put((at, y * at / x), IDEAL);
        }
    }
    for (curve, mark) in curves.iter().zip(MARKS) {
        curve.points.iter().copied().filter(seen).for_each(|point| put(point, mark));
    }
    let mut lines = framed((y, ys), (x, xs), grid);
    let names = curves.iter().zip(MARKS).map(|(curve, mark)| format!("{mark} {}", curve.name));
    let mut legend: Vec<String> = names.collect();
    if curves.len() > 1 {
        legend.push(format!("{SHARED} several"));
    }
    if first.is_some() {
        legend.push(format!("{IDEAL} in proportion to {x}"));
    }
    lines.extend(wrap(&legend.join("   "), "          ", "          "));
    lines
}

/// Returns a grid with its axes, each with its name, and its least and largest value.
fn framed(
    (y, ys): (&str, (f64, f64)),
    (x, xs): (&str, (f64, f64)),
    grid: Vec<Vec<char>>,
) -> Vec<String> {
    let row_percent = 100.0 * ((ys.1 / ys.0).powf(1.0 / (HEIGHT - 1) as f64) - 1.0);
    let title = format!(
        "{y} (both axes logarithmic, so none begins at 0; a row is {})",
        change(row_percent)
    );
    let mut lines = wrap(&title, "", "  ");
    for (row, cells) in grid.into_iter().enumerate() {
        let label = match row {
            0 => scaled(ys.1, ""),
            _ if row == HEIGHT - 1 => scaled(ys.0, ""),
            _ => String::new(),
        };
        let cells: String = cells.into_iter().collect();
        lines.push(format!("{label:>LEFT$}|{cells}"));
    }
    lines.push(format!("{:>LEFT$}+{}", "", "-".repeat(ACROSS)));
    let (least, most) = (scaled(xs.0, ""), format!("{} {x}", scaled(xs.1, "")));
    let gap = ACROSS.saturating_sub(least.len());
    lines.push(format!("{:>LEFT$} {least}{most:>gap$}", ""));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_that_scales_lies_on_the_ideal_and_one_that_does_not_lies_below() {
        let of = |name: &str, y: [f64; 3]| Curve {
            name: name.to_owned(),
            points: [1.0, 8.0, 64.0].into_iter().zip(y).collect(),
        };
        let curves = [of("stock", [10.0, 40.0, 40.0]), of("lazy", [10.0, 80.0, 640.0])];
        let lines = plot("ops_per_s", "cpus", &curves, true);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        let top = lines.iter().position(|line| line.contains('|')).unwrap();
        let row = |mark: char| lines.iter().position(|line| line.trim_end().ends_with(mark));
        assert_eq!(row('x'), Some(top), "the last point of lazy is in the corner: {lines:#?}");
        assert!(row('o').unwrap() > top + 5, "{lines:#?}");
        let low = &lines[top + HEIGHT - 1];
        assert!(low.starts_with("       10|%"), "both begin there: {lines:#?}");
        assert!(lines.last().unwrap().contains("o stock x lazy % several . in proportion to cpus"));
    }

    #[test]
    fn the_ideal_is_drawn_to_its_end_and_no_axis_seems_to_begin_at_0() {
        let of = |name: &str, y: [f64; 2]| Curve {
            name: name.to_owned(),
            points: [24.0, 48.0].into_iter().zip(y).collect(),
        };
        let curves = [of("stock", [12_000.0, 12_864.0]), of("lazy", [12_000.0, 14_055.0])];
        let lines = plot("ops_per_s", "cpus", &curves, true);
        assert!(lines[0].contains("both axes logarithmic") && lines[0].contains("a row is +6.5%"));
        let dotted = lines.iter().filter(|line| line.contains('|') && line.contains('.')).count();
        assert_eq!(dotted, HEIGHT, "from corner to corner: {lines:#?}");
        let row = |mark: char| lines.iter().position(|line| line.trim_end().ends_with(mark));
        assert!(row('x') < row('o') && row('x') > Some(1), "{lines:#?}");
    }

    #[test]
    fn one_point_is_no_curve() {
        let curve = Curve { name: "stock".to_owned(), points: vec![(8.0, 1.0)] };
        assert!(plot("y", "cpus", &[curve], true).is_empty());
        let zero = Curve { name: "stock".to_owned(), points: vec![(1.0, 0.0), (2.0, 0.0)] };
        assert!(plot("y", "cpus", &[zero], true).is_empty());
    }
}
