//! Waits: how long those for each lock last, the worst one marked; and distributions that studies
//! collect.

use maud::{Markup, html};
use mmscale_document::{Document, Histogram, LockRecord};

use super::picture::{Picture, axis, colour, legend, strip};
use super::scale::{Scale, percent};
use crate::number::scaled;

/// Pixels of a row of waits, and of a distribution.
const ROW: u32 = 18;
const BARS: u32 = 64;
/// Number of lock sites to show.
const SITES: usize = 8;

/// Returns the picture of the waits by lock, and one for each distribution of times.
pub(super) fn pictures(document: &Document) -> Vec<Picture> {
    let mut pictures: Vec<Picture> = by_lock(document).into_iter().collect();
    let mut names: Vec<&String> =
        document.arms.iter().flat_map(|arm| arm.histograms.keys()).collect();
    names.sort();
    names.dedup();
    pictures.extend(names.into_iter().filter_map(|name| distribution(document, name)));
    pictures
}

/// The waits of an arm at a lock.
fn waits_at<'a>(document: &'a Document, site: (&str, &str)) -> Vec<(usize, &'a LockRecord)> {
    let arms = document.arms.iter().enumerate();
    arms.filter_map(|(at, arm)| {
        let same = |lock: &&LockRecord| (lock.class.as_str(), lock.site.as_str()) == site;
        Some((at, arm.locks.iter().find(same)?))
    })
    .filter(|(_, lock)| lock.contentions > 0)
    .collect()
}

fn by_lock(document: &Document) -> Option<Picture> {
    let mut sites: Vec<(&LockRecord, (&str, &str))> = document
        .arms
        .iter()
        .flat_map(|arm| &arm.locks)
        .filter(|lock| lock.contentions > 0)
        .map(|lock| (lock, (lock.class.as_str(), lock.site.as_str())))
        .collect();
    sites.sort_by_key(|(lock, _)| std::cmp::Reverse(lock.wait_total_ns));
    let mut shown: Vec<(&str, &str)> = vec![];
    for (_, site) in sites {
        if !shown.contains(&site) && shown.len() < SITES {
            shown.push(site);
        }
    }
    let rows: Vec<_> = shown.iter().map(|&site| (site, waits_at(document, site))).collect();
    let times = rows.iter().flat_map(|(_, waits)| waits);
    let scale =
        Scale::over(times.flat_map(|(_, lock)| [mean(lock), lock.wait_max_ns.max(1) as f64]), true);
    let arms: Vec<&str> = document.arms.iter().map(|arm| arm.arm.as_str()).collect();
    let body = html! {
        (legend(&arms))
        @for ((class, site), waits) in &rows {
            @let worst = waits.iter().map(|(_, lock)| lock.wait_max_ns).max().unwrap_or(0);
            @let worst = scaled(worst as f64, "ns");
            @let label = html! { b { (class) } " in " (site) ", worst " (worst) };
            (strip(&label, ROW, &wait_marks(waits, &scale)))
        }
        (axis(&scale, "ns"))
    };
    (!rows.is_empty()).then(|| Picture {
        title: "Waits for locks: mean and worst".to_owned(),
        how: "A dot is the mean wait of an arm at that place, the cross its worst wait over all \
              seeds; the axis is logarithmic, so a long line is a long tail."
            .to_owned(),
        wide: false,
        body,
    })
}

/// Returns the mean wait, in ns, at least 1 ns.
fn mean(lock: &LockRecord) -> f64 {
    (lock.wait_total_ns as f64 / lock.contentions.max(1) as f64).max(1.0)
}

fn wait_marks(waits: &[(usize, &LockRecord)], scale: &Scale) -> Markup {
    let step = ROW as f64 / (waits.len() as f64 + 1.0);
    html! {
        @for (row, (at, lock)) in waits.iter().enumerate() {
            @let y = step * (row as f64 + 1.0);
            @let (from, to) = (scale.percent(mean(lock)), scale.percent(lock.wait_max_ns as f64));
            line.tail.(colour(*at)) x1=(from) x2=(to) y1=(y) y2=(y) {}
            circle class=(colour(*at)) cx=(from) cy=(y) r="3.5" {
                title {
                    "mean " (scaled(mean(lock), "ns")) ", number of waits: " (lock.contentions)
                }
            }
            svg.worst x=(to) y=(y) width="1" height="1" overflow="visible" {
                title { "worst " (scaled(lock.wait_max_ns as f64, "ns")) }
                path.(colour(*at)) d="M-4,-4 L4,4 M-4,4 L4,-4" {}
            }
        }
    }
}

/// Returns the picture of a distribution; none if no arm has a value above 0 in it.
fn distribution(document: &Document, name: &str) -> Option<Picture> {
    let arms = document.arms.iter().enumerate();
    let arms = arms.filter_map(|(at, arm)| Some((at, arm.arm.as_str(), arm.histograms.get(name)?)));
    let arms: Vec<(usize, &str, &Histogram)> = arms.collect();
    let unit = arms.first()?.2.unit.clone();
    let ends = arms.iter().flat_map(|(.., histogram)| &histogram.buckets);
    let scale =
        Scale::over(ends.flat_map(|&[low, high, _]| [low.max(1) as f64, high as f64]), true);
    let body = html! {
        @for (at, arm, histogram) in &arms {
            @let worst = histogram.buckets.last().map_or(0, |bucket| bucket[1]);
            @let n: u64 = histogram.buckets.iter().map(|bucket| bucket[2]).sum();
            @let label = html! {
                b { (arm) } ", number: " (n) ", worst below " (scaled(worst as f64, &unit))
            };
            (strip(&label, BARS, &bars(*at, histogram, &scale, &unit)))
        }
        (axis(&scale, &unit))
    };
    let any = arms.iter().any(|(.., histogram)| !histogram.buckets.is_empty());
    any.then(|| Picture {
        title: format!("Distribution of {name}"),
        how:
            "A bar is the number of values in its range, on a logarithmic axis both ways, so that \
              single values are seen; the outlined bar has the worst one."
                .to_owned(),
        wide: false,
        body,
    })
}

fn bars(arm: usize, histogram: &Histogram, scale: &Scale, unit: &str) -> Markup {
    let most = histogram.buckets.iter().map(|bucket| bucket[2]).max().unwrap_or(1);
    let height = |n: u64| f64::from(BARS) * ((n + 1) as f64).ln() / ((most + 1) as f64).ln();
    let last = histogram.buckets.len().wrapping_sub(1);
    html! {
        @for (at, &[low, high, n]) in histogram.buckets.iter().enumerate() {
            @let from = scale.at(low.max(1) as f64);
            @let to = scale.at(high as f64);
            rect.bar.(colour(arm)).worst[at == last] x=(percent(from))
                y=(format!("{:.1}", f64::from(BARS) - height(n))) width=(percent(to - from))
                height=(format!("{:.1}", height(n))) {
                title { (scaled(low as f64, unit)) " to " (scaled(high as f64, unit)) ": " (n) }
            }
        }
    }
}
