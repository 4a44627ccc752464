//! Scenarios of HTML reports of long runs, which stay small and show nothing where nothing was
//! measured.

use std::fs;

use anyhow::{Context, Result, ensure};
use horolog_record::Distribution;
use horolog_stats::Histogram;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::Browser;
use crate::page_samples::{RandomDistributions, sample_result, without_fields};
use crate::pages::{RenderedPage, check_page, render_report};
use crate::scenario::{Need, Scenario};
use crate::{long_run_pages, scenarios};

/// Trials and points of a run of ten minutes: one per minute and one per second.
const TRIALS: u64 = 10;
const POINTS: u64 = 600;
/// Points of a run of an hour, and of one whose table lists only the worst intervals.
pub(crate) const HOUR: u64 = 3_600;
const LONGEST: u64 = 10_000;
/// Limit of the number of elements of a page.
const ELEMENTS_MAX: u64 = 8_000;
const SAMPLES: u64 = 10_000;
const INTERVAL_NS: u64 = 100_000_000;

pub(crate) fn all(needs: &'static [Need]) -> Vec<Scenario> {
    scenarios!(needs, long_run_pages:
        a_page_of_ten_minutes_is_small_and_correct,
        a_page_of_hours_is_small_and_correct,
        nothing_is_drawn_where_nothing_was_measured,
    )
    .into()
}

/// Writes the page of a result, opens it, and returns its contents.
fn open_page(
    browser: &mut Browser,
    directory: &TempDir,
    name: &str,
    result: &Value,
) -> Result<RenderedPage> {
    let file = directory.path().join(name).with_extension("json");
    fs::write(&file, result.to_string())?;
    browser.open(&render_report(&file, directory.path())?)?;
    RenderedPage::of(browser)
}

/// Returns a load of ten trials at rising rates, with all histograms and a point for each second.
pub(crate) fn load_of_seconds(seconds: u64) -> Result<Value> {
    let mut result = sample_result("load")?;
    let (trial, point) = (result["trials"][0].take(), result["series"]["points"][0].take());
    let (trial, point) =
        (without_fields(&trial, &["phase"]), without_fields(&point, &["unsynchronised"]));
    let trials = (0..TRIALS).map(|number| {
        let mut trial = trial.clone();
        trial["achieved_rate"] = json!(1_000.5 + 250.0 * number as f64);
        trial
    });
    result["trials"] = trials.collect();
    RandomDistributions::new(3).replace_in(&mut result)?;
    let points = (0..seconds).map(|number| {
        let mut point = point.clone();
        point["at_s"] = json!(number as f64);
        point["trial"] = json!(number * TRIALS / seconds);
        point["lost"] = json!(number % 7);
        for (index, figure) in ["p50", "p90", "p99", "p99_9", "max"].into_iter().enumerate() {
            point["rtt_ns"][figure] = json!(3_615 + 17 * number + 50_000 * index as u64);
        }
        point
    });
    result["series"] = json!({ "interval_s": 1.0, "points": points.collect::<Value>() });
    Ok(without_fields(&result, &["search", "outages", "overload"]))
}

/// Returns a query of ten samples per second, with varying offsets.
fn many_samples() -> Result<Value> {
    let mut result = sample_result("query")?;
    let sample = result["servers"][0]["samples"][0].take();
    let samples = (0..SAMPLES).map(|number| {
        let mut sample = sample.clone();
        sample["sequence"] = json!(number);
        sample["t1_ns"] = json!(1_000 + number * INTERVAL_NS);
        sample["offset_ns"] = json!((number * 7_919 % 20_011) as i64 - 10_000);
        sample["delay_ns"] = json!(90 + number * 104_729 % 5_003);
        sample
    });
    result["servers"][0]["samples"] = samples.collect();
    Ok(result)
}

fn a_page_of_ten_minutes_is_small_and_correct() -> Result<()> {
    let directory = TempDir::new()?;
    let mut browser = Browser::start(1280, 900)?;
    let load = load_of_seconds(POINTS)?;
    let rendered = open_page(&mut browser, &directory, "load", &load)?;
    ensure!(rendered.table("intervals")?.rows.len() == POINTS as usize, "a second is not shown");
    check_page(&mut browser, &load)?;
    let query = many_samples()?;
    open_page(&mut browser, &directory, "query", &query)?;
    let errors = browser.take_errors();
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}

