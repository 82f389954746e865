//! A Gaussian process: a smooth function through noisy values, with the uncertainty of each place
//! (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, chapters 2, 4, 5).
//!
//! The mean is constant, the correlation is Matern's with 5/2, with a length for each knob, and
//! noise that is the same everywhere. Lengths and noise are those of a fixed list with the largest
//! likelihood, found by single steps, so that equal values give equal functions.

/// The lengths over which values stay alike, in ranges of a knob.
const LENGTHS: [f64; 12] = [0.06, 0.09, 0.13, 0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.5, 5.0, 12.0];
/// The variances of the noise, as shares of that of the function.
const NOISES: [f64; 7] = [1e-6, 1e-4, 1e-3, 4e-3, 0.02, 0.1, 0.5];
/// Starting points of the search: indices of all lengths, and of the noise.
const STARTS: [(usize, usize); 2] = [(4, 2), (7, 3)];
/// The scatter of the logarithm of a length before anything is known, around one range of a knob.
const PRIOR: f64 = 1.5;

/// A function that was fitted to values at places.
pub(super) struct Process {
    places: Vec<Vec<f64>>,
    lengths: Vec<f64>,
    noise: f64,
    factor: Factor,
    /// The mean, and the variance around it.
    level: f64,
    variance: f64,
    /// The inverse of the correlations, times the distances of the values from the mean.
    weights: Vec<f64>,
}

impl Process {
    /// Fits a function to a value at each of `places`; there is at least one.
    pub(super) fn fit(places: &[Vec<f64>], values: &[f64]) -> Self {
        let knobs = places[0].len();
        let at = |choice: &[usize]| {
            let lengths = choice[..knobs].iter().map(|&index| LENGTHS[index]).collect();
            Self::with(places, values, lengths, NOISES[choice[knobs]])
        };
        let mut best: Option<(f64, Self)> = None;
        for (length, noise) in STARTS {
            let mut choice = vec![length; knobs];
            choice.push(noise);
            let first = at(&choice);
            let mut here = (first.likelihood(), first);
            loop {
                let mut next = None;
                for knob in 0..=knobs {
                    let most = if knob < knobs { LENGTHS.len() } else { NOISES.len() };
                    let steps = [choice[knob].checked_sub(1), Some(choice[knob] + 1)];
                    for index in steps.into_iter().flatten().filter(|&index| index < most) {
                        let mut other = choice.clone();
                        other[knob] = index;
                        let process = at(&other);
                        let likelihood = process.likelihood();
                        let so_far = next.as_ref().map_or(here.0, |(_, (so_far, _))| *so_far);
                        if likelihood > so_far + 1e-9 {
                            next = Some((other, (likelihood, process)));
                        }
                    }
                }
                let Some((better, there)) = next else { break };
                (choice, here) = (better, there);
            }
            if best.as_ref().is_none_or(|(likelihood, _)| here.0 > *likelihood) {
                best = Some(here);
            }
        }
        best.expect("there is a starting point").1
    }

    fn with(places: &[Vec<f64>], values: &[f64], lengths: Vec<f64>, noise: f64) -> Self {
        let mut factor = Factor::default();
        for (row, place) in places.iter().enumerate() {
            let near = places[..row].iter().map(|other| alike(&lengths, place, other));
            factor.push(&near.collect::<Vec<_>>(), 1.0 + noise);
        }
        let ones = factor.solved(&vec![1.0; values.len()]);
        let level = dot(&ones, values) / ones.iter().sum::<f64>();
        let apart: Vec<f64> = values.iter().map(|value| value - level).collect();
        let weights = factor.solved(&apart);
        let variance = (dot(&weights, &apart) / values.len() as f64).max(1e-12);
        Self { places: places.to_vec(), lengths, noise, factor, level, variance, weights }
    }

    /// Returns the logarithm of the likelihood of the values, with the prior of the lengths.
    fn likelihood(&self) -> f64 {
        let values = self.places.len() as f64;
        let prior: f64 = self.lengths.iter().map(|length| (length.ln() / PRIOR).powi(2)).sum();
        -0.5 * (values * self.variance.ln() + prior) - self.factor.log_root()
    }

    /// Returns the most likely value at a place.
    pub(super) fn mean(&self, place: &[f64]) -> f64 {
        let near = self.places.iter().zip(&self.weights);
        self.level + near.map(|(at, weight)| weight * alike(&self.lengths, place, at)).sum::<f64>()
    }

    /// Returns what a place has in common with those of the values; see [`Shared`].
    pub(super) fn shared(&self, place: &[f64]) -> Shared {
        let near = self.places.iter().map(|at| alike(&self.lengths, place, at));
        Shared(self.factor.forward(&near.collect::<Vec<_>>()))
    }

    /// Returns the standard deviation of the function at a place.
    pub(super) fn deviation(&self, shared: &Shared) -> f64 {
        (self.variance * (1.0 - dot(&shared.0, &shared.0)).max(0.0)).sqrt()
    }

    /// Adds to `shared` of a place what a value at `new` will tell about it, whatever it is.
    pub(super) fn told(&self, place: &[f64], shared: &mut Shared, new: &[f64], of_new: &Shared) {
        let known = dot(&of_new.0, &of_new.0);
        let more = alike(&self.lengths, place, new) - dot(&shared.0[..of_new.0.len()], &of_new.0);
        shared.0.push(more / (1.0 + self.noise - known).max(1e-9).sqrt());
    }

