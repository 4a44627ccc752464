//! Benchmark of the documented goals, measured in lab hosts against other tools in the same run,
//! alternating, with medians of several runs. It reports which goals were reached and fails only
//! if it could not measure: a value depends on the host, so no test asserts it.
//!
//! Usage: `horolog-bench [--repetitions N] [--json FILE] [BENCHMARK ...]`, with the names of
//! [`BENCHMARKS`].

mod calibrated_server;
mod calibration_core;
mod campaign;
mod campaign_merge;
mod capacity;
mod cycle;
mod figure;
mod footprint;
mod generation;
mod generator;
mod host_switch;
mod host_timer;
mod interleaved;
mod limits;
mod metrics;
mod nts;
mod nts_ke;
mod path_tcp;
mod path_udp;
mod ptp;
mod ptp_jitter;
mod ptp_masters;
mod relay;
mod report;
mod servers;
mod store;
mod synthetic_soak;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use figure::Figure;
use horolog_record::Host;
use serde::Serialize;

/// Result of the benchmark as written to a file.
#[derive(Serialize)]
struct BenchResult<'a> {
    schema: &'static str,
    started: String,
    host: Host,
    rounds: usize,
    figures: &'a [Figure],
}

struct Options {
    rounds: usize,
    json: Option<PathBuf>,
    benchmarks: Vec<(&'static str, Benchmark)>,
}

/// Function that measures the figures of one benchmark with a binary, so many times.
type Benchmark = fn(&Path, usize) -> Result<Vec<Figure>>;

/// Names of the benchmarks, and their functions, in the order in which all run.
const BENCHMARKS: [(&str, Benchmark); 22] = [
    ("footprint", footprint::measure),
    ("generation", |_, rounds| generation::measure(rounds)),
    ("generator", generator::measure),
    ("flood", capacity::flood),
    ("limits", limits::measure),
    ("capacity", capacity::measure),
    ("interleaved", interleaved::measure),
    ("nts", nts::measure),
    ("nts-ke", nts_ke::measure),
    ("ptp", ptp::measure),
    ("ptp-jitter", ptp_jitter::measure),
    ("calibration-core", calibration_core::measure),
    ("host-timer", host_timer::measure),
    ("host-switch", host_switch::measure),
    ("path-udp", path_udp::measure),
    ("path-tcp", path_tcp::measure),
    ("relay", relay::measure),
    ("campaign", campaign::measure),
    ("campaign-merge", |_, rounds| campaign_merge::measure(rounds)),
    ("cycle", cycle::measure),
    ("report", report::measure),
    ("store", store::measure),
];

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self { rounds: 3, json: None, benchmarks: Vec::new() };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--repetitions" => {
                    let rounds = arguments.next().context("--repetitions takes a number")?;
                    options.rounds = rounds.parse().context("--repetitions takes a number")?;
                }
                "--json" => {
                    options.json = Some(arguments.next().context("--json takes a file")?.into());
                }
                name => match BENCHMARKS.iter().find(|(known, _)| *known == name) {
                    Some(benchmark) => options.benchmarks.push(*benchmark),
                    None => bail!("'{name}' is not a benchmark; known: {}", names(&BENCHMARKS)),
                },
            }
        }
        if options.benchmarks.is_empty() {
            options.benchmarks = BENCHMARKS.to_vec();
        }
        Ok(options)
    }
}

/// Returns the path of the product's binary: `HOROLOG_BIN`, or in the directory of this program.
fn binary() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("HOROLOG_BIN") {
        return Ok(named.into());
    }
    let path = std::env::current_exe()?.with_file_name("horolog");
    if path.exists() { Ok(path) } else { bail!("cannot find {}; build it", path.display()) }
}

fn main() -> Result<ExitCode> {
    let options = Options::parse(std::env::args().skip(1))?;
    let (binary, started) = (binary()?, horolog_record::rfc3339_now());
    let (mut figures, mut failed) = (Vec::new(), Vec::new());
    for benchmark in &options.benchmarks {
        let (name, measure) = benchmark;
        // One failure costs only the figures of its own benchmark.
        match measure(&binary, options.rounds) {
            Ok(measured) => figures.extend(measured),
            Err(error) => {
                eprintln!("{name}: {error:#}");
                failed.push(*benchmark);
            }
        }
    }
    for figure in &figures {
        println!("{}", figure.line());
    }
    let missed = figures.iter().filter(|figure| !figure.is_reached()).count();
    println!("{} figures with a goal, {missed} missed", goals(&figures));
    if let Some(path) = options.json {
        let (host, rounds) = (Host::read(), options.rounds);
        let schema = "horolog.bench/1";
        let result = BenchResult { schema, started, host, rounds, figures: &figures };
        std::fs::write(&path, horolog_report::to_json(&result))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("benchmarks that failed: {}", names(&failed));
    Ok(ExitCode::FAILURE)
}

fn names(benchmarks: &[(&str, Benchmark)]) -> String {
    benchmarks.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn goals(figures: &[Figure]) -> usize {
    figures.iter().filter(|figure| figure.goal.is_some()).count()
}