fn a_page_of_hours_is_small_and_correct() -> Result<()> {
    let directory = TempDir::new()?;
    let mut browser = Browser::start(1280, 900)?;
    let load = load_of_seconds(HOUR)?;
    open_page(&mut browser, &directory, "hour", &load)?;
    check_page(&mut browser, &load)?;
    let rendered = open_page(&mut browser, &directory, "longest", &load_of_seconds(LONGEST)?)?;
    ensure!(rendered.table("intervals-worst")?.rows.len() == 20, "wrong number of worst intervals");
    for name in ["hour", "longest"] {
        browser.open(&directory.path().join(name).with_extension("html"))?;
        let elements = browser.evaluate("document.querySelectorAll('*').length")?;
        let elements = elements.as_u64().context("no number")?;
        ensure!(elements < ELEMENTS_MAX, "{name}: {elements} elements");
    }
    let errors = browser.take_errors();
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}

/// Returns the number of coloured pixels of a plot in a range of its horizontal axis.
fn painted_pixels(browser: &mut Browser, id: &str, [from, to]: [f64; 2]) -> Result<u64> {
    let script = format!(
        "(() => {{ const chart = document.getElementById('plot-{id}'); \
         const plot = JSON.parse(document.getElementById('plots').textContent)\
         .find((one) => one.id === '{id}'); \
         const isLog = plot.x.scale === 'log'; const spread = (x) => isLog ? Math.log10(x) : x; \
         const xs = plot.views[plot.view].series.flatMap((one) => \
         [...one.points.map((point) => point[0]), ...(one.gaps ?? [])]).map(spread); \
         const [low, high] = [Math.min(...xs), Math.max(...xs)]; \
         const margin = Math.max((high - low) * 0.04, isLog ? Math.log10(1.1) : 0); \
         const canvas = chart.querySelector('canvas'); const box = canvas.getBoundingClientRect(); \
         const over = chart.querySelector('.u-over').getBoundingClientRect(); \
         const ratio = canvas.width / box.width; \
         const at = (x) => ((spread(x) - low + margin) / (high - low + 2 * margin) * over.width \
         + over.left - box.left) * ratio; \
         const {{ data }} = canvas.getContext('2d').getImageData(at({from}), \
         (over.top - box.top) * ratio, at({to}) - at({from}), over.height * ratio); \
         let count = 0; for (let i = 0; i < data.length; i += 4) {{ \
         const pixel = [data[i], data[i + 1], data[i + 2]]; \
         count += Math.max(...pixel) - Math.min(...pixel) > 90 ? 1 : 0; }} return count; }})()"
    );
    browser.evaluate(&script)?.as_u64().context("no number")
}

fn nothing_is_drawn_where_nothing_was_measured() -> Result<()> {
    let directory = TempDir::new()?;
    let mut browser = Browser::start(1280, 900)?;
    let mut load = load_of_seconds(20)?;
    for second in [8, 9, 10, 14, 16] {
        let point = &mut load["series"]["points"][second];
        point["lost"] = point["sent"].clone();
        point["received"] = json!(0);
        *point = without_fields(point, &["rtt_ns"]);
    }
    let mut histogram = Histogram::new();
    for _ in 0..100 {
        histogram.record(1_000);
        histogram.record(1_000_000);
    }
    let rtt = Distribution::from_histogram(&histogram).context("no distribution")?;
    for trial in load["trials"].as_array_mut().context("no trials")? {
        trial["rtt_ns"] = serde_json::to_value(&rtt)?;
    }
    let rendered = open_page(&mut browser, &directory, "outage", &load)?;
    ensure!(rendered.figure.is_some(), "no verdict");
    for (id, range, is_painted) in [
        ("latency-over-time", [3.0, 6.8], true),
        ("latency-over-time", [7.2, 10.8], false),
        ("latency-over-time", [14.8, 15.2], true),
        ("latency-over-time", [15.3, 16.7], false),
        ("loss-over-time", [7.2, 10.8], true),
        ("rtt-histogram", [950.0, 1_150.0], true),
        ("rtt-histogram", [1_300.0, 900_000.0], false),
    ] {
        let count = painted_pixels(&mut browser, id, range)?;
        ensure!((count > 0) == is_painted, "{id}: {count} pixels are painted in {range:?}");
    }
    Ok(())
}
