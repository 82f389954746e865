//! Planted functions: the map from a tenth of the points of a grid, next to the whole grid.

use super::*;

/// Points of a grid for each knob, and of the whole.
const GRID: usize = 20;

fn knob(name: &str) -> Knob {
    Knob {
        name: name.to_owned(),
        unit: "1".to_owned(),
        range: [1.0, 1000.0],
        log: true,
        whole: false,
    }
}

fn question(knobs: usize, arms: usize) -> Question {
    let knobs = ["a", "b", "c", "d"][..knobs].iter().map(|name| knob(name)).collect();
    Question { knobs, arms, matters: 1.01_f64.ln() }
}

/// The gains of all arms at a point, as shares of the ranges.
type Planted = fn(&[f64]) -> Vec<f64>;

/// Noise of a share of `size` that depends on the place alone.
fn noise(place: &[f64], size: f64) -> f64 {
    let bits = place.iter().fold(7_u64, |hash, share| {
        (hash ^ share.to_bits()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    size * (2.0 * (bits >> 11) as f64 / (1_u64 << 53) as f64 - 1.0)
}

fn runs(question: &Question, planted: Planted, points: usize) -> Vec<Tried> {
    let mut tried = vec![];
    while tried.len() < points {
        for at in question.next(&tried) {
            if tried.len() < points {
                tried.push(Tried { gains: Some(planted(&at)), at });
            }
        }
    }
    tried
}

/// The share of the grid with wrong arms, and the distance of the farthest of them from the
/// boundary, in ranges of a knob.
fn against_grid(question: &Question, planted: Planted, points: usize) -> (f64, f64, MapError) {
    let settled = question.settled(&runs(question, planted, points)).expect("enough points");
    let knobs = question.knobs.len();
    let all = GRID.pow(knobs as u32);
    let place = |at: usize| -> Vec<f64> {
        let index = |knob: usize| at / GRID.pow(knob as u32) % GRID;
        (0..knobs).map(|knob| index(knob) as f64 / (GRID - 1) as f64).collect()
    };
    let places: Vec<Vec<f64>> = (0..all).map(place).collect();
    let truth: Vec<Best> = places.iter().map(|at| question.best(&planted(at))).collect();
    let wrong: Vec<usize> = (0..all).filter(|&at| settled.best(&places[at]) != truth[at]).collect();
    let to_boundary = |at: usize| {
        let others = (0..all).filter(|&other| truth[other] != truth[at]);
        let apart = |other: usize| {
            let each = places[at].iter().zip(&places[other]);
            each.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        others.map(apart).fold(f64::MAX, f64::min)
    };
    let far = wrong.iter().map(|&at| to_boundary(at)).fold(0.0, f64::max);
    (wrong.len() as f64 / all as f64, far, settled.error())
}

/// The boundary is within a tenth of the ranges of that of a full grid, with a tenth of its runs.
fn assert_close(what: &str, question: &Question, planted: Planted, points: usize) -> MapError {
    let (wrong, far, error) = against_grid(question, planted, points);
    println!("{what}: {points} points, {wrong:.3} wrong, {far:.3} away, {error:?}");
    assert!(wrong < 0.05, "{what}: {wrong} of the grid is wrong");
    assert!(far <= 0.1, "{what}: a wrong place is {far} from the boundary");
    assert!(wrong < 3.0 * error.share + 0.01, "{what}: {wrong} wrong, but it says {error:?}");
    error
}

/// A tenth of a grid of two knobs.
const TENTH: usize = GRID * GRID / 10;

fn plane(at: &[f64]) -> Vec<f64> {
    vec![0.0, 0.8 * (at[0] + at[1] - 0.9)]
}

fn curved(at: &[f64]) -> Vec<f64> {
    vec![0.0, 0.5 * ((at[0] - 0.2).hypot(at[1] - 0.3) - 0.45)]
}

/// A corner: the second arm loses by far where both knobs are high, and it does not matter else.
fn corner(at: &[f64]) -> Vec<f64> {
    let loss = 1.5 * (at[0] - 0.4).max(0.0) * (at[1] - 0.3).max(0.0);
    vec![0.0, -loss]
}

#[test]
fn a_tenth_of_a_grid_finds_its_boundary() {
    assert_close("plane", &question(2, 2), plane, TENTH);
    assert_close("curved", &question(2, 2), curved, TENTH);
    assert_close("corner", &question(2, 2), corner, TENTH);
}

#[test]
fn noise_of_two_percent_moves_it_little() {
    let noisy: Planted = |at| vec![noise(at, 0.02), curved(at)[1]];
    let (wrong, _, error) = against_grid(&question(2, 2), noisy, TENTH);
    let truth = question(2, 2);
    let settled = truth.settled(&runs(&truth, noisy, TENTH)).expect("enough points");
    let places = settled.places.iter();
    let off = places.filter(|at| settled.best(at) != truth.best(&curved(at))).count();
    let off = off as f64 / settled.places.len() as f64;
    println!("noise: {wrong} of a noisy grid, {off} of the true map, {error:?}");
    assert!(off < 0.05, "{off}: {error:?}");
    assert!(off < 3.0 * error.share, "{off}: {error:?}");
}

#[test]
fn three_arms_have_three_boundaries() {
    let three: Planted = |at| vec![0.0, 0.6 * (at[0] - 0.5), 0.7 * (at[1] - 0.6)];
    assert_close("three arms", &question(2, 3), three, TENTH);
    let regions = question(2, 3).settled(&runs(&question(2, 3), three, TENTH)).unwrap().regions();
    let alone = regions.iter().filter(|region| region.best.0.count_ones() == 1);
    assert_eq!(alone.count(), 3, "{regions:?}");
}

#[test]
fn a_knob_that_decides_nothing_is_named() {
    let planted: Planted = |at| vec![0.0, 0.9 * (at[0] - 0.35) + 0.25 * at[2]];
    let question = question(3, 2);
    assert_close("three knobs", &question, planted, 80);
    let settled = question.settled(&runs(&question, planted, 80)).expect("enough points");
    let decides = settled.decides();
    assert!(decides[1] < 0.03 && decides[2] < decides[0] / 2.0, "{decides:?}");
}

#[test]
fn without_a_boundary_there_is_one_region() {
    let never: Planted = |at| vec![0.0, noise(at, 0.004)];
    let always: Planted = |at| vec![0.3 + at[0], 0.0];
    for (planted, both) in [(never, true), (always, false)] {
        let question = question(2, 2);
        let settled = question.settled(&runs(&question, planted, TENTH)).expect("enough points");
        let regions = settled.regions();
        assert_eq!(regions.len(), 1, "{regions:?}");
        assert_eq!((regions[0].best.has(0), regions[0].best.has(1)), (true, both));
        let error = settled.error();
        assert!(error.distance.is_none() && error.share < 0.01 && error.missed == 0, "{error:?}");
        assert!(regions[0].rule.is_none());
    }
}

/// More runs begin with the same ones, and equal results give equal points.
#[test]
fn points_depend_on_results_alone() {
    let question = question(2, 2);
    let (few, more) = (runs(&question, curved, 21), runs(&question, curved, 40));
    assert_eq!(few, more[..21]);
    assert_eq!(more, runs(&question, curved, 40));
    let other = runs(&question, plane, 40);
    assert_eq!(other.iter().zip(&more).take_while(|(a, b)| a.at == b.at).count(), 12);
}

/// A point whose runs fail is not run again, and the others are enough.
#[test]
fn points_without_a_result_are_left_out() {
    let question = question(2, 2);
    let mut tried: Vec<Tried> = vec![];
    while tried.len() < 48 {
        for at in question.next(&tried) {
            let gains = (at[0] < 0.8).then(|| plane(&at));
            assert!(!has(&tried, &at));
            tried.push(Tried { at, gains });
        }
    }
    let settled = question.settled(&tried).expect("most have a result");
    assert!(!settled.best(&[0.7, 0.7]).has(0) && !settled.best(&[0.1, 0.1]).has(1));
    let none: Vec<Tried> = tried.into_iter().map(|point| Tried { gains: None, ..point }).collect();
    assert!(question.settled(&none).is_none() && !question.next(&none).is_empty());
}

/// Whole numbers are run once each, until there are none left.
#[test]
fn few_whole_numbers_end() {
    let whole = Knob { range: [1.0, 3.0], whole: true, log: false, ..knob("n") };
    let question = Question { knobs: vec![whole.clone(), whole], arms: 2, matters: 0.01 };
    let mut tried: Vec<Tried> = vec![];
    loop {
        let next = question.next(&tried);
        if next.is_empty() {
            break;
        }
        tried.extend(next.into_iter().map(|at| Tried { gains: Some(plane(&at)), at }));
    }
    assert_eq!(tried.len(), 9);
}

#[test]
fn places_along_the_boundary_are_at_the_distance() {
    let question = question(2, 2);
    let settled = question.settled(&runs(&question, plane, TENTH)).expect("enough points");
    let places = settled.along(6, 0.1);
    assert_eq!(places.len(), 6);
    let sides: Vec<bool> = places.iter().map(|at| settled.best(at).has(0)).collect();
    assert!(sides.contains(&true) && sides.contains(&false), "{places:?}");
    for at in places {
        let far = (at[0] + at[1] - 0.9 - 0.0125_f64).abs() / 2.0_f64.sqrt();
        assert!((0.05..0.16).contains(&far), "{at:?}: {far}");
    }
}
