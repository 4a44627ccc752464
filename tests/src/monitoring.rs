//! Scenarios of Prometheus: it scrapes a server under load, an unsynchronised one, one with a
//! receiver, a relay, and a load run with its token. It has every metric that dashboards and alert
//! rules use, evaluates each of their expressions, and raises exactly the expected alerts.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::receiver::SimulatedGnssReceiver;
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use horolog_time::Span;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address, write_secret};
use crate::relay::{self, Relay};
use crate::scenario::{Need, Scenario};
use crate::server_nts::write_certificate;
use crate::{monitoring, scenarios};

const PACKAGING: &str = concat!(env!("HOROLOG_REPOSITORY"), "packaging");
const PORTS: [u16; 4] = [9_123, 9_124, 9_125, 9_105];
/// Metrics of a receiver's pulse, which no test machine has.
const PULSE_METRICS: [&str; 4] = [
    "horolog_calibration_allan_deviation_ppb",
    "horolog_calibration_frequency_ppb",
    "horolog_calibration_noise_seconds",
    "horolog_calibration_pulses_total",
];
const TOKEN: &str = "0123456789abcdef";
const PROMETHEUS_PORT: u16 = 9_090;
/// Timeout of alerts, and of the start of Prometheus on a busy machine.
const LONG_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[Need::Peer("promtool")], monitoring:
        alert_rules_fire_as_intended,
    ));
    all.extend(scenarios!(&[Need::Root, Need::Peer("prometheus")], monitoring:
        a_real_prometheus_answers_every_query,
        a_real_prometheus_scrapes_a_load_run,
    ));
    all
}

fn packaging(name: &str) -> PathBuf {
    Path::new(PACKAGING).join(name)
}

fn alert_rules_fire_as_intended() -> Result<()> {
    for (what, file) in
        [("check", "alerts.yml"), ("check", "prometheus.yml"), ("test", "alerts_test.yml")]
    {
        let kind = if file == "prometheus.yml" { "config" } else { "rules" };
        let mut command = Command::new("promtool");
        command.args([what, kind]).arg(packaging("prometheus").join(file));
        let output = run_to_end(&mut command, LONG_TIMEOUT)?;
        ensure!(output.status.success(), "{file}: {output:?}");
    }
    let tests = fs::read_to_string(packaging("prometheus/alerts_test.yml"))?;
    let rules = fs::read_to_string(packaging("prometheus/alerts.yml"))?;
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        for kind in ["fires", "does not fire"] {
            ensure!(
                tests.contains(&format!("- name: {alert} {kind}\n")),
                "{alert}: no test {kind}"
            );
        }
    }
    Ok(())
}

/// Returns the expressions of a dashboard, with its variables replaced.
fn dashboard_expressions(name: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(packaging("grafana").join(name))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let filled = targets.map(|target| {
        let expression = target["expr"].as_str().context("no expression")?;
        let expression = expression.replace("$__rate_interval", "1m");
        let names = ["$job", "$instance", "$relay"];
        let filled = names.iter().fold(expression, |text, name| text.replace(name, ".+"));
        ensure!(!filled.contains('$'), "{filled} has another variable");
        Ok(filled)
    });
    filled.collect()
}

/// Returns the names of Horolog's metrics in a text.
fn metric_names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).filter(|word| word.starts_with("horolog_")).collect()
}

/// Prometheus that scrapes all targets every second, and fires alerts after 1 s.
struct Prometheus<'a> {
    host: &'a LabHost,
    at: SocketAddr,
    _running: RunningProgram,
    _directory: TempDir,
}

