//! Results for pages in addition to sample files: samples with full histograms, no two alike, and
//! results composed of samples, with parts that no file has.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use horolog_record::Distribution;
use horolog_stats::Histogram;
use horolog_time::SplitMix64;
use serde_json::{Value, json};

use crate::long_run_pages::{HOUR, load_of_seconds};
use crate::process::{TIMEOUT, binary, run_to_end};
use crate::runs::samples;

/// Values of a distribution, enough for some beyond each reported quantile.
const VALUES: usize = 12_000;

/// Lines of a clock log, more than a plot shows separately.
const LOG_LINES: i64 = 5_000;

/// Generator of random distributions, no two alike.
pub(crate) struct RandomDistributions(SplitMix64);

impl RandomDistributions {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns a random number between 0 and 1, exclusive.
    fn random_share(&mut self) -> f64 {
        ((self.0.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn distribution(&mut self) -> Result<Value> {
        let mut histogram = Histogram::new();
        let typical_ns = 1e3 * 1e3_f64.powf(self.random_share());
        for _ in 0..VALUES + (self.random_share() * VALUES as f64) as usize {
            histogram.record((typical_ns * (1.0 - 2.0 * self.random_share().ln())) as u64);
        }
        let distribution = Distribution::from_histogram(&histogram).context("no distribution")?;
        Ok(serde_json::to_value(distribution)?)
    }

    /// Replaces each distribution of durations by a random one with a histogram.
    pub(crate) fn replace_in(&mut self, result: &mut Value) -> Result<()> {
        match result {
            Value::Object(fields) => {
                let is_it = fields.contains_key("histogram") && fields.contains_key("p50");
                if is_it && !fields.contains_key("histogram_negative") {
                    *result = self.distribution()?;
                    return Ok(());
                }
                fields.values_mut().try_for_each(|field| self.replace_in(field))
            }
            Value::Array(elements) => {
                elements.iter_mut().try_for_each(|element| self.replace_in(element))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the result in a sample file.
pub(crate) fn sample_result(name: &str) -> Result<Value> {
    let file =
        samples()?.into_iter().find(|file| file.file_stem().is_some_and(|stem| stem == name));
    let file = file.with_context(|| format!("no result '{name}'"))?;
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

/// Returns all results with full histograms and all composed ones, each with its name.
pub(crate) fn variants() -> Result<Vec<(String, Value)>> {
    let mut fill = RandomDistributions::new(1);
    let mut variants = Vec::new();
    for file in samples()? {
        let name = file.file_stem().context("no name")?.to_string_lossy().into_owned();
        let mut result = serde_json::from_str(&fs::read_to_string(&file)?)?;
        fill.replace_in(&mut result)?;
        variants.push((format!("{name}-full"), result));
    }
    let load = sample_result("load")?;
    variants.push(("load-by-ramp".to_owned(), without_fields(&load, &["search", "series"])));
    variants.push(("load-by-profile".to_owned(), without_fields(&load, &["search"])));
    variants.push(("nts-ke-load".to_owned(), nts_ke_load(&load)?));
    variants.push(("load-of-an-hour".to_owned(), load_of_seconds(HOUR)?));
    variants.push(("twelve-exchanges".to_owned(), twelve_exchanges(&mut fill)?));
    for (name, mut result) in [("demo", demo(&load)?), ("bench_nts", bench_nts(&load)?)] {
        fill.replace_in(&mut result)?;
        variants.push((format!("{name}-with-loads"), result));
    }
    Ok(variants)
}

/// Returns a copy of a result without these fields.
pub(crate) fn without_fields(result: &Value, fields: &[&str]) -> Value {
    let mut result = result.clone();
    if let Some(all) = result.as_object_mut() {
        all.retain(|name, _| !fields.contains(&name.as_str()));
    }
    result
}

/// Returns a copy of a load whose search ended at this rate.
fn with_search_rate(load: &Value, rate: f64) -> Value {
    let mut load = load.clone();
    load["search"]["lower"] = json!(rate);
    load
}

fn demo(load: &Value) -> Result<Value> {
    let mut demo = sample_result("demo")?;
    let one = demo["candidates"][0].take();
    let candidate = |label: &str, rate| {
        let mut candidate = one.clone();
        candidate["label"] = json!(label);
        candidate["load"] = with_search_rate(load, rate);
        candidate
    };
    demo["candidates"] = json!([candidate("slow", 1e6), candidate("fast", 3.25e6)]);
    Ok(demo)
}

fn bench_nts(load: &Value) -> Result<Value> {
    let mut bench = sample_result("bench_nts")?;
    let one = bench["capacities"][0].take();
    let capacity = |percent: u32, rate, cpu_ns| {
        let mut capacity = one.clone();
        capacity["authenticated_percent"] = json!(percent);
        capacity["cpu_ns_per_reply"] = json!(cpu_ns);
        capacity["load"] = with_search_rate(load, rate);
        capacity
    };
    bench["capacities"] = json!([capacity(0, 2e6, 410.0), capacity(75, 1.5e6, 1_930.5)]);
    Ok(bench)
}

/// Returns a result with exchanges of all mechanisms, peers and placements.
fn twelve_exchanges(fill: &mut RandomDistributions) -> Result<Value> {
    let mut result = sample_result("host_switch")?;
    let one = result["exchanges"][0].take();
    let mut all = Vec::new();
    for mechanism in ["pipe", "futex", "eventfd"] {
        for peer in ["process", "thread"] {
            for placement in ["same-core", "across-cores"] {
                let mut exchange = without_fields(&one, &["error"]);
                exchange["mechanism"] = json!(mechanism);
                exchange["peer"] = json!(peer);
                exchange["placement"] = json!(placement);
                all.push(exchange);
            }
        }
    }
    result["exchanges"] = json!(all);
    fill.replace_in(&mut result)?;
    Ok(result)
}

/// Returns the result of a load of NTS-KE exchanges with a search.
fn nts_ke_load(load: &Value) -> Result<Value> {
    let mut fill = RandomDistributions::new(2);
    let mut trial = |rate: f64, lost: u64| -> Result<Value> {
        Ok(json!({
            "intended_rate": rate, "achieved_rate": rate - 0.5, "duration_s": 2.0, "clients": 64,
            "sent": 2 * rate as u64, "received": 2 * rate as u64 - lost, "lost": lost,
            "failures": { "timeout": lost }, "handshake_ns": fill.distribution()?,
        }))
    };
    let trials = [trial(1e3, 0)?, trial(2e3, 3)?, trial(3e3, 2_500)?];
    let mut result = without_fields(load, &["series", "outages", "overload", "limits"]);
    result["mode"] = json!("nts-ke");
    result["target"]["port"] = json!(4460);
    result["trials"] = json!(trials);
    result["findings"] = json!([]);
    Ok(with_search_rate(&result, 1_999.5))
}

/// Writes a clock log, and returns its page of `horolog clock plot`.
pub(crate) fn plot_clock_log(directory: &Path) -> Result<PathBuf> {
    let of = |name: &str| directory.join(name);
    let [log, page] = ["clock.log", "clock-log.html"].map(of);
    let mut lines = String::new();
    for number in 0..LOG_LINES {
        let offset_ns = number * 7_919 % 20_011 - 9_000;
        let mut line = json!({
            "monotonic_ns": number * 1_000_000_000, "clock": "tai", "offset_ns": offset_ns,
            "measured_ns": offset_ns + number % 13, "frequency_ppb": number % 17,
            "verdict": if number % 9 == 0 { "outlier" } else { "accepted" },
            "command_ppb": -(number % 19), "state": if number < 40 { "coarse" } else { "locked" },
        });
        if number == 70 {
            line["step_ns"] = json!(-5_000);
        }
        writeln!(lines, "{line}")?;
    }
    fs::write(&log, lines)?;
    let mut command = Command::new(binary()?);
    command.args(["clock", "plot"]).arg(&log).arg("--html").arg(&page);
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(page)
}
