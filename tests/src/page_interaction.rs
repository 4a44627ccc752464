//! Interaction with plots: the legend at the pointer, zoom by a drag, and lines that are hidden by
//! keyboard.

use anyhow::{Context, Result, ensure};

use crate::browser::Browser;
use crate::pages::{Plot, RenderedPage};

/// Units of the legend's values, with their sizes in ns, per second, bytes or as a share.
const UNITS: [(&str, f64); 14] = [
    ("", 1.0),
    ("ns", 1.0),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 60e9),
    ("h", 3_600e9),
    ("%", 0.01),
    ("ppm", 1.0),
    ("×", 1.0),
    ("B", 1.0),
    ("B/s", 1.0),
    ("b/s", 1.0),
    ("/s", 1.0),
];
/// Decimal prefixes of the units.
const PREFIXES: [(&str, f64); 5] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];
/// Relative tolerance of legend values, which have three digits at most.
const TOLERANCE: f64 = 0.006;
/// Relative tolerance of legend values in scientific notation, which have one decimal.
const SCIENTIFIC_TOLERANCE: f64 = 0.05;
/// Tolerance of a tail fraction in e-folds, since the legend has few digits of it.
const TAIL_TOLERANCE: f64 = 0.5;
/// Presses of the tabulator key after which the legend of the first plot is reached.
const TABS_MAX: usize = 40;
/// Positions of the pointer, as shares of the width.
const POINTER_POSITIONS: [f64; 2] = [0.3, 0.8];

/// Checks legend, zoom and keyboard control of all plots on the open page.
pub(crate) fn check_plots(browser: &mut Browser, rendered: &RenderedPage) -> Result<()> {
    for plot in &rendered.plots {
        for position in POINTER_POSITIONS {
            let legend = legend_at(browser, &plot.id, position)?;
            check_legend(&legend, plot).with_context(|| format!("{} at {position}", plot.id))?;
        }
        check_redraw(browser, &plot.id).with_context(|| plot.id.clone())?;
    }
    if let Some(plot) = rendered.plots.first() {
        check_hiding_by_keyboard(browser)?;
        check_stepping_by_keyboard(browser, plot).with_context(|| plot.id.clone())?;
    }
    let errors = browser.take_errors();
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}

/// Returns the legend of a plot with the pointer at this share of its width.
pub(crate) fn legend_at(browser: &mut Browser, id: &str, share: f64) -> Result<Vec<String>> {
    let [left, top, width, height] = scroll_into_view(browser, id)?;
    browser.pointer("mouseMoved", [left + share * width, top + height / 2.0], 0)?;
    let values = format!(
        "[...document.querySelectorAll('#plot-{id} .u-value')].map((it) => it.textContent)"
    );
    Ok(serde_json::from_value(browser.evaluate(&values)?)?)
}

/// Scrolls a plot into view; returns its left, top, width and height on the screen, in pixels.
fn scroll_into_view(browser: &mut Browser, id: &str) -> Result<[f64; 4]> {
    let script = format!(
        "(() => {{ const over = document.querySelector('#plot-{id} .u-over'); \
         over.scrollIntoView({{ block: 'center' }}); const {{ left, top, width, height }} = \
         over.getBoundingClientRect(); return [left, top, width, height]; }})()"
    );
    Ok(serde_json::from_value(browser.evaluate(&script)?)?)
}

/// Converts a value of an axis to the unit of parsed legend values.
fn legend_value(unit: &str, value: f64) -> f64 {
    if unit == "seconds" { value * 1e9 } else { value }
}

