//! The page of a load that was really measured: each figure that it shows is one of the result, and
//! plots can be looked into by pointer and by keyboard.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{Distribution, LoadResult, Trial as LoadTrial};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::Browser;
use crate::load_command::{PATIENCE, load, parse};
use crate::pages::{Seen, Series, can_be_read, page_of, shows};
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::Need;
use crate::{pages_of_loads, scenarios};

/// Figures are shown with three digits.
const SHOWN_TOLERANCE: f64 = 0.006;
/// Takes one time out of a distribution.
type Figure = fn(&Distribution) -> u64;

/// Presses of the tabulator after which the first plot has been reached.
const TABS_MAX: usize = 20;

/// All of them.
pub(crate) fn all(needs: &'static [Need]) -> Vec<Trial> {
    scenarios!(needs, pages_of_loads:
        a_measured_page_shows_the_figures_of_its_result,
        a_plot_can_be_looked_into,
    )
    .into()
}

/// A page of a load at several rates, open in a browser.
struct Open {
    browser: Browser,
    result: LoadResult,
    json: Value,
    directory: TempDir,
}

impl Open {
    fn measured() -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, false)?;
        let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
        let directory = TempDir::new()?;
        let file = directory.path().join("load.json");
        let (target, name) = (at.to_string(), file.display().to_string());
        let ramp = ["-r", "1k-9k", "-x", "3", "-t", "1", "--engine", "udp", "--json", &name];
        let mut command = load(lab.client(), &[&[&*target], &ramp[..]].concat())?;
        let output = run_to_end(&mut command, PATIENCE)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self::of(&file, directory)
    }

    fn of(file: &Path, directory: TempDir) -> Result<Self> {
        let text = fs::read(file)?;
        let mut browser = Browser::start(1280, 900)?;
        browser.open(&page_of(file, directory.path())?)?;
        Ok(Self { browser, result: parse(&text)?, json: serde_json::from_slice(&text)?, directory })
    }
}

/// The number that a figure on a page stands for, in ns, per second, or as a share.
fn number(shown: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 11] = [
        ("ns", 1.0),
        ("µs", 1e3),
        ("ms", 1e6),
        ("k/s", 1e3),
        ("M/s", 1e6),
        ("G/s", 1e9),
        ("/s", 1.0),
        ("%", 0.01),
        ("s", 1e9),
        ("k", 1e3),
        ("M", 1e6),
    ];
    let plain = shown.replace([',', '+'], "").replace('−', "-");
    let unit = UNITS.into_iter().find_map(|(unit, size)| Some((plain.strip_suffix(unit)?, size)));
    let (digits, size) = unit.unwrap_or((&plain, 1.0));
    Some(digits.trim().parse::<f64>().ok()? * size)
}

fn is_shown(shown: &str, value: f64) -> Result<()> {
    let read = number(shown).with_context(|| format!("'{shown}' is no figure"))?;
    let near = (read - value).abs() <= SHOWN_TOLERANCE * value.abs().max(1e-9);
    ensure!(near, "'{shown}' in place of {value}");
    Ok(())
}

fn a_measured_page_shows_the_figures_of_its_result() -> Result<()> {
    let mut open = Open::measured()?;
    shows(&mut open.browser, &open.json)?;
    let seen = Seen::of(&mut open.browser)?;
    let trials = &open.result.trials;
    ensure!(trials.len() > 2, "{} trials", trials.len());
    let table = seen.table("trials")?;
    ensure!(table.rows.len() == trials.len(), "{:?}", table.rows);
    for (row, trial) in table.rows.iter().zip(trials) {
        row_shows(row, &table.titles, trial)?;
    }
    let figure = seen.figure.as_deref().context("no figure")?.trim_start_matches(['≥', ' ']);
    let lossless = trials.iter().take_while(|trial| trial.lost == 0);
    let highest = lossless.map(|trial| trial.achieved_rate).fold(0.0, f64::max);
    if highest > 0.0 {
        is_shown(figure, highest)?;
    }
    curves_show(&seen, trials)?;
    saved_as_it_is(&mut open)?;
    can_be_read(&mut open.browser)
}

