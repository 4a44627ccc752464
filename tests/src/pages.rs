//! Scenarios of HTML reports: every kind of result has a page that a real browser renders without
//! errors, from its file alone; it contains the result, and its plots show the points that they
//! draw; and it can be explored, printed, and read in dark mode, by keyboard and by screen reader.
//!
//! With `HOROLOG_PICTURES=DIRECTORY`, screenshots of each page are written there for inspection.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::browser::{Browser, PROGRAM};
use crate::page_interaction::check_plots;
use crate::page_samples::{plot_clock_log, variants};
use crate::process::{TIMEOUT, binary, run_to_end};
use crate::runs::samples;
use crate::scenario::{Need, Scenario};
use crate::{load_pages, long_run_pages, pages, scenarios};

const NEEDS: &[Need] = &[Need::Root, Need::Peer(PROGRAM), Need::Peer("unshare")];
/// Script whose value is a [`RenderedPage`].
const PAGE_QUERY: &str = include_str!("pages.js");
/// Limit of the size of a usual page, in bytes.
const BYTES_MAX: u64 = 1_000_000;
const WIDE: [u32; 2] = [1280, 900];
/// Screen of a telephone, in pixels.
const NARROW: [u32; 2] = [400, 900];
/// A4 at the 96 pixels per inch of CSS, less usual margins.
const PAPER: [u32; 2] = [718, 1_000];
/// Width of A4 in landscape, less the margins that the page requests, in pixels.
const LANDSCAPE_WIDTH: i64 = 1_062;
/// Least contrasts by WCAG 2.2, success criteria 1.4.3 and 1.4.11, level AA.
const TEXT_CONTRAST_MIN: f64 = 4.5;
const LINE_CONTRAST_MIN: f64 = 3.0;
/// Roles of elements that need an accessible name.
const NAMED_ROLES: [&str; 5] = ["button", "image", "radio", "region", "link"];
/// Schemas of results without plots, which would repeat their tables.
const WITHOUT_PLOTS: [&str; 7] = [
    "horolog.after/2",
    "horolog.at/2",
    "horolog.compare/3",
    "horolog.cycle-predict/2",
    "horolog.demo/2",
    "horolog.host-clock/2",
    "horolog.host-nic/2",
];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(NEEDS, pages:
        every_kind_of_result_has_an_accessible_page,
        every_variant_has_a_page_without_errors,
    ));
    all.extend(load_pages::all(NEEDS));
    all.extend(long_run_pages::all(NEEDS));
    all
}

/// Visible contents of a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RenderedPage {
    /// Embedded result.
    result: String,
    pub(crate) plots: Vec<Plot>,
    pub(crate) charts: Vec<Chart>,
    pub(crate) tables: Vec<Table>,
    title: String,
    /// Text of the verdict on failed limits.
    failed: Option<String>,
    /// Large figure at the top.
    pub(crate) figure: Option<String>,
    on_top: bool,
    findings: Vec<String>,
    ids: Vec<String>,
    ground: String,
    text_contrast: f64,
    line_contrast: f64,
    /// Pixels by which the page exceeds the width of its window, and its print that of the paper.
    overflow: i64,
    printed: i64,
    /// Width of the parts that are printed in landscape, in pixels.
    wide: i64,
}

/// Plot as embedded in the page.
#[derive(Debug, Deserialize)]
pub(crate) struct Plot {
    pub(crate) id: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    view: usize,
    views: Vec<View>,
}

/// Axis of a plot, with the unit of its values.
#[derive(Debug, Deserialize)]
pub(crate) struct Axis {
    pub(crate) unit: String,
}

#[derive(Debug, Deserialize)]
struct View {
    series: Vec<Series>,
}

impl Plot {
    /// Returns the lines of the selected view.
    pub(crate) fn selected_series(&self) -> Result<&[Series]> {
        let view = self.views.get(self.view);
        Ok(&view.with_context(|| format!("no view of '{}'", self.id))?.series)
    }
}

/// Line of a plot.
#[derive(Debug, Deserialize)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) points: Vec<[f64; 2]>,
}

/// Plot as rendered.
#[derive(Debug, Deserialize)]
pub(crate) struct Chart {
    pub(crate) id: String,
    name: String,
    described: bool,
    size: [u32; 2],
    /// Pixels of the canvas in the colour of each of the first eight lines.
    pub(crate) painted: [u64; 8],
    legend: Vec<String>,
    dashes: Vec<String>,
}

