//! Scenarios of pages: every kind of result has one that a real browser draws without a complaint,
//! with nothing but what is in the file; its figures are those of the result; and it can be looked
//! into, printed, and read in the dark, by keyboard and aloud.
//!
//! With `HOROLOG_PICTURES=DIRECTORY` each page is also left there as pictures, for somebody's eyes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::browser::{Browser, PROGRAM};
use crate::page_interaction::check_plots;
use crate::page_samples::{drawn_log, variants};
use crate::process::{TIMEOUT, binary, run_to_end};
use crate::runs::golden;
use crate::scenario::Need;
use crate::{load_pages, long_run_pages, pages, scenarios};

const NEEDS: &[Need] = &[Need::Root, Need::Peer(PROGRAM), Need::Peer("unshare")];
/// What evaluates to [`RenderedPage`].
const PAGE_QUERY: &str = include_str!("pages.js");
/// A usual page is to stay below this.
const BYTES_MAX: u64 = 1_000_000;
const WIDE: [u32; 2] = [1280, 900];
/// A telephone's.
const NARROW: [u32; 2] = [400, 900];
/// A4 at the 96 pixels to an inch of CSS, less usual margins.
const PAPER: [u32; 2] = [718, 1_000];
/// The same turned, where the page asks for margins of its own.
const PAPER_TURNED: i64 = 1_062;
/// WCAG 2.2, success criteria 1.4.3 and 1.4.11, level AA.
const TEXT_CONTRAST_MIN: f64 = 4.5;
const LINE_CONTRAST_MIN: f64 = 3.0;
/// Roles of what has to have a name, to be read aloud.
const NAMED_ROLES: [&str; 5] = ["button", "image", "radio", "region", "link"];
/// Kinds of which a picture says nothing that the table does not.
const WITHOUT_PLOTS: [&str; 7] = [
    "horolog.after/2",
    "horolog.at/2",
    "horolog.compare/2",
    "horolog.cycle-predict/2",
    "horolog.demo/2",
    "horolog.host-clock/2",
    "horolog.host-nic/2",
];

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(NEEDS, pages:
        every_kind_of_result_has_a_page,
        every_page_is_accessible,
    ));
    all.extend(load_pages::all(NEEDS));
    all.extend(long_run_pages::all(NEEDS));
    all
}

/// What there is to see on a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RenderedPage {
    /// What is embedded.
    result: String,
    pub(crate) plots: Vec<Plot>,
    pub(crate) charts: Vec<Chart>,
    pub(crate) tables: Vec<Table>,
    title: String,
    /// What the verdict says of broken limits.
    failed: Option<String>,
    /// Large figure on top.
    pub(crate) figure: Option<String>,
    on_top: bool,
    findings: Vec<String>,
    ids: Vec<String>,
    ground: String,
    text_contrast: f64,
    line_contrast: f64,
    /// By how many pixels it is wider than its window, and what is to be printed than the paper.
    overflow: i64,
    printed: i64,
    /// The width of what is printed on turned paper.
    wide: i64,
}

/// A plot as the page was told of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Plot {
    pub(crate) id: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    view: usize,
    views: Vec<View>,
}

/// An axis of it, by the unit of its values.
#[derive(Debug, Deserialize)]
pub(crate) struct Axis {
    pub(crate) unit: String,
}

#[derive(Debug, Deserialize)]
struct View {
    series: Vec<Series>,
}

impl Plot {
    /// The lines of the view that is drawn.
    pub(crate) fn shown(&self) -> Result<&[Series]> {
        let view = self.views.get(self.view);
        Ok(&view.with_context(|| format!("no view of '{}'", self.id))?.series)
    }
}

/// A line of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) points: Vec<[f64; 2]>,
}

/// A plot as it was drawn.
#[derive(Debug, Deserialize)]
pub(crate) struct Chart {
    pub(crate) id: String,
    name: String,
    described: bool,
    size: [u32; 2],
    /// Points of the canvas in the colour of each of the first eight lines.
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
    /// What is to be seen of the page that is open.
    pub(crate) fn of(browser: &mut Browser) -> Result<Self> {
        let rendered = browser.evaluate(PAGE_QUERY)?;
        serde_json::from_value(rendered).context("the page does not say what is to be seen")
    }

    pub(crate) fn chart(&self, id: &str) -> Result<&Chart> {
        self.charts.iter().find(|chart| chart.id == id).with_context(|| format!("no plot '{id}'"))
    }