/// Returns the value of a text of the legend, such as `1.5 ms` or `1 h 30 min`, in ns, per second,
/// bytes or as a share; `None` if it is none.
fn value_of(shown: &str) -> Option<f64> {
    if let Some((first, rest)) = shown.split_once(" h ").or(shown.split_once(" min ")) {
        let size = if shown.contains(" h ") { 3_600e9 } else { 60e9 };
        return Some(first.parse::<f64>().ok()? * size + value_of(rest)?);
    }
    let plain = shown.replace([',', '+'], "").replace('−', "-");
    let end = plain.find(|c: char| !(c.is_ascii_digit() || "-.e".contains(c)));
    let (digits, unit) = plain.split_at(end.unwrap_or(plain.len()));
    let size = PREFIXES.iter().find_map(|(prefix, power)| {
        let name = unit.trim().strip_prefix(prefix)?;
        let (_, size) = UNITS.iter().find(|(unit, _)| *unit == name)?;
        Some(size * power)
    })?;
    Some(digits.parse::<f64>().ok()? * size)
}

/// Checks that the legend's values are those of points at the legend's position, or near it.
pub(crate) fn check_legend(legend: &[String], plot: &Plot) -> Result<()> {
    let (x, values) = legend.split_first().context("no legend")?;
    let x = value_of(x).with_context(|| format!("the legend has no position: '{x}'"))?;
    let is_at = |point: &[f64; 2]| {
        if plot.x.unit == "tail" {
            return ((1.0 - x) * point[0]).ln().abs() < TAIL_TOLERANCE;
        }
        let at = legend_value(&plot.x.unit, point[0]);
        (at - x).abs() <= TOLERANCE * at.abs()
    };
    let all: Vec<_> = plot.selected_series()?.iter().collect();
    ensure!(values.len() == all.len(), "{} values for {} lines", values.len(), all.len());
    let is_point = all.iter().flat_map(|series| &series.points).any(&is_at);
    ensure!(is_point, "no line has a point at {x}");
    for (shown, series) in values.iter().zip(all) {
        let here = series.points.iter().find(|point| is_at(point));
        if shown == "–" {
            ensure!(here.is_none(), "{}: no value at {x}", series.label);
            continue;
        }
        let is_shown = |point: &[f64; 2]| {
            let value = legend_value(&plot.y.unit, point[1]);
            let tolerance = if shown.contains('e') { SCIENTIFIC_TOLERANCE } else { TOLERANCE };
            let near = |read: f64| (read - value).abs() <= tolerance * value.abs();
            value_of(shown).is_some_and(near)
        };
        // A line without a point at this position shows its nearest one.
        let is_right = match here {
            Some(point) if plot.x.unit != "tail" => is_shown(point),
            _ => series.points.iter().any(is_shown),
        };
        ensure!(is_right, "{}: no point ({x}, {shown})", series.label);
    }
    Ok(())
}

/// Returns a hash of the picture of a plot.
fn picture_hash(browser: &mut Browser, id: &str) -> Result<i64> {
    let picture = format!(
        "[...document.querySelector('#plot-{id} canvas').toDataURL()]\
         .reduce((sum, it) => (sum * 31 + it.charCodeAt(0)) | 0, 0)"
    );
    browser.evaluate(&picture)?.as_i64().context("no picture")
}

/// Checks that a drag over the middle of a plot enlarges it, and that a double click resets it.
fn check_redraw(browser: &mut Browser, id: &str) -> Result<()> {
    let whole = picture_hash(browser, id)?;
    drag(browser, id)?;
    let part = picture_hash(browser, id)?;
    ensure!(part != whole, "a drag changes nothing");
    double_click(browser, id)?;
    ensure!(picture_hash(browser, id)? == whole, "a double click does not reset the plot");
    Ok(())
}

fn drag(browser: &mut Browser, id: &str) -> Result<()> {
    let [left, top, width, height] = scroll_into_view(browser, id)?;
    let at = |share: f64| [left + share * width, top + height / 2.0];
    browser.pointer("mouseMoved", at(0.4), 0)?;
    browser.pointer("mousePressed", at(0.4), 1)?;
    browser.pointer("mouseMoved", at(0.6), 1)?;
    browser.pointer("mouseReleased", at(0.6), 1)
}