/// Table of the page.
#[derive(Debug, Deserialize)]
pub(crate) struct Table {
    id: Option<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl RenderedPage {
    /// Returns the contents of the open page.
    pub(crate) fn of(browser: &mut Browser) -> Result<Self> {
        let rendered = browser.evaluate(PAGE_QUERY)?;
        serde_json::from_value(rendered).context("cannot parse the contents of the page")
    }

    pub(crate) fn chart(&self, id: &str) -> Result<&Chart> {
        self.charts.iter().find(|chart| chart.id == id).with_context(|| format!("no plot '{id}'"))
    }

    pub(crate) fn series(&self, id: &str) -> Result<&[Series]> {
        let plot = self.plots.iter().find(|plot| plot.id == id);
        plot.with_context(|| format!("no plot '{id}'"))?.selected_series()
    }

    pub(crate) fn table(&self, id: &str) -> Result<&Table> {
        let table = self.tables.iter().find(|table| table.id.as_deref() == Some(id));
        table.with_context(|| format!("no table '{id}'"))
    }
}

/// Writes the page of a result by `horolog report`.
pub(crate) fn render_report(result: &Path, directory: &Path) -> Result<PathBuf> {
    let name = result.file_stem().context("no name")?;
    let page = directory.join(name).with_extension("html");
    let mut command = std::process::Command::new(binary()?);
    command.arg("report").arg(result).arg("-o").arg(&page);
    let output = run_to_end(&mut command, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {stderr}", result.display());
    let bytes = fs::metadata(&page)?.len();
    ensure!(bytes < BYTES_MAX, "{}: {bytes} bytes", page.display());
    Ok(page)
}

fn every_kind_of_result_has_an_accessible_page() -> Result<()> {
    let directory = TempDir::new()?;
    let mut browser = Browser::start(WIDE[0], WIDE[1])?;
    for file in samples()? {
        let result = serde_json::from_str(&fs::read_to_string(&file)?)?;
        let page = render_report(&file, directory.path())?;
        browser.open(&page)?;
        let checked = check_page(&mut browser, &result).and_then(|rendered| {
            check_accessibility(&mut browser)?;
            check_plots(&mut browser, &rendered)
        });
        checked.with_context(|| file.display().to_string())?;
        write_screenshots(&mut browser, &page)?;
    }
    Ok(())
}

fn every_variant_has_a_page_without_errors() -> Result<()> {
    let directory = TempDir::new()?;
    let mut browser = Browser::start(WIDE[0], WIDE[1])?;
    let mut check_errors = |page: &Path| {
        browser.open(page)?;
        let errors = browser.take_errors();
        ensure!(errors.is_empty(), "{}: {errors:?}", page.display());
        Ok(())
    };
    for (name, result) in variants()? {
        let file = directory.path().join(name).with_extension("json");
        fs::write(&file, result.to_string())?;
        check_errors(&render_report(&file, directory.path())?)?;
    }
    check_errors(&plot_clock_log(directory.path())?)
}

/// Checks that the open page shows this result completely and without errors; returns its contents.
pub(crate) fn check_page(browser: &mut Browser, result: &Value) -> Result<RenderedPage> {
    let rendered = RenderedPage::of(browser)?;
    let errors = browser.take_errors();
    ensure!(errors.is_empty(), "{errors:?}");
    let embedded: Value = serde_json::from_str(&rendered.result)?;
    ensure!(embedded == *result, "the embedded result differs");
    let figure = rendered.figure.as_deref().context("no verdict")?;
    ensure!(!figure.is_empty() && rendered.on_top, "the verdict '{figure}' is not at the top");
    let is_failed = |limit: &Value| limit["failed"] == true;
    let limits = result["limits"].as_array().map_or(&[][..], Vec::as_slice);
    // A comparison has no limits: its verdict is on what became worse.
    if result["schema"] != "horolog.compare/3" {
        let has_failed =
            rendered.failed.as_ref().is_some_and(|failed| rendered.title.starts_with(failed));
        let is_consistent =
            limits.iter().any(is_failed) == has_failed && rendered.failed.is_some() == has_failed;
        ensure!(is_consistent, "failed limits: {:?} below '{}'", rendered.failed, rendered.title);
    }
    for finding in result["findings"].as_array().context("no findings")? {
        let message = finding["message"].as_str().context("no message")?;
        let is_shown = rendered.findings.iter().any(|shown| shown.contains(message));
        ensure!(is_shown, "'{message}' is not shown: {:?}", rendered.findings);
    }
    let schema = result["schema"].as_str().context("no schema")?;
    ensure!(!rendered.plots.is_empty() || WITHOUT_PLOTS.contains(&schema), "no plot");
    for plot in &rendered.plots {
        let chart = rendered.chart(&plot.id)?;
        check_chart(chart, rendered.series(&plot.id)?).with_context(|| plot.id.clone())?;
    }
    let mut ids = rendered.ids.clone();
    ids.sort();
    ids.dedup();
    ensure!(ids.len() == rendered.ids.len(), "duplicate identifier: {:?}", rendered.ids);
    Ok(rendered)
}

/// Checks that a plot shows its lines, and has a description and a legend that does not need
/// colours.
fn check_chart(chart: &Chart, series: &[Series]) -> Result<()> {
    ensure!(chart.size.iter().all(|length| *length > 100), "{chart:?}");
    ensure!(!chart.name.is_empty() && chart.described, "no name or description: {chart:?}");
    ensure!(chart.legend.len() == series.len() + 1, "{:?}", chart.legend);
    // The last line is drawn above all others.
    let last = series.iter().rposition(|series| !series.points.is_empty()).context("no points")?;
    ensure!(chart.painted[last % 8] > 0, "nothing is painted of {:?}", series[last].label);
    let mut dashes = chart.dashes.clone();
    dashes.truncate(16);
    dashes.sort();
    dashes.dedup();
    ensure!(dashes.len() == chart.dashes.len().min(16), "equal dashes: {:?}", chart.dashes);
    Ok(())
}

/// Writes screenshots of the open page, if `HOROLOG_PICTURES` is set.
fn write_screenshots(browser: &mut Browser, page: &Path) -> Result<()> {
    let Some(directory) = std::env::var_os("HOROLOG_PICTURES").map(PathBuf::from) else {
        return Ok(());
    };
    let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for (variant, size, scheme) in
        [("light", WIDE, "light"), ("dark", WIDE, "dark"), ("narrow", NARROW, "light")]
    {
        browser.emulate_media("screen", scheme)?;
        browser.resize(size[0], size[1])?;
        browser.screenshot(&directory.join(format!("{name}-{variant}.png")))?;
    }
    browser.emulate_media("screen", "light")?;
    browser.resize(WIDE[0], WIDE[1])
}

/// Checks the open page in light and dark mode, on wide and narrow screens, on paper, and its names
/// for screen readers.
pub(crate) fn check_accessibility(browser: &mut Browser) -> Result<()> {
    check_contrast(browser, "light")?;
    check_accessible_names(browser)?;
    browser.resize(NARROW[0], NARROW[1])?;
    let overflow = RenderedPage::of(browser)?.overflow;
    ensure!(overflow <= 0, "the page is {overflow} pixels too wide for a narrow screen");
    check_print(browser)?;
    browser.resize(WIDE[0], WIDE[1])?;
    check_contrast(browser, "dark")?;
    browser.emulate_media("screen", "light")?;
    let errors = browser.take_errors();
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}

/// Checks that the page is printed on white paper even in dark mode, unfolded and uncut.
fn check_print(browser: &mut Browser) -> Result<()> {
    browser.resize(PAPER[0], PAPER[1])?;
    browser.emulate_media("print", "dark")?;
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")?;
    let printed = RenderedPage::of(browser)?;
    ensure!(printed.ground == "#ffffff", "paper is {}", printed.ground);
    ensure!(printed.printed <= 0, "{} pixels too wide for the paper", printed.printed);
    ensure!(printed.wide <= LANDSCAPE_WIDTH, "{} pixels in landscape", printed.wide);
    let folded = browser.evaluate("document.querySelectorAll('details:not([open])').length")?;
    ensure!(folded == 0, "{folded} parts are folded on paper");
    let pdf = browser.call("Page.printToPDF", serde_json::json!({}))?;
    ensure!(pdf["data"].as_str().is_some_and(|pdf| pdf.len() > 10_000), "cannot print the page");
    browser.evaluate("dispatchEvent(new Event('afterprint'))")?;
    Ok(())
}

fn check_contrast(browser: &mut Browser, scheme: &str) -> Result<()> {
    browser.emulate_media("screen", scheme)?;
    let rendered = RenderedPage::of(browser)?;
    let is_dark = rendered.ground != "#ffffff";
    ensure!(is_dark == (scheme == "dark"), "background {} in {scheme} mode", rendered.ground);
    ensure!(
        rendered.text_contrast >= TEXT_CONTRAST_MIN,
        "{scheme}: text {}",
        rendered.text_contrast
    );
    ensure!(
        rendered.line_contrast >= LINE_CONTRAST_MIN,
        "{scheme}: lines {}",
        rendered.line_contrast
    );
    for plot in &rendered.plots {
        let context = || format!("{} in {scheme} mode", plot.id);
        check_chart(rendered.chart(&plot.id)?, rendered.series(&plot.id)?).with_context(context)?;
    }
    Ok(())
}

/// Checks that elements with one of [`NAMED_ROLES`] have a name for screen readers.
fn check_accessible_names(browser: &mut Browser) -> Result<()> {
    let tree = browser.call("Accessibility.getFullAXTree", serde_json::json!({}))?;
    let nodes = tree["nodes"].as_array().context("no tree")?;
    let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
    for node in nodes.iter().filter(|node| node["ignored"] != true) {
        let is_named = node["name"]["value"].as_str().is_some_and(|name| !name.trim().is_empty());
        ensure!(is_named || !NAMED_ROLES.contains(&&*role(node)), "no accessible name: {node}");
    }
    let headings = nodes.iter().filter(|node| role(node) == "heading").count();
    ensure!(headings > 1, "{headings} headings");
    Ok(())
}