fn row_shows(row: &[String], titles: &[String], trial: &LoadTrial) -> Result<()> {
    let rtt = trial.rtt_ns.as_ref().context("no replies")?;
    let figures = [
        ("sent", trial.achieved_rate),
        ("planned", trial.offered_rate),
        ("answered", trial.received as f64),
        ("lost", trial.lost as f64),
        ("share lost", trial.lost as f64 / trial.sent as f64),
        ("min", rtt.min as f64),
        ("p50", rtt.p50 as f64),
        ("p90", rtt.p90 as f64),
        ("p99", rtt.p99 as f64),
        ("p99.9", rtt.p99_9 as f64),
        ("max", rtt.max as f64),
    ];
    for (title, value) in figures {
        let at = titles.iter().position(|of| of == title).with_context(|| title.to_owned())?;
        is_shown(&row[at], value).with_context(|| title.to_owned())?;
    }
    Ok(())
}

/// The points of the plots are those of the trials.
fn curves_show(seen: &Seen, trials: &[LoadTrial]) -> Result<()> {
    let figures: [(&str, Figure); 5] = [
        ("p50", |rtt| rtt.p50),
        ("p90", |rtt| rtt.p90),
        ("p99", |rtt| rtt.p99),
        ("p99.9", |rtt| rtt.p99_9),
        ("max", |rtt| rtt.max),
    ];
    let drawn = seen.series("latency")?;
    ensure!(drawn.len() == figures.len());
    for (series, (name, figure)) in drawn.iter().zip(figures) {
        let points = trials
            .iter()
            .filter_map(|trial| Some([trial.achieved_rate, figure(trial.rtt_ns.as_ref()?) as f64]));
        ensure!(series.label == name && series.points == points.collect::<Vec<_>>(), "{series:?}");
    }
    let lost = trials.iter().map(|one| [one.achieved_rate, one.lost as f64 / one.sent as f64]);
    ensure!(seen.series("loss")?[0].points == lost.collect::<Vec<_>>());
    for curve in seen.series("rtt")? {
        let last = curve.points.last().context("no curve")?;
        let last = last.map(|value| value as u64);
        let is_end = |rtt: &Distribution| last == [rtt.count, rtt.max];
        let of = trials.iter().filter_map(|trial| trial.rtt_ns.as_ref()).any(is_end);
        ensure!(of, "no trial ends at {last:?}");
    }
    Ok(())
}