impl<'a> Prometheus<'a> {
    /// Starts Prometheus with the targets of each job; `token` is the file of their bearer token.
    fn start(
        host: &'a LabHost,
        at: SocketAddr,
        targets: &[(&str, &[SocketAddr])],
        token: Option<&Path>,
    ) -> Result<Self> {
        let directory = TempDir::new()?;
        let rules = fs::read_to_string(packaging("prometheus/alerts.yml"))?;
        let impatient = rules.lines().map(|line| match line.split_once("for: ") {
            Some((before, _)) if before.trim().is_empty() => format!("{before}for: 1s\n"),
            _ => format!("{line}\n"),
        });
        fs::write(directory.path().join("alerts.yml"), impatient.collect::<Vec<_>>().concat())?;
        let jobs = targets.iter().map(|(job, targets)| {
            let targets: Vec<_> = targets.iter().map(|target| format!("\"{target}\"")).collect();
            let targets = targets.join(", ");
            let authorization = token.map_or_else(String::new, |file| {
                format!("    authorization:\n      credentials_file: {}\n", file.display())
            });
            format!(
                "  - job_name: {job}\n{authorization}    static_configs:\n      \
                 - targets: [{targets}]\n"
            )
        });
        let configuration = format!(
            "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n\
             rule_files: [alerts.yml]\nscrape_configs:\n{}",
            jobs.collect::<Vec<_>>().concat()
        );
        let file = directory.path().join("prometheus.yml");
        fs::write(&file, configuration)?;
        let mut command = host.command("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()));
        command.arg(format!("--web.listen-address={at}")).current_dir(&directory);
        let running = RunningProgram::start(&mut command)?;
        Ok(Self { host, at, _running: running, _directory: directory })
    }

    /// Returns the data of a response of the HTTP interface.
    fn get(&self, path: &str) -> Result<Value> {
        let mut stream = self.host.run(|| TcpStream::connect(self.at))??;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        let (_, body) = reply.split_once("\r\n\r\n").context("no response body")?;
        let response: Value = serde_json::from_str(body).with_context(|| reply.clone())?;
        ensure!(response["status"] == "success", "{path}: {response}");
        Ok(response["data"].clone())
    }

    /// Returns the present samples of an expression.
    fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let encoded: Vec<_> = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.get(&format!("/api/v1/query?query={}", encoded.concat()))?;
        Ok(data["result"].as_array().context("no samples")?.clone())
    }

    /// Waits until an expression has `count` samples.
    fn await_samples(&self, expression: &str, count: usize) -> Result<()> {
        let started = Instant::now();
        loop {
            let last = self.query(expression);
            if last.as_ref().is_ok_and(|samples| samples.len() == count) {
                return Ok(());
            }
            if started.elapsed() > LONG_TIMEOUT {
                bail!("{expression}: not {count} samples: {last:?}");
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the firing alerts, each with its instance.
    fn firing(&self) -> Result<BTreeSet<(String, String)>> {
        let data = self.get("/api/v1/alerts")?;
        let alerts = data["alerts"].as_array().context("no alerts")?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let of = |alert: &Value, label: &str| {
            alert["labels"][label].as_str().unwrap_or_default().to_owned()
        };
        Ok(firing.map(|alert| (of(alert, "alertname"), of(alert, "instance"))).collect())
    }
}

/// Starts a load that runs until it is dropped.
fn start_load(host: &LabHost, at: SocketAddr) -> Result<RunningProgram> {
    let mut command = host.command(binary()?);
    let target = at.to_string();
    command.args(["load", "ntp", &target, "--engine", "udp", "--rate", "500", "--time", "600"]);
    Ok(RunningProgram::start(command.arg("--no-store"))?)
}

fn a_real_prometheus_answers_every_query() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let all = PORTS.map(|port| SocketAddr::new(at.ip(), port));
    let (names, [sound, unsound, calibrated, of_relay]) = (all.map(|one| one.to_string()), all);
    let files = TempDir::new()?;
    let [cert, key] =
        write_certificate(at.ip(), files.path())?.map(|path| path.display().to_string());
    let nts = ["--metrics", &names[0], "--nts-cert", &cert, "--nts-key", &key];
    let _server = Server::start(lab.server(), Engine::Xdp, &[at], &nts)?;
    let other = SocketAddr::new(at.ip(), 1_123);
    let arguments = ["--metrics", &names[1], "--leap", "unsynchronised"];
    let _other = Server::start(lab.server(), Engine::Socket, &[other], &arguments)?;
    let line = files.path().join("gnss");
    let _receiver = SimulatedGnssReceiver::start(&line, Span::ZERO)?;
    let receiver = ["--gnss", &line.display().to_string(), "--no-clock-control"];
    let arguments = [&["--metrics", &names[2]][..], &receiver].concat();
    let third = SocketAddr::new(at.ip(), 2_123);
    let _third = Server::start_without_local(lab.server(), Engine::Socket, &[third], &arguments)?;
    let child = (lab.client().first_interface().ipv4, relay::PORT).into();
    let table = relay::table((lab.server().first_interface().ipv4, relay::PORT), &[child]);
    let _relay = Relay::start(lab.server(), &table, &["--metrics", &names[3]])?;
    let _load = start_load(lab.client(), at)?;
    let prometheus = Prometheus::start(
        lab.client(),
        (lab.client().first_interface().ipv4, PROMETHEUS_PORT).into(),
        &[("horolog", &[sound, unsound, calibrated]), ("horolog-relay", &[of_relay])],
        None,
    )?;
    prometheus.await_samples("count_over_time(up[1m]) >= 4 and up == 1", 4)?;
    prometheus.await_samples("horolog_calibration_uncertainty_seconds", 1)?;
    prometheus.await_samples("rate(horolog_replies_total{engine=\"xdp-ipv4\"}[1m]) > 100", 1)?;
    let rules = fs::read_to_string(packaging("prometheus/alerts.yml"))?;
    check_metrics(&prometheus, "horolog.json", &rules)?;
    // One server is unsynchronised, and one knows the time to a second only.
    let alarms = [("HorologUnsynchronised", &names[1]), ("HorologDispersionHigh", &names[2])];
    await_alerts(&prometheus, &alarms)
}

fn a_real_prometheus_scrapes_a_load_run() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    // Most requests are lost, so that every metric has samples.
    let limits = ["--limit-rate", "1", "--limit-burst", "8"];
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &limits)?;
    let files = TempDir::new()?;
    let token = files.path().join("token");
    write_secret(&token, TOKEN)?;
    let page = SocketAddr::new(lab.client().first_interface().ipv4.into(), PORTS[1]);
    let mut command = lab.client().command(binary()?);
    command.args(["load", "ntp", &at.to_string(), "--engine", "udp", "--no-store", "-r", "500"]);
    command.args(["-t", "3", "--timeout", "100ms", "--web-linger", "600s"]);
    command.arg(format!("--web={page}")).arg("--web-token-file").arg(&token);
    let run = RunningProgram::start(&mut command)?;
    let prometheus = Prometheus::start(
        lab.client(),
        (lab.client().first_interface().ipv4, PROMETHEUS_PORT).into(),
        &[("load", &[page])],
        Some(&token),
    )?;
    // The run lingers with its last counts.
    prometheus.await_samples("horolog_load_running == 0 and horolog_load_sent_total >= 1000", 1)?;
    prometheus.await_samples("count_over_time(up{job=\"load\"}[1m]) >= 4 and up == 1", 1)?;
    check_metrics(&prometheus, "horolog-load.json", "")?;
    // The end of the run raises no alert.
    drop(run);
    prometheus.await_samples("up{job=\"load\"} == 0", 1)?;
    prometheus.await_samples("count_over_time(up{job=\"load\"}[3s]) >= 3 and up == 0", 1)?;
    ensure!(prometheus.firing()?.is_empty(), "{:?} fire", prometheus.firing()?);
    Ok(())
}

