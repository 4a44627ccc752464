//! Scenarios of `horolog runs compare`, with results that were measured: a server that is further
//! off, runs that differ of themselves, and figures that were asked for.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{CompareResult, CompareVerdict, ComparedFigureKind};
use libtest_mimic::Trial;
use tempfile::TempDir;

use crate::process::{Engine, PATIENCE, Server, binary, run_to_end, server_address};
use crate::{ROOT, runs_compare, scenarios};

/// How far off the changed server is, in ns.
const OFFSET: f64 = 5e6;
const OFFSET_ERROR_MAX: f64 = 1e5;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    Vec::from(scenarios!(ROOT, runs_compare: a_server_that_is_further_off_is_found))
}

fn compare(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary()?);
    run_to_end(command.args(["runs", "compare"]).args(arguments), PATIENCE)
}

fn a_server_that_is_further_off_is_found() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    let query = |name: &str| -> Result<String> {
        let path: PathBuf = directory.path().join(name);
        let path = path.to_str().context("no text")?.to_owned();
        let mut command = lab.client().command(binary()?);
        command.args(["query", &at.to_string(), "-n", "50", "--interval", "5ms", "--json", &path]);
        let output = run_to_end(&mut command, PATIENCE)?;
        ensure!(output.status.success(), "{output:?}");
        Ok(path)
    };
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let right = [query("a.json")?, query("b.json")?, query("c.json")?];
    drop(server);
    let moved = format!("{OFFSET}");
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &["--test-offset", &moved])?;
    let off = [query("d.json")?, query("e.json")?, query("f.json")?];

    // What is as it was is not called worse; how long it takes differs by itself on any machine.
    let same = compare(&[&right[0], &right[1], "--figure", "offset"])?;
    ensure!(same.status.success(), "{same:?}");
    let worse = compare(&[&right[0], &off[0], "--figure", "offset", "--json", "-"])?;
    ensure!(worse.status.code() == Some(1), "{worse:?}");
    let result: CompareResult = serde_json::from_slice(&worse.stdout)?;
    let [figure] = &result.figures[..] else { anyhow::bail!("{result:?}") };
    let (low, high) = figure.low.zip(figure.high).context("no bounds")?;
    let is_right = figure.verdict == CompareVerdict::Worse
        && figure.figure == ComparedFigureKind::Offset
        && (figure.later - OFFSET).abs() < OFFSET_ERROR_MAX
        && low < high
        && low > OFFSET - 2.0 * OFFSET_ERROR_MAX;
    ensure!(is_right, "{figure:?}");

    let [right, off] = [right.join(","), off.join(",")];
    let several = compare(&[&right, &off, "--threshold", "100000%", "--json", "-"])?;
    let result: CompareResult = serde_json::from_slice(&several.stdout)?;
    let repeats = [&result.earlier_repeats, &result.later_repeats].map(Vec::len);
    ensure!(repeats == [2, 2] && result.threshold > 999.0, "{result:?}");
    let delays = |one: &&horolog_record::ComparedFigure| one.place.ends_with("delay_ns");
    let median = result.figures.iter().find(delays).context("no delays")?;
    ensure!(median.low.is_some() && median.verdict != CompareVerdict::Worse, "{median:?}");
    let told = compare(&[&right, &off])?;
    let text = String::from_utf8(told.stdout)?;
    ensure!(text.contains(" and 2 more against ") && text.contains("offset_ns"), "{text}");

    let nothing = compare(&[&right, &off, "--figure", "no-such-figure"])?;
    ensure!(nothing.status.code() == Some(2), "{nothing:?}");
    Ok(())
}
