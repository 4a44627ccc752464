//! Time of the HTML report of a large result, by the whole command: a soak of ten minutes with all
//! its histograms and a point for each second, a campaign result merged from fifty agents, and a
//! query of three servers ten times a second for ten minutes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use horolog_record::{Host, STORE_NONE, STORE_VARIABLE};
use horolog_report::to_json;
use horolog_time::SplitMix64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::campaign_merge;
use crate::figure::{Figure, Goal};
use crate::synthetic_soak::record;

const GOAL_S: f64 = 0.3;
/// Runs in each round; the command is short, so it runs more often than those of other benchmarks.
const RUNS_PER_ROUND: usize = 5;
/// Query result of one server with one sample.
const QUERY: &str = include_str!("../../crates/record/samples/query.json");
const SERVERS: usize = 3;
const SAMPLES: usize = 6_000;
const INTERVAL_NS: i64 = 100_000_000;

/// Renders the report of `file` and returns the duration of the command in seconds; the page must
/// be complete.
fn render_s(binary: &Path, file: &Path, page: &Path) -> Result<f64> {
    let mut command = Command::new(binary);
    command.args(["runs", "show"]).arg(file).arg("--html").arg(page);
    command.env(STORE_VARIABLE, STORE_NONE).stdout(Stdio::null());
    let began = Instant::now();
    let status = command.status().context("cannot run the binary")?;
    let took_s = began.elapsed().as_secs_f64();
    ensure!(status.success(), "{}: {status}", file.display());
    ensure!(fs::read_to_string(page)?.ends_with("</html>\n"), "{} is incomplete", page.display());
    fs::remove_file(page)?;
    Ok(took_s)
}

/// Returns the result of a query of three servers with random offsets.
fn query() -> Result<String> {
    let mut random = SplitMix64::new(1);
    let mut result: Value = serde_json::from_str(QUERY)?;
    let one = result["servers"][0].take();
    let first = one["samples"][0].clone();
    let mut sample = |number: usize| {
        let offset_ns = (random.next_u64() % 20_000) as i64 - 10_000;
        let at_ns = number as i64 * INTERVAL_NS;
        let mut sample = first.clone();
        sample["sequence"] = json!(number);
        sample["t1_ns"] = json!(at_ns);
        sample["t4_ns"] = json!(at_ns + 100_000);
        sample["offset_ns"] = json!(offset_ns);
        sample
    };
    let servers = (0..SERVERS).map(|_| {
        let mut server = one.clone();
        server["samples"] = (0..SAMPLES).map(&mut sample).collect();
        server
    });
    result["servers"] = servers.collect();
    Ok(result.to_string())
}

/// Measures the duration of the command for each result.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let directory = TempDir::new()?;
    let path = |name: &str| directory.path().join(name);
    let [soak, campaign, long_query] = ["soak.json", "result.json", "query.json"].map(path);
    fs::write(&soak, to_json(&record(0, &Host::read())))?;
    campaign_merge::MergeBenchInput::new()?.merge_s(directory.path())?;
    fs::write(&long_query, query()?)?;
    let mut figures = Vec::new();
    for (name, file) in [
        ("a soak of ten minutes", soak),
        ("a campaign of 50", campaign),
        ("a long query", long_query),
    ] {
        let page = path("page.html");
        // The first run only brings the file and the binary into the page cache.
        render_s(binary, &file, &page)?;
        let runs = (0..rounds * RUNS_PER_ROUND).map(|_| render_s(binary, &file, &page));
        let runs = runs.collect::<Result<Vec<_>>>()?;
        let figure = Figure::new(format!("report: the page of {name}"), "s", runs);
        figures.push(figure.with(Goal::Below(GOAL_S)));
    }
    Ok(figures)
}
