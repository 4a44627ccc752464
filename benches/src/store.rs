//! Cost of storing results: duration of a list of many runs, as a whole command, and the time a
//! command waits until its result is stored, by the product's own code and on disk.

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
const KEEP_GOAL_MS: f64 = 50.0;
/// Measurements in each round, of which the median counts: single ones wait for other users of
/// the disk.
const REPEATS: usize = 5;

/// A result of which there are many.
fn small(number: usize) -> String {
    let (day, minute) = (1 + number / 1_440, number % 1_440);
    format!(
        r#"{{"schema":"horolog.load/2","started":"2026-01-{day:02}T{:02}:{:02}:00.000Z","command":["horolog","load","ntp","192.0.2.1","--rate","{number}"],"findings":[{{"code":"trials-inconsistent","severity":"warning","message":"m","advice":"a"}}]}}"#,
        minute / 60,
        minute % 60
    )
}

fn filled(path: &Path) -> Result<Store> {
    let mut store = Store::open(path)?;
    let results = (0..RUNS).map(|number| {
        let text = small(number);
        Ok((ResultFacts::parse(&text)?, text))
    });
    let stored = store.add_all(&results.collect::<Result<Vec<_>>>()?)?;
    ensure!(stored == RUNS, "{stored} were kept");
    Ok(store)
}

/// `horolog runs list`, in ms.
fn listed(binary: &Path, store: &Path) -> Result<f64> {
    let mut command = Command::new(binary);
    command.args(["runs", "list", "--store"]).arg(store);
    let began = Instant::now();
    let output = command.output()?;
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    let lines = String::from_utf8_lossy(&output.stdout).lines().count();
    ensure!(output.status.success() && lines == RUNS + 1, "{lines} lines");
    Ok(took_ms)
}

/// A result of ten minutes, from the record to the store on the disk, in ms.
fn store_ms(path: &Path, seed: u64, host: &Host) -> Result<f64> {
    let result = record(seed, host);
    let began = Instant::now();
    let text = to_json(&result);
    let id = Store::open(path)?.add(&ResultFacts::parse(&text)?, &text)?;
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    let store = Store::open_existing(path)?;
    ensure!(store.result(id)? == text, "it is not what was kept");
    Ok(took_ms)
}

fn median(one: impl Fn(usize) -> Result<f64>) -> Result<f64> {
    let runs = (0..REPEATS).map(one).collect::<Result<Vec<_>>>()?;
    Ok(Figure::new("", "", runs).median())
}

/// Lists and stores in turn.
pub(crate) fn measure(binary: &Path, rounds: usize) -> Result<Vec<Figure>> {
    // Not the directory of temporary files: it may be a tmpfs, which needs no disk.
    let parent = binary.parent().context("a binary without a directory")?;
    let directory = TempDir::new_in(parent)?;
    let path = directory.path().join("runs.sqlite");
    let store = filled(&path)?;
    ensure!(store.list(&RunFilter::default())?.len() == RUNS);
    drop(store);
    let host = Host::read();
    let growing = directory.path().join("growing.sqlite");
    drop(filled(&growing)?);
    let (mut lists, mut keeps) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        lists.push(median(|_| listed(binary, &path))?);
        keeps.push(median(|repeat| store_ms(&growing, (round * REPEATS + repeat) as u64, &host))?);
    }
    Ok(vec![
        Figure::new(format!("store: runs list of {RUNS} runs"), "ms", lists)
            .with(Goal::Below(LIST_GOAL_MS)),
        Figure::new("store: a result of ten minutes kept", "ms", keeps)
            .with(Goal::Below(KEEP_GOAL_MS)),
    ])
}