/// What the page saves is the result, byte for byte as it is embedded.
fn saved_as_it_is(open: &mut Open) -> Result<()> {
    let to = open.directory.path().join("saved");
    let allow = json!({ "behavior": "allow", "downloadPath": to, "eventsEnabled": true });
    open.browser.call("Browser.setDownloadBehavior", allow)?;
    open.browser.evaluate("document.getElementById('save').click()")?;
    let file = to.join("result.json");
    let began = std::time::Instant::now();
    let saved = loop {
        let read = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(saved) = read {
            break Some::<Value>(saved);
        }
        if began.elapsed() > crate::process::PATIENCE {
            break None;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    ensure!(saved.as_ref() == Some(&open.json), "another result was saved");
    Ok(())
}

/// What the legend of a plot says while the pointer is at this share of its width.
fn pointed_at(browser: &mut Browser, id: &str, share: f64) -> Result<Vec<String>> {
    let [left, top, width, height] = in_view(browser, id)?;
    browser.pointer("mouseMoved", [left + share * width, top + height / 2.0], 0)?;
    let values = format!(
        "[...document.querySelectorAll('#plot-{id} .u-value')].map((it) => it.textContent)"
    );
    Ok(serde_json::from_value(browser.evaluate(&values)?)?)
}

/// Where the inside of a plot is on the screen, after it was brought there.
fn in_view(browser: &mut Browser, id: &str) -> Result<[f64; 4]> {
    let place = format!(
        "(() => {{ const over = document.querySelector('#plot-{id} .u-over'); \
         over.scrollIntoView({{ block: 'center' }}); const {{ left, top, width, height }} = \
         over.getBoundingClientRect(); return [left, top, width, height]; }})()"
    );
    Ok(serde_json::from_value(browser.evaluate(&place)?)?)
}

fn a_plot_can_be_looked_into() -> Result<()> {
    let mut open = Open::measured()?;
    let seen = Seen::of(&mut open.browser)?;
    for id in ["latency", "rtt"] {
        for share in [0.05, 0.3, 0.55, 0.95] {
            let values = pointed_at(&mut open.browser, id, share)?;
            says_a_point(&values, seen.series(id)?, id == "rtt").with_context(|| id.to_owned())?;
        }
    }
    zooms(&mut open.browser, "rtt")?;
    can_be_hidden_by_keyboard(&mut open.browser)?;
    let complaints = open.browser.complaints();
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

/// The legend's values are those of a point of each line, at the same rate or of the same rarity.
fn says_a_point(values: &[String], series: &[Series], by_rarity: bool) -> Result<()> {
    let (x, values) = values.split_first().context("no legend")?;
    let told = number(x).with_context(|| format!("the legend has no place: '{x}'"))?;
    let x = if by_rarity { 1.0 / (1.0 - told) } else { told };
    for (shown, series) in values.iter().zip(series) {
        let last = series.points.last().context("no points")?[0];
        if shown == "–" {
            ensure!(x > last, "{}: nothing is told at {x}", series.label);
            continue;
        }
        let is_here = |point: &&[f64; 2]| is_shown(shown, point[1]).is_ok();
        let said = series.points.iter().filter(is_here).map(|point| point[0]);
        // A line without a point at this place says that of the nearest.
        let near = said.map(|at| (at / x).ln().abs()).fold(f64::INFINITY, f64::min);
        ensure!(near < 0.5, "{}: no point ({x}, {shown})", series.label);
    }
    Ok(())
}

/// Where a plot begins and ends, by what the legend says there.
fn ends(browser: &mut Browser, id: &str) -> Result<[f64; 2]> {
    let mut ends = [0.0; 2];
    for (end, share) in ends.iter_mut().zip([0.01, 0.99]) {
        let values = pointed_at(browser, id, share)?;
        *end = values.first().and_then(|x| number(x)).context("no place")?;
    }
    Ok(ends)
}

/// A drag shows what it went over, and a double click shows all again.
fn zooms(browser: &mut Browser, id: &str) -> Result<()> {
    let whole = ends(browser, id)?;
    let [left, top, width, height] = in_view(browser, id)?;
    let at = |share: f64| [left + share * width, top + height / 2.0];
    browser.pointer("mouseMoved", at(0.4), 0)?;
    browser.pointer("mousePressed", at(0.4), 1)?;
    for share in [0.45, 0.5, 0.6] {
        browser.pointer("mouseMoved", at(share), 1)?;
    }
    browser.pointer("mouseReleased", at(0.6), 1)?;
    let part = ends(browser, id)?;
    ensure!(whole[0] < part[0] && part[0] < part[1] && part[1] < whole[1], "{part:?} of {whole:?}");
    for clicks in [1, 2] {
        browser.pointer("mousePressed", at(0.5), clicks)?;
        browser.pointer("mouseReleased", at(0.5), clicks)?;
    }
    let again = ends(browser, id)?;
    let is_same = again.iter().zip(whole).all(|(a, b)| a.total_cmp(&b).is_eq());
    ensure!(is_same, "{again:?} after a double click, {whole:?} before");
    Ok(())
}

/// Who has no pointer reaches the legend and hides a line by it.
fn can_be_hidden_by_keyboard(browser: &mut Browser) -> Result<()> {
    const REACHED: &str = "document.activeElement.closest('.u-series') !== null \
                           && document.activeElement.getAttribute('role') === 'button'";
    const HIDDEN: &str = "document.activeElement.closest('.u-series').classList.contains('u-off')";
    let mut tabs = 0;
    while browser.evaluate(REACHED)? != true {
        tabs += 1;
        ensure!(tabs <= TABS_MAX, "no legend after {TABS_MAX} tabs");
        browser.key("Tab", 9)?;
    }
    for hidden in [true, false] {
        browser.key("Enter", 13)?;
        ensure!(browser.evaluate(HIDDEN)? == hidden, "the line is not {hidden}");
    }
    Ok(())
}