    /// Returns for each value what the others predict in its place: the most likely value, and the
    /// standard deviation of a value with its noise.
    pub(super) fn left_out(&self, values: &[f64]) -> Vec<(f64, f64)> {
        let inverse = self.factor.inverse_diagonal();
        let each = values.iter().zip(&self.weights).zip(inverse);
        each.map(|((value, weight), own)| (value - weight / own, (self.variance / own).sqrt()))
            .collect()
    }
}

/// The correlations of a place with the places of values: a row of their factor.
#[derive(Clone)]
pub(super) struct Shared(Vec<f64>);

fn alike(lengths: &[f64], a: &[f64], b: &[f64]) -> f64 {
    let far = a.iter().zip(b).zip(lengths).map(|((a, b), length)| ((a - b) / length).powi(2));
    let far = (5.0 * far.sum::<f64>()).sqrt();
    (1.0 + far + far * far / 3.0) * (-far).exp()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The lower triangle whose product with its transpose is a matrix (Cholesky), row by row.
#[derive(Default)]
struct Factor(Vec<Vec<f64>>);

impl Factor {
    /// Adds a row: its entries before the diagonal, and that on it.
    fn push(&mut self, before: &[f64], on: f64) {
        let mut row = self.forward(before);
        let root = (on - dot(&row, &row)).max(1e-12).sqrt();
        row.push(root);
        self.0.push(row);
    }

    /// Returns the solution of the triangle for the right side.
    fn forward(&self, right: &[f64]) -> Vec<f64> {
        let mut found: Vec<f64> = Vec::with_capacity(right.len() + 1);
        for (row, value) in self.0.iter().zip(right) {
            let at = found.len();
            found.push((value - dot(&row[..at], &found)) / row[at]);
        }
        found
    }

    /// Returns the solution of the matrix for the right side.
    fn solved(&self, right: &[f64]) -> Vec<f64> {
        let mut found = self.forward(right);
        for at in (0..found.len()).rev() {
            found[at] /= self.0[at][at];
            let value = found[at];
            found[..at].iter_mut().zip(&self.0[at]).for_each(|(x, entry)| *x -= entry * value);
        }
        found
    }

    /// Returns half of the logarithm of the determinant.
    fn log_root(&self) -> f64 {
        self.0.iter().enumerate().map(|(at, row)| row[at].ln()).sum()
    }

    fn inverse_diagonal(&self) -> Vec<f64> {
        let rows = self.0.len();
        let mut sums = vec![0.0; rows];
        for column in 0..rows {
            let mut unit = vec![0.0; rows];
            unit[column] = 1.0;
            sums[column] = self.solved(&unit)[column];
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
        let places: Vec<Vec<f64>> =
            (0..number).map(|at| vec![at as f64 / (number - 1) as f64]).collect();
        let values = places.iter().map(|place| (6.0 * place[0]).sin()).collect();
        (places, values)
    }

    #[test]
    fn a_smooth_function_is_found_between_its_values() {
        let (places, values) = line(9);
        let process = Process::fit(&places, &values);
        for at in [0.06, 0.3, 0.55, 0.93] {
            let (mean, truth) = (process.mean(&[at]), (6.0 * at).sin());
            assert!((mean - truth).abs() < 0.02, "{at}: {mean} for {truth}");
            assert!(process.deviation(&process.shared(&[at])) < 0.05, "{at}");
        }
        assert!(process.deviation(&process.shared(&[3.0])) > 0.3, "far away nothing is known");
    }

    /// The predictions without a value are those of a process that never had it.
    #[test]
    fn left_out_values_are_those_of_a_process_without_them() {
        let (places, values) = line(8);
        let whole = Process::fit(&places, &values);
        let (mean, deviation) = whole.left_out(&values)[3];
        let others = |of: &[f64]| [&of[..3], &of[4..]].concat();
        let places: Vec<Vec<f64>> = [&places[..3], &places[4..]].concat();
        let mut part = Process::with(&places, &others(&values), whole.lengths.clone(), whole.noise);
        let apart: Vec<f64> = others(&values).iter().map(|value| value - whole.level).collect();
        part.weights = part.factor.solved(&apart);
        (part.level, part.variance) = (whole.level, whole.variance);
        let at = [3.0 / 7.0];
        assert!((part.mean(&at) - mean).abs() < 1e-9);
        let own = part.deviation(&part.shared(&at)).powi(2) + part.noise * part.variance;
        assert!((own.sqrt() - deviation).abs() < 1e-9);
    }

    /// A place that is asked for lowers the doubt around it before its value is known.
    #[test]
    fn a_place_that_will_be_measured_is_certain() {
        let (places, values) = line(6);
        let process = Process::fit(&places, &values);
        let (new, near) = ([0.5], [0.52]);
        let (of_new, mut of_near) = (process.shared(&new), process.shared(&near));
        let before = process.deviation(&of_near);
        process.told(&near, &mut of_near, &new, &of_new);
        let after = process.deviation(&of_near);
        let more: Vec<Vec<f64>> = places.iter().cloned().chain([new.to_vec()]).collect();
        let told: Vec<f64> = values.iter().copied().chain([process.mean(&new)]).collect();
        let with = Process::with(&more, &told, process.lengths.clone(), process.noise);
        let share = with.deviation(&with.shared(&near)) / with.variance.sqrt();
        assert!(after < before / 2.0, "{before} {after}");
        assert!((after / process.variance.sqrt() - share).abs() < 1e-6);
    }
}
