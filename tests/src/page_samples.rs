//! Results for pages in addition to those in files: the same with full histograms, no two alike,
//! and those with parts that no file shows, composed of those that do.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use horolog_record::Distribution;
use horolog_stats::Recorder;
use horolog_time::SplitMix64;
use serde_json::{Value, json};

use crate::long_run_pages::{HOUR, of_seconds};
use crate::process::{TIMEOUT, binary, run_to_end};
use crate::runs::golden;

/// Values of a distribution, so many that each quantile that is told has some beyond it.
const VALUES: usize = 12_000;

/// Lines of a clock's log, more than a plot shows apart.
const LOG_LINES: i64 = 5_000;

/// Draws distributions, no two alike.
pub(crate) struct Fill(SplitMix64);

impl Fill {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A number from 0 to 1, without either.
    fn share(&mut self) -> f64 {
        ((self.0.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn distribution(&mut self) -> Result<Value> {
        let mut recorder = Recorder::new();
        let typical_ns = 1e3 * 1e3_f64.powf(self.share());
        for _ in 0..VALUES + (self.share() * VALUES as f64) as usize {
            recorder.record((typical_ns * (1.0 - 2.0 * self.share().ln())) as u64);
        }
        let distribution = Distribution::from_recorder(&recorder).context("no distribution")?;
        Ok(serde_json::to_value(distribution)?)
    }

    /// Gives each distribution of times other figures, and a histogram.
    pub(crate) fn distributions(&mut self, result: &mut Value) -> Result<()> {
        match result {
            Value::Object(fields) => {
                let is_it = fields.contains_key("histogram") && fields.contains_key("p50");
                if is_it && !fields.contains_key("histogram_negative") {
                    *result = self.distribution()?;
                    return Ok(());
                }
                fields.values_mut().try_for_each(|field| self.distributions(field))
            }
            Value::Array(elements) => {
                elements.iter_mut().try_for_each(|element| self.distributions(element))
            }
            _ => Ok(()),
        }
    }
}

/// A result that stands in a file.
pub(crate) fn of_file(name: &str) -> Result<Value> {
    let file = golden()?.into_iter().find(|file| file.file_stem().is_some_and(|stem| stem == name));
    let file = file.with_context(|| format!("no result '{name}'"))?;
    Ok(serde_json::from_str(&fs::read_to_string(file)?)?)
}

/// All results, each with its name.
pub(crate) fn variants() -> Result<Vec<(String, Value)>> {
    let mut fill = Fill::new(1);
    let mut variants = Vec::new();
    for file in golden()? {
        let name = file.file_stem().context("no name")?.to_string_lossy().into_owned();
        let mut result = serde_json::from_str(&fs::read_to_string(&file)?)?;
        fill.distributions(&mut result)?;
        variants.push((format!("{name}-full"), result));
    }
    let load = of_file("load")?;
    variants.push(("load-by-ramp".to_owned(), without(&load, &["search", "series"])));
    variants.push(("load-by-course".to_owned(), without(&load, &["search"])));
    variants.push(("establishments".to_owned(), nts_ke_load(&load)?));
    variants.push(("load-of-an-hour".to_owned(), of_seconds(HOUR)?));
    variants.push(("switches-of-twelve".to_owned(), twelve_exchanges(&mut fill)?));
    for (name, mut result) in [("demo", demo(&load)?), ("bench_nts", bench_nts(&load)?)] {
        fill.distributions(&mut result)?;
        variants.push((format!("{name}-with-loads"), result));
    }
    Ok(variants)
}

/// Without these of its fields.
pub(crate) fn without(result: &Value, fields: &[&str]) -> Value {
    let mut result = result.clone();
    if let Some(all) = result.as_object_mut() {
        all.retain(|name, _| !fields.contains(&name.as_str()));
    }
    result
}

/// A load whose search ended at this rate.
fn found(load: &Value, rate: f64) -> Value {
    let mut load = load.clone();
    load["search"]["lower"] = json!(rate);
    load
}

fn demo(load: &Value) -> Result<Value> {
    let mut demo = of_file("demo")?;
    let one = demo["candidates"][0].take();
    let candidate = |label: &str, rate| {
        let mut candidate = one.clone();
        candidate["label"] = json!(label);
        candidate["load"] = found(load, rate);
        candidate
    };
    demo["candidates"] = json!([candidate("slow", 1e6), candidate("fast", 3.25e6)]);
    Ok(demo)
}

fn bench_nts(load: &Value) -> Result<Value> {
    let mut bench = of_file("bench_nts")?;
    let one = bench["capacities"][0].take();
    let capacity = |percent: u32, rate, cpu_ns| {
        let mut capacity = one.clone();
        capacity["authenticated_percent"] = json!(percent);
        capacity["cpu_ns_per_reply"] = json!(cpu_ns);
        capacity["load"] = found(load, rate);
        capacity
    };
    bench["capacities"] = json!([capacity(0, 2e6, 410.0), capacity(75, 1.5e6, 1_930.5)]);
    Ok(bench)
}

/// Switches in all ways, between all partners, in all places.
fn twelve_exchanges(fill: &mut Fill) -> Result<Value> {
    let mut result = of_file("host_switch")?;
    let one = result["exchanges"][0].take();
    let mut all = Vec::new();
    for way in ["pipe", "futex", "eventfd"] {
        for peer in ["process", "thread"] {
            for placement in ["same-core", "across-cores"] {
                let mut exchange = without(&one, &["error"]);
                exchange["mechanism"] = json!(way);
                exchange["peer"] = json!(peer);
                exchange["placement"] = json!(placement);
                all.push(exchange);
            }
        }
    }
    result["exchanges"] = json!(all);
    fill.distributions(&mut result)?;
    Ok(result)
}

/// Key establishments by a search.
fn nts_ke_load(load: &Value) -> Result<Value> {
    let mut fill = Fill::new(2);
    let mut trial = |rate: f64, lost: u64| -> Result<Value> {
        Ok(json!({
            "intended_rate": rate, "achieved_rate": rate - 0.5, "duration_s": 2.0, "clients": 64,
            "sent": 2 * rate as u64, "received": 2 * rate as u64 - lost, "lost": lost,
            "failures": { "timeout": lost }, "handshake_ns": fill.distribution()?,
        }))
    };
    let trials = [trial(1e3, 0)?, trial(2e3, 3)?, trial(3e3, 2_500)?];
    let mut result = without(load, &["series", "outages", "overload", "limits"]);
    result["mode"] = json!("nts-ke");
    result["target"]["port"] = json!(4460);
    result["trials"] = json!(trials);
    result["findings"] = json!([]);
    Ok(found(&result, 1_999.5))
}

/// Makes the page of a clock's log by the command.
pub(crate) fn drawn_log(directory: &Path) -> Result<PathBuf> {
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