    pub(crate) fn series(&self, id: &str) -> Result<&[Series]> {
        let plot = self.plots.iter().find(|plot| plot.id == id);
        plot.with_context(|| format!("no plot '{id}'"))?.shown()
    }

    pub(crate) fn table(&self, id: &str) -> Result<&Table> {
        let table = self.tables.iter().find(|table| table.id.as_deref() == Some(id));
        table.with_context(|| format!("no table '{id}'"))
    }
}

/// The page of a result, made by the command.
pub(crate) fn page_of(result: &Path, directory: &Path) -> Result<PathBuf> {
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

fn every_kind_of_result_has_a_page() -> Result<()> {
    let directory = TempDir::new()?;
    let mut browser = Browser::start(WIDE[0], WIDE[1])?;
    for file in golden()? {
        let result = serde_json::from_str(&fs::read_to_string(&file)?)?;
        let page = page_of(&file, directory.path())?;
        browser.open(&page)?;
        let checked =
            shows(&mut browser, &result).and_then(|rendered| check_plots(&mut browser, &rendered));
        checked.with_context(|| file.display().to_string())?;
        leave_pictures(&mut browser, &page)?;
    }
    let mut opens = |page: &Path| {
        browser.open(page)?;
        let complaints = browser.complaints();
        ensure!(complaints.is_empty(), "{}: {complaints:?}", page.display());
        Ok(())
    };
    for (name, result) in variants()? {
        let file = directory.path().join(name).with_extension("json");
        fs::write(&file, result.to_string())?;
        opens(&page_of(&file, directory.path())?)?;
    }
    opens(&drawn_log(directory.path())?)
}

/// The page that is open shows this result, whole and without a complaint.
pub(crate) fn shows(browser: &mut Browser, result: &Value) -> Result<RenderedPage> {
    let rendered = RenderedPage::of(browser)?;
    let complaints = browser.complaints();
    ensure!(complaints.is_empty(), "{complaints:?}");
    let embedded: Value = serde_json::from_str(&rendered.result)?;
    ensure!(embedded == *result, "another result is embedded");
    let figure = rendered.figure.as_deref().context("no verdict")?;
    ensure!(!figure.is_empty() && rendered.on_top, "the verdict '{figure}' does not stand on top");
    let is_broken = |limit: &Value| limit["failed"] == true;
    let limits = result["limits"].as_array().map_or(&[][..], Vec::as_slice);
    // A comparison has no limits: it says what became worse.
    if result["schema"] != "horolog.compare/2" {
        let has_failed =
            rendered.failed.as_ref().is_some_and(|failed| rendered.title.starts_with(failed));
        let is_consistent =
            limits.iter().any(is_broken) == has_failed && rendered.failed.is_some() == has_failed;
        ensure!(is_consistent, "broken limits: {:?} below '{}'", rendered.failed, rendered.title);
    }
    for finding in result["findings"].as_array().context("no findings")? {
        let message = finding["message"].as_str().context("no message")?;
        let is_shown = rendered.findings.iter().any(|shown| shown.contains(message));
        ensure!(is_shown, "'{message}' is not told: {:?}", rendered.findings);
    }
    let schema = result["schema"].as_str().context("no schema")?;
    ensure!(!rendered.plots.is_empty() || WITHOUT_PLOTS.contains(&schema), "no plot");
    for plot in &rendered.plots {
        let chart = rendered.chart(&plot.id)?;
        is_drawn(chart, rendered.series(&plot.id)?).with_context(|| plot.id.clone())?;
    }
    let mut ids = rendered.ids.clone();
    ids.sort();
    ids.dedup();
    ensure!(ids.len() == rendered.ids.len(), "an id stands twice: {:?}", rendered.ids);
    Ok(rendered)
}

/// A plot has a picture of its lines, a legend that tells them apart without colours, and words.
fn is_drawn(chart: &Chart, series: &[Series]) -> Result<()> {
    ensure!(chart.size.iter().all(|length| *length > 100), "{chart:?}");
    ensure!(!chart.name.is_empty() && chart.described, "nothing can be read aloud: {chart:?}");
    ensure!(chart.legend.len() == series.len() + 1, "{:?}", chart.legend);
    // The last one lies above all others.
    let last = series.iter().rposition(|series| !series.points.is_empty()).context("no points")?;
    ensure!(chart.painted[last % 8] > 0, "nothing is painted of {:?}", series[last].label);
    let mut dashes = chart.dashes.clone();
    dashes.truncate(16);
    dashes.sort();
    dashes.dedup();
    ensure!(dashes.len() == chart.dashes.len().min(16), "lines are alike: {:?}", chart.dashes);
    Ok(())
}

/// For somebody's eyes, where they are asked for.
fn leave_pictures(browser: &mut Browser, page: &Path) -> Result<()> {
    let Some(directory) = std::env::var_os("HOROLOG_PICTURES").map(PathBuf::from) else {
        return Ok(());
    };
    let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    for (variant, size, scheme) in
        [("light", WIDE, "light"), ("dark", WIDE, "dark"), ("narrow", NARROW, "light")]
    {
        browser.shown_on("screen", scheme)?;
        browser.resize(size[0], size[1])?;
        browser.picture(&directory.join(format!("{name}-{variant}.png")))?;
    }
    browser.shown_on("screen", "light")?;
    browser.resize(WIDE[0], WIDE[1])
}

fn every_page_is_accessible() -> Result<()> {
    let directory = TempDir::new()?;
    let mut browser = Browser::start(WIDE[0], WIDE[1])?;
    for file in golden()? {
        browser.open(&page_of(&file, directory.path())?)?;
        can_be_read(&mut browser).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// In the light and in the dark, wide and narrow, on paper and aloud.
pub(crate) fn can_be_read(browser: &mut Browser) -> Result<()> {
    has_contrast(browser, "light")?;
    has_names(browser)?;
    browser.resize(NARROW[0], NARROW[1])?;
    let overflow = RenderedPage::of(browser)?.overflow;
    ensure!(overflow <= 0, "{overflow} pixels stick out of a narrow screen");
    can_be_printed(browser)?;
    browser.resize(WIDE[0], WIDE[1])?;
    has_contrast(browser, "dark")?;
    browser.shown_on("screen", "light")?;
    let complaints = browser.complaints();
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

/// In the dark too, it is printed on white paper, unfolded, and nothing is cut off.
fn can_be_printed(browser: &mut Browser) -> Result<()> {
    browser.resize(PAPER[0], PAPER[1])?;
    browser.shown_on("print", "dark")?;
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")?;
    let printed = RenderedPage::of(browser)?;
    ensure!(printed.ground == "#ffffff", "paper is {}", printed.ground);
    ensure!(printed.printed <= 0, "{} pixels stick out of the paper", printed.printed);
    ensure!(printed.wide <= PAPER_TURNED, "{} pixels on turned paper", printed.wide);
    let folded = browser.evaluate("document.querySelectorAll('details:not([open])').length")?;
    ensure!(folded == 0, "{folded} parts are folded on paper");
    let pdf = browser.call("Page.printToPDF", serde_json::json!({}))?;
    ensure!(pdf["data"].as_str().is_some_and(|pdf| pdf.len() > 10_000), "it cannot be printed");
    browser.evaluate("dispatchEvent(new Event('afterprint'))")?;
    Ok(())
}

fn has_contrast(browser: &mut Browser, scheme: &str) -> Result<()> {
    browser.shown_on("screen", scheme)?;
    let rendered = RenderedPage::of(browser)?;
    let is_dark = rendered.ground != "#ffffff";
    ensure!(is_dark == (scheme == "dark"), "the ground is {} in the {scheme}", rendered.ground);
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
        let context = || format!("{} in the {scheme}", plot.id);
        is_drawn(rendered.chart(&plot.id)?, rendered.series(&plot.id)?).with_context(context)?;
    }
    Ok(())
}

/// What a screen reader is told of has a name.
fn has_names(browser: &mut Browser) -> Result<()> {
    let tree = browser.call("Accessibility.getFullAXTree", serde_json::json!({}))?;
    let nodes = tree["nodes"].as_array().context("no tree")?;
    let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
    for node in nodes.iter().filter(|node| node["ignored"] != true) {
        let is_named = node["name"]["value"].as_str().is_some_and(|name| !name.trim().is_empty());
        ensure!(is_named || !NAMED_ROLES.contains(&&*role(node)), "it has no name: {node}");
    }
    let headings = nodes.iter().filter(|node| role(node) == "heading").count();
    ensure!(headings > 1, "{headings} headings");
    Ok(())
}