/// Checks that every metric of a dashboard and of rules exists, and every expression has samples.
fn check_metrics(prometheus: &Prometheus<'_>, name: &str, rules: &str) -> Result<()> {
    let known = prometheus.get("/api/v1/label/__name__/values")?;
    let known: BTreeSet<_> =
        known.as_array().context("no names")?.iter().filter_map(Value::as_str).collect();
    let expressions = dashboard_expressions(name)?;
    ensure!(expressions.len() >= 20, "{expressions:?}");
    let queried = expressions.iter().map(String::as_str).chain([rules]).flat_map(metric_names);
    let is_missing = |name: &&str| !known.contains(name) && !PULSE_METRICS.contains(name);
    let unknown: BTreeSet<_> = queried.filter(is_missing).collect();
    ensure!(unknown.is_empty(), "{unknown:?} are not among {known:?}");
    let has_no_pulse = |of: &&String| !PULSE_METRICS.iter().any(|name| of.contains(name));
    for expression in expressions.iter().filter(has_no_pulse) {
        ensure!(!prometheus.query(expression)?.is_empty(), "nothing for {expression}");
    }
    Ok(())
}

/// Waits until exactly these alerts fire, each of this instance.
fn await_alerts(prometheus: &Prometheus<'_>, due: &[(&str, &String)]) -> Result<()> {
    let due = due.iter().map(|(alarm, of)| ((*alarm).to_owned(), (*of).clone()));
    let due: BTreeSet<_> = due.collect();
    let started = Instant::now();
    while prometheus.firing()? != due {
        ensure!(started.elapsed() < LONG_TIMEOUT, "{:?} fire, not {due:?}", prometheus.firing()?);
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
