//! Scenarios of the HTML report of a measured load: it contains the result, with its findings and
//! limits, and plots can be inspected by pointer and by keyboard.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::Browser;
use crate::load_command::{TIMEOUT, load};
use crate::page_interaction::{check_legend, check_plots, check_zoom, legend_at};
use crate::pages::{RenderedPage, check_accessibility, check_page, render_report};
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::{Need, Scenario};
use crate::{load_pages, scenarios};

pub(crate) fn all(needs: &'static [Need]) -> Vec<Scenario> {
    scenarios!(needs, load_pages:
        a_measured_page_contains_its_result,
        a_plot_can_be_inspected,
    )
    .into()
}

/// HTML report of a load at several rates, open in a browser.
struct OpenReport {
    browser: Browser,
    json: Value,
    directory: TempDir,
}

impl OpenReport {
    fn measure() -> Result<Self> {
        let lab = Lab::new(&LabConfig::default())?;
        let at = server_address(&lab, false)?;
        let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
        let directory = TempDir::new()?;
        let file = directory.path().join("load.json");
        let (target, name) = (at.to_string(), file.display().to_string());
        let ramp = ["-r", "1k-9k", "-x", "3", "-t", "1", "--engine", "udp", "--json", &name];
        let mut command = load(lab.client(), &[&[&*target], &ramp[..]].concat())?;
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self::open(&file, directory)
    }

    fn open(file: &Path, directory: TempDir) -> Result<Self> {
        let text = fs::read(file)?;
        let mut browser = Browser::start(1280, 900)?;
        browser.open(&render_report(file, directory.path())?)?;
        Ok(Self { browser, json: serde_json::from_slice(&text)?, directory })
    }
}

fn a_measured_page_contains_its_result() -> Result<()> {
    let mut open = OpenReport::measure()?;
    check_page(&mut open.browser, &open.json)?;
    let trials = open.json["trials"].as_array().context("no trials")?;
    ensure!(trials.len() > 2, "{} trials", trials.len());
    check_saved_result(&mut open)?;
    check_accessibility(&mut open.browser)
}

/// Checks that the page saves the embedded result unchanged.
fn check_saved_result(open: &mut OpenReport) -> Result<()> {
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
        if began.elapsed() > crate::process::TIMEOUT {
            break None;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    ensure!(saved.as_ref() == Some(&open.json), "the saved result is missing or differs");
    Ok(())
}

fn a_plot_can_be_inspected() -> Result<()> {
    let mut open = OpenReport::measure()?;
    let rendered = RenderedPage::of(&mut open.browser)?;
    for plot in &rendered.plots {
        for share in [0.05, 0.3, 0.55, 0.95] {
            let legend = legend_at(&mut open.browser, &plot.id, share)?;
            check_legend(&legend, plot).with_context(|| plot.id.clone())?;
        }
    }
    check_zoom(&mut open.browser, "rtt")?;
    check_plots(&mut open.browser, &rendered)
}
