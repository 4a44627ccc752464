//! Cost of storing results: duration of a list of many runs, as a whole command, and the time in
//! which a command stores its result on disk, by the product's own code.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use horolog_record::Host;
use horolog_report::to_json;
use horolog_store::{ResultFacts, RunFilter, Store};
use tempfile::TempDir;

use crate::figure::{Figure, Goal};
use crate::synthetic_soak::record;

const RUNS: usize = 10_000;
const LIST_GOAL_MS: f64 = 100.0;
const STORE_GOAL_MS: f64 = 50.0;
/// Measurements in each round, of which the median counts: single ones may wait for other users of
/// the disk.
const REPETITIONS: usize = 5;

/// Returns a small result, distinct for each number.
fn small_result(number: usize) -> String {
    let (day, minute) = (1 + number / 1_440, number % 1_440);
    format!(
        r#"{{"schema":"horolog.load/2","started":"2026-01-{day:02}T{:02}:{:02}:00.000Z","command":["horolog","load","ntp","192.0.2.1","--rate","{number}"],"findings":[{{"code":"trials-inconsistent","severity":"warning","message":"m","advice":"a"}}]}}"#,
        minute / 60,
        minute % 60
    )
}

fn fill_store(path: &Path) -> Result<Store> {
    let mut store = Store::open(path)?;
    let results = (0..RUNS).map(|number| {
        let text = small_result(number);
        Ok((ResultFacts::parse(&text)?, text))
    });
    let stored = store.add_all(&results.collect::<Result<Vec<_>>>()?)?;
    ensure!(stored == RUNS, "{stored} of {RUNS} results were stored");
    Ok(store)
}

/// Runs `horolog runs list` and returns its duration in ms.
fn list_ms(binary: &Path, store: &Path) -> Result<f64> {
    let mut command = Command::new(binary);
    command.args(["runs", "list", "--store"]).arg(store);
    let began = Instant::now();
    let output = command.output()?;
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    let lines = String::from_utf8_lossy(&output.stdout).lines().count();
    ensure!(output.status.success() && lines == RUNS + 1, "runs list printed {lines} lines");
    Ok(took_ms)
}

/// Stores a ten-minute result, and returns the time from the record to the store on disk in ms.
fn store_ms(path: &Path, seed: u64, host: &Host) -> Result<f64> {
    let result = record(seed, host);
    let began = Instant::now();
    let text = to_json(&result);
    let id = Store::open(path)?.add(&ResultFacts::parse(&text)?, &text)?;
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    let store = Store::open_existing(path)?;
    ensure!(store.result(id)? == text, "the stored result differs");
    Ok(took_ms)
}

fn median(one: impl Fn(usize) -> Result<f64>) -> Result<f64> {
    let runs = (0..REPETITIONS).map(one).collect::<Result<Vec<_>>>()?;
    Ok(Figure::new("", "", runs).median())
}

/// Measures the list and the storing of a result, alternating.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    // The directory of temporary files may be a tmpfs, which needs no disk.
    let parent = binary.parent().context("the binary has no parent directory")?;
    let directory = TempDir::new_in(parent)?;
    let path = directory.path().join("runs.sqlite");
    let store = fill_store(&path)?;
    ensure!(store.list(&RunFilter::default())?.len() == RUNS);
    drop(store);
    let host = Host::read();
    let growing = directory.path().join("growing.sqlite");
    drop(fill_store(&growing)?);
    let (mut lists, mut keeps) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        lists.push(median(|_| list_ms(binary, &path))?);
        keeps.push(median(|repeat| {
            store_ms(&growing, (round * REPETITIONS + repeat) as u64, &host)
        })?);
    }
    Ok(vec![
        Figure::new(format!("store: runs list of {RUNS} runs"), "ms", lists)
            .with(Goal::Below(LIST_GOAL_MS)),
        Figure::new("store: a result of ten minutes kept", "ms", keeps)
            .with(Goal::Below(STORE_GOAL_MS)),
    ])
}