fn double_click(browser: &mut Browser, id: &str) -> Result<()> {
    let [left, top, width, height] = scroll_into_view(browser, id)?;
    let position = [left + 0.5 * width, top + height / 2.0];
    for clicks in [1, 2] {
        browser.pointer("mousePressed", position, clicks)?;
        browser.pointer("mouseReleased", position, clicks)?;
    }
    Ok(())
}

/// Returns the ends of a plot's horizontal axis, as the legend shows them.
fn axis_ends(browser: &mut Browser, id: &str) -> Result<[f64; 2]> {
    let mut ends = [0.0; 2];
    for (end, share) in ends.iter_mut().zip([0.01, 0.99]) {
        let values = legend_at(browser, id, share)?;
        *end = values.first().and_then(|x| value_of(x)).context("no position")?;
    }
    Ok(ends)
}

/// Checks that a drag shows its range only, and that a double click shows the whole range again.
pub(crate) fn check_zoom(browser: &mut Browser, id: &str) -> Result<()> {
    let whole = axis_ends(browser, id)?;
    drag(browser, id)?;
    let part = axis_ends(browser, id)?;
    ensure!(whole[0] < part[0] && part[0] < part[1] && part[1] < whole[1], "{part:?} of {whole:?}");
    double_click(browser, id)?;
    let again = axis_ends(browser, id)?;
    let is_same = again.iter().zip(whole).all(|(a, b)| a.total_cmp(&b).is_eq());
    ensure!(is_same, "{again:?} after a double click, {whole:?} before");
    Ok(())
}

/// Checks that the keyboard reaches the legend and hides a line.
fn check_hiding_by_keyboard(browser: &mut Browser) -> Result<()> {
    const REACHED: &str = "document.activeElement.closest('.u-series') !== null \
                           && document.activeElement.getAttribute('role') === 'button'";
    const HIDDEN: &str = "document.activeElement.closest('.u-series').classList.contains('u-off') \
                          && document.activeElement.getAttribute('aria-pressed') === 'false'";
    let mut tabs = 0;
    while browser.evaluate(REACHED)? != true {
        tabs += 1;
        ensure!(tabs <= TABS_MAX, "no legend after {TABS_MAX} tabs");
        browser.key("Tab", 9)?;
    }
    for hidden in [true, false] {
        browser.key("Enter", 13)?;
        ensure!(browser.evaluate(HIDDEN)? == hidden, "the line is hidden: {}", !hidden);
    }
    Ok(())
}

/// Checks that the keyboard moves from point to point, and that each point is announced.
fn check_stepping_by_keyboard(browser: &mut Browser, plot: &Plot) -> Result<()> {
    let id = &plot.id;
    browser.evaluate(&format!("document.getElementById('plot-{id}').focus()"))?;
    let mut announced = Vec::new();
    for (key, code) in [("Home", 36), ("ArrowRight", 39), ("End", 35), ("ArrowLeft", 37)] {
        browser.key(key, code)?;
        let values = format!(
            "[...document.querySelectorAll('#plot-{id} .u-value')].map((it) => it.textContent)"
        );
        let legend: Vec<String> = serde_json::from_value(browser.evaluate(&values)?)?;
        check_legend(&legend, plot).with_context(|| format!("after {key}: {legend:?}"))?;
        let aloud = format!("document.querySelector('#plot-{id} ~ .aloud[aria-live]').textContent");
        let aloud = browser.evaluate(&aloud)?.as_str().unwrap_or_default().to_owned();
        ensure!(legend.iter().all(|value| aloud.contains(value)), "'{aloud}' of {legend:?}");
        announced.push(aloud);
    }
    let points =
        plot.selected_series()?.iter().map(|series| series.points.len()).max().unwrap_or(0);
    ensure!(points < 2 || announced[0] != announced[2], "first and last are equal: {announced:?}");
    Ok(())
}
