//! Benchmark of the documented goals, measured in lab hosts against other tools in the same run,
//! alternating, with medians of several runs. It reports which goals were reached and fails only
//! if it could not measure: a value depends on the host, so no test asserts it.
//!
//! Usage: `horolog-bench [--repetitions N] [--json FILE] [capacity] [generation] [generator]
//! [footprint] [flood] [limits] [interleaved] [nts] [nts-ke] [ptp] [ptp-jitter]
//! [calibration-core] [host-timer] [host-switch] [path-udp] [path-tcp] [relay] [campaign]
//! [campaign-merge] [cycle] [report] [store]`.

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

use std::path::PathBuf;

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
    benchmarks: Vec<String>,
}

const BENCHMARKS: [&str; 22] = [
    "footprint",
    "generation",
    "generator",
    "flood",
    "limits",
    "capacity",
    "interleaved",
    "nts",
    "nts-ke",
    "ptp",
    "ptp-jitter",
    "calibration-core",
    "host-timer",
    "host-switch",
    "path-udp",
    "path-tcp",
    "relay",
    "campaign",
    "campaign-merge",
    "cycle",
    "report",
    "store",
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
                part if BENCHMARKS.contains(&part) => options.benchmarks.push(argument),
                other => bail!("'{other}' is not a benchmark; known: {}", BENCHMARKS.join(", ")),
            }
        }
        if options.benchmarks.is_empty() {
            options.benchmarks = BENCHMARKS.map(str::to_owned).to_vec();
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

fn main() -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let (binary, started) = (binary()?, horolog_record::rfc3339_now());
    let mut figures = Vec::new();
    for part in &options.benchmarks {
        figures.extend(match part.as_str() {
            "footprint" => footprint::measure(&binary, options.rounds)?,
            "generation" => generation::measure(options.rounds)?,
            "generator" => generator::measure(&binary, options.rounds)?,
            "interleaved" => interleaved::measure(&binary, options.rounds)?,
            "nts" => nts::measure(&binary, options.rounds)?,
            "nts-ke" => nts_ke::measure(&binary, options.rounds)?,
            "ptp" => ptp::measure(&binary, options.rounds)?,
            "ptp-jitter" => ptp_jitter::measure(&binary, options.rounds)?,
            "calibration-core" => calibration_core::measure(&binary, options.rounds)?,
            "host-timer" => host_timer::measure(&binary, options.rounds)?,
            "host-switch" => host_switch::measure(&binary, options.rounds)?,
            "path-udp" => path_udp::measure(&binary, options.rounds)?,
            "path-tcp" => path_tcp::measure(&binary, options.rounds)?,
            "relay" => relay::measure(&binary, options.rounds)?,
            "campaign" => campaign::measure(&binary, options.rounds)?,
            "campaign-merge" => campaign_merge::measure(options.rounds)?,
            "cycle" => cycle::measure(&binary, options.rounds)?,
            "report" => report::measure(&binary, options.rounds)?,
            "store" => store::measure(&binary, options.rounds)?,
            "limits" => limits::measure(&binary, options.rounds)?,
            "flood" => capacity::flood(&binary, options.rounds)?,
            _ => capacity::measure(&binary, options.rounds)?,
        });
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
    Ok(())
}

fn goals(figures: &[Figure]) -> usize {
    figures.iter().filter(|figure| figure.goal.is_some()).count()
}
