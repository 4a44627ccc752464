//! Scenarios of the live page: its values and metrics equal those of the result and of the status,
//! requests without the token are refused, and a browser draws it without an error.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::{LoadResult, NtsKeLoadResult, NtsKeTrial};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tempfile::TempDir;

use crate::load_command::{StartedProgram, load, parse};
use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address, write_secret};
use crate::scenario::{Need, Scenario};
use crate::server_nts::NtsTestbed;
use crate::usage_error::{ENVIRONMENT, USAGE, check_refusal};
use crate::{ROOT, scenarios, web};

const TOKEN: &str = "0123456789ab%+ef";
/// The token, percent-encoded for a link.
const LINK_TOKEN: &str = "0123456789ab%25%2Bef";
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const BROWSER: &[Need] = &[Need::Root, Need::Peer("chromium")];
/// A browser starts slowly on a busy host.
const BROWSER_TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, web:
        the_live_page_of_a_run_agrees_with_its_result,
        an_nts_ke_load_has_a_live_page,
        the_live_page_of_a_server_agrees_with_its_status,
        requests_without_a_token_or_for_another_host_are_refused,
        pages_reachable_from_elsewhere_are_refused,
        a_page_works_for_another_user_in_the_sandbox,
    ));
    all.extend(scenarios!(BROWSER, web: a_browser_draws_the_reported_values));
    all
}

/// Requests a page over a connection from the same host. Returns the status code and the body.
fn fetch(host: &LabHost, at: SocketAddr, target: &str, fields: &str) -> Result<(u16, String)> {
    let mut stream = host.run(|| TcpStream::connect(at))??;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(format!("GET {target} HTTP/1.1\r\n{fields}\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (header, body) = reply.split_once("\r\n\r\n").with_context(|| reply.clone())?;
    let code = header.get(9..12).and_then(|code| code.parse().ok()).context("no code")?;
    Ok((code, body.to_owned()))
}

fn fetch_page(host: &LabHost, at: SocketAddr, target: &str) -> Result<String> {
    let (code, body) = fetch(host, at, target, "Host: localhost\r\n")?;
    ensure!(code == 200, "{target}: {code} {body}");
    Ok(body)
}

fn live_values(host: &LabHost, at: SocketAddr) -> Result<Value> {
    Ok(serde_json::from_str(&fetch_page(host, at, "/live.json")?)?)
}

/// Returns the metrics by name and labels.
fn fetch_metrics(host: &LabHost, at: SocketAddr) -> Result<BTreeMap<String, f64>> {
    let text = fetch_page(host, at, "/metrics")?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
            Ok((name.to_owned(), value.parse()?))
        })
        .collect()
}

/// Load with a live page, which remains at its end until the load is killed.
struct LiveLoad {
    started: StartedProgram,
    at: SocketAddr,
    _directory: TempDir,
    json: PathBuf,
}

impl LiveLoad {
    fn start(host: &LabHost, target: SocketAddr, arguments: &[&str]) -> Result<Self> {
        let mut command = load(host, &[&target.to_string(), "--engine", "udp"])?;
        command.args(arguments);
        Self::start_command(command)
    }

    fn start_command(mut command: Command) -> Result<Self> {
        let directory = TempDir::new()?;
        let json = directory.path().join("result.json");
        command.args(["--web=127.0.0.1:0", "--web-linger", "600s", "--no-store", "--json"]);
        let mut started = StartedProgram::start(command.arg(&json))?;
        started.wait_until(|_, stderr| stderr.contains("live page at http://"))?;
        let stderr = started.read("stderr")?;
        let (_, rest) = stderr.split_once("live page at http://").context("no address")?;
        let at = rest.split_once('/').context("no end")?.0.parse()?;
        Ok(Self { started, at, _directory: directory, json })
    }

    /// Returns the live values after the end of the load.
    fn final_values(&self, host: &LabHost) -> Result<Value> {
        let begun = Instant::now();
        loop {
            let values = live_values(host, self.at)?;
            if values["state"] == "ended" && self.json.exists() {
                return Ok(values);
            }
            ensure!(begun.elapsed() < 3 * TIMEOUT, "the load does not end: {values}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn result<R: DeserializeOwned + Serialize>(&self) -> Result<R> {
        parse(&std::fs::read(&self.json)?)
    }
}

fn number_at(value: &Value, pointer: &str) -> Result<u64> {
    value.pointer(pointer).and_then(Value::as_u64).with_context(|| format!("no {pointer}: {value}"))
}

fn the_live_page_of_a_run_agrees_with_its_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = server_address(&lab, false)?;
    // Requests beyond the burst and one per second are lost.
    let limits = ["--limit-rate", "1", "--limit-burst", "8"];
    let _server = Server::start(lab.server(), Engine::Socket, &[target], &limits)?;
    for profile in [&["-r", "1k-2k", "-t", "1.2"][..], &["--soak", "3s", "-r", "1k"]] {
        let arguments = [&["--timeout", "100ms", "--clients", "2"], profile].concat();
        let loading = LiveLoad::start(lab.client(), target, &arguments)?;
        let mut highest = 0;
        let begun = Instant::now();
        // During the run no count decreases, and no more replies than requests are counted.
        while live_values(lab.client(), loading.at)?["state"] == "running" {
            let values = live_values(lab.client(), loading.at)?;
            for snapshot in values["snapshots"].as_array().context("no snapshots")? {
                let sent = number_at(snapshot, "/counts/sent")?;
                ensure!(number_at(snapshot, "/counts/received")? <= sent, "{snapshot}");
            }
            let last = values["snapshots"].as_array().and_then(|snapshots| snapshots.last());
            let sent = last.map_or(Ok(0), |snapshot| number_at(snapshot, "/counts/sent"))?;
            ensure!(sent >= highest, "{sent} after {highest}");
            highest = sent;
            ensure!(begun.elapsed() < 3 * TIMEOUT, "the load does not end");
            thread::sleep(POLL_INTERVAL);
        }
        let values = loading.final_values(lab.client())?;
        let result: LoadResult = loading.result()?;
        let sum = |of: fn(&horolog_record::Trial) -> u64| result.trials.iter().map(of).sum::<u64>();
        let (sent, received) = (sum(|trial| trial.sent), sum(|trial| trial.received));
        let lost = sum(|trial| trial.lost);
        ensure!(highest > 0 && lost > 0 && received > 0, "{sent} {received} {lost} {highest}");
        let last = values["snapshots"]
            .as_array()
            .and_then(|snapshots| snapshots.last())
            .context("no snapshot")?;
        ensure!(number_at(last, "/counts/sent")? == sent, "{sent} sent: {last}");
        ensure!(number_at(last, "/counts/received")? == received, "{received} received: {last}");
        ensure!(number_at(&values, "/lost")? == lost, "{lost} lost: {values}");
        let ended = values["ended"].as_array().context("no ended trials")?;
        ensure!(ended.len() == result.trials.len(), "{ended:?}");
        for (ended, trial) in ended.iter().zip(&result.trials) {
            ensure!(number_at(ended, "/lost")? == trial.lost, "{ended}");
            let p99 = trial.rtt_ns.as_ref().map(|rtt| rtt.p99);
            ensure!(ended["latency_ns"]["p99"].as_u64() == p99, "{ended}");
        }
        let findings = values["findings"].as_array().context("no findings")?;
        ensure!(findings.len() == result.findings.len(), "{findings:?}");
        let metrics = fetch_metrics(lab.client(), loading.at)?;
        let metric = |name: &str| metrics.get(name).copied().map(|value| value as u64);
        ensure!(metric("horolog_load_sent_total") == Some(sent), "{metrics:?}");
        ensure!(metric("horolog_load_replies_total") == Some(received), "{metrics:?}");
        ensure!(metric("horolog_load_lost_total") == Some(lost), "{metrics:?}");
        ensure!(metric("horolog_load_running") == Some(0), "{metrics:?}");
        let attributed: u64 = metrics
            .iter()
            .filter(|(name, _)| name.starts_with("horolog_load_lost_at_total{"))
            .map(|(_, value)| *value as u64)
            .sum();
        ensure!(attributed == lost, "{attributed} of {lost}: {metrics:?}");
        // SIGINT ends the linger time, and the run is successful.
        let mut started = loading.started;
        started.signal("INT")?;
        let (status, _) = started.end()?;
        ensure!(status.success(), "{status}: {}", started.read("stderr")?);
    }
    Ok(())
}

fn an_nts_ke_load_has_a_live_page() -> Result<()> {
    let unlimited = ["--nts-ke-rate-per-prefix", "0", "--nts-ke-connections-per-prefix", "0"];
    let nts = NtsTestbed::start_on(Engine::Socket, &unlimited)?;
    let host = nts.lab.client();
    let mut command = host.command(binary()?);
    command.args(["load", "nts-ke", &nts.at.ip().to_string(), "--ca"]).arg(nts.certificate_path());
    command.args(["-t", "1", "-c", "4", "--timeout", "3s", "--search", "pdr", "-r", "20-40"]);
    let loading = LiveLoad::start_command(command)?;
    let values = loading.final_values(host)?;
    let result: NtsKeLoadResult = loading.result()?;
    let sum = |of: fn(&NtsKeTrial) -> u64| result.trials.iter().map(of).sum::<u64>();
    let (sent, received) = (sum(|trial| trial.sent), sum(|trial| trial.received));
    let snapshots = values["snapshots"].as_array().context("no snapshots")?;
    // Some were made during the run, and none exceeds the final counts.
    let count = snapshots.len();
    ensure!(count > result.trials.len() && received > 0, "{count} snapshots");
    for snapshot in snapshots {
        let (begun, completed) =
            (number_at(snapshot, "/counts/sent")?, number_at(snapshot, "/counts/received")?);
        ensure!(completed <= begun && begun <= sent, "{snapshot}");
    }
    let last = snapshots.last().context("no snapshot")?;
    ensure!(number_at(last, "/counts/sent")? == sent, "{sent} sent: {last}");
    ensure!(number_at(last, "/counts/received")? == received, "{received} received: {last}");
    let ended = values["ended"].as_array().context("no ended trials")?;
    ensure!(ended.len() == result.trials.len(), "{ended:?}");
    let metrics = fetch_metrics(host, loading.at)?;
    ensure!(metrics.get("horolog_load_sent_total") == Some(&(sent as f64)), "{metrics:?}");
    Ok(())
}

fn the_live_page_of_a_server_agrees_with_its_status() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = server_address(&lab, false)?;
    let at = SocketAddr::from(([127, 0, 0, 1], 9123));
    let arguments = ["--web", "--leap", "unsynchronised"];
    let server = Server::start(lab.server(), Engine::Socket, &[target], &arguments)?;
    let loading = LiveLoad::start(lab.client(), target, &["-r", "500", "-t", "1"])?;
    loading.final_values(lab.client())?;
    let sent: u64 = loading.result::<LoadResult>()?.trials.iter().map(|trial| trial.sent).sum();
    let begun = Instant::now();
    let values = loop {
        let values = live_values(lab.server(), at)?;
        let received = number_at(&values, "/status/counters/received")?;
        // A snapshot is up to a second old.
        if received >= sent {
            break values;
        }
        ensure!(begun.elapsed() < TIMEOUT, "{received} of {sent}");
        thread::sleep(POLL_INTERVAL);
    };
    let status = server.status()?;
    ensure!(values["status"]["counters"] == status["counters"], "{values} against {status}");
    let last = values["snapshots"]
        .as_array()
        .and_then(|snapshots| snapshots.last())
        .context("no snapshot")?;
    ensure!(number_at(last, "/replies")? == number_at(&status, "/counters/answered")?, "{last}");
    let rates = values["snapshots"].as_array().context("no snapshots")?.iter();
    let highest = rates.filter_map(|snapshot| snapshot["reply_rate"].as_f64()).fold(0.0, f64::max);
    ensure!(highest > 0.0, "no rate: {values}");
    let snapshots = values["snapshots"].as_array().context("no snapshots")?;
    let responses = snapshots.iter().filter_map(|snapshot| snapshot["response_ns"]["p99"].as_f64());
    ensure!(responses.fold(0.0, f64::max) > 0.0, "no response time: {values}");
    ensure!(values["findings"].to_string().contains("not synchronised"), "{values}");
    let metrics = fetch_metrics(lab.server(), at)?;
    let replies = metrics.get("horolog_replies_total{engine=\"socket\"}").copied();
    let answered = number_at(&status, "/counters/answered")?;
    ensure!(replies == Some(answered as f64), "{replies:?} of {answered}");
    let timed = metrics.get("horolog_response_seconds_count").copied();
    let made = answered + number_at(&status, "/counters/refused")?;
    ensure!(timed == Some(made as f64), "{timed:?} of {made}");
    let (code, _) = fetch(lab.server(), at, "/healthz", "Host: localhost\r\n")?;
    ensure!(code == 503, "{code}");
    Ok(())
}

fn write_token(directory: &TempDir) -> Result<String> {
    let path = directory.path().join("token");
    write_secret(&path, &format!("{TOKEN}\n"))?;
    Ok(path.display().to_string())
}

fn requests_without_a_token_or_for_another_host_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    let token = write_token(&directory)?;
    let at = SocketAddr::new(target.ip(), 9124);
    let loopback = SocketAddr::from(([127, 0, 0, 1], 9123));
    let flag = format!("--web={at}");
    let arguments = [&flag, "--web-token-file", &token];
    let server = Server::start(lab.server(), Engine::Socket, &[target], &arguments)?;
    let bearer = |token: &str| format!("Host: any.example\r\nAuthorization: Bearer {token}\r\n");
    for path in ["/", "/live.json", "/metrics", "/healthz", "/nothing"] {
        for (link, fields) in [
            ("", "Host: localhost\r\n".to_owned()),
            ("?token=", String::new()),
            ("?token=0123456789abcdef", String::new()),
            ("", bearer("0123456789abcdef")),
        ] {
            let (code, body) = fetch(lab.client(), at, &format!("{path}{link}"), &fields)?;
            ensure!(code == 401 && body.len() < 100, "{path}{link}: {code} {body}");
        }
        let wanted = if path == "/nothing" { 404 } else { 200 };
        for (link, fields) in
            [("", bearer(TOKEN)), (&*format!("?token={LINK_TOKEN}"), "Host: any\r\n".to_owned())]
        {
            let (code, _) = fetch(lab.client(), at, &format!("{path}{link}"), &fields)?;
            ensure!(code == wanted, "{path}{link}: {code}");
        }
    }
    drop(server);
    let _server = Server::start(lab.server(), Engine::Socket, &[target], &["--web"])?;
    for path in ["/", "/live.json", "/metrics"] {
        for host in ["", "Host: evil.example\r\n", "Host: 192.0.2.1:9123\r\n"] {
            let (code, body) = fetch(lab.server(), loopback, path, host)?;
            ensure!(code == 421 && body.len() < 100, "{path} {host}: {code} {body}");
        }
        fetch_page(lab.server(), loopback, path)?;
    }
    Ok(())
}

fn pages_reachable_from_elsewhere_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    let token = write_token(&directory)?;
    let open = directory.path().join("open");
    std::fs::write(&open, format!("{TOKEN}\n"))?;
    let open = open.display().to_string();
    let run = |arguments: &[&str]| {
        let mut command = lab.client().command(binary()?);
        run_to_end(command.args(arguments), TIMEOUT)
    };
    let (target, any_address) = (target.to_string(), "--web=0.0.0.0:9124");
    let load = |more: &[&str]| run(&[&["load", "ntp", &target, "--no-store"], more].concat());
    let serve = |more: &[&str]| run(&[&["serve", "--local", "--check"], more].concat());
    check_refusal(&load(&[any_address])?, USAGE, &["--web-token-file"])?;
    check_refusal(&serve(&[any_address])?, USAGE, &["--web-token-file"])?;
    check_refusal(&load(&[any_address, "--web-token-file", &open])?, USAGE, &["mode"])?;
    check_refusal(&serve(&[any_address, "--web-token-file", &open])?, ENVIRONMENT, &["mode"])?;
    check_refusal(&load(&["--web-token-file", &token])?, USAGE, &["--web"])?;
    check_refusal(
        &load(&["--web=192.0.2.77:9124", "--web-token-file", &token])?,
        ENVIRONMENT,
        &["--web"],
    )?;
    let checked = serve(&[any_address, "--web-token-file", &token])?;
    let stdout = String::from_utf8(checked.stdout)?;
    ensure!(checked.status.success() && stdout.contains("web = \"0.0.0.0:9124\""), "{stdout}");
    Ok(())
}

/// The live page works although only root can read the token and the server runs as another user.
fn a_page_works_for_another_user_in_the_sandbox() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    let token = write_token(&directory)?;
    let arguments =
        ["--web", "--web-token-file", &token, "--user", "nobody", "--sandbox", "required"];
    // Writable for every user, unlike the directory of the token.
    let open = TempDir::new()?;
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o777))?;
    let socket = open.path().join("web.sock").display().to_string();
    let _server = Server::start_at(lab.server(), Engine::Socket, &[target], &socket, &arguments)?;
    let at = SocketAddr::from(([127, 0, 0, 1], 9123));
    for path in ["/", "/live.json", "/metrics"] {
        let (code, _) = fetch(lab.server(), at, &format!("{path}?token={LINK_TOKEN}"), "")?;
        ensure!(code == 200, "{path}: {code}");
    }
    Ok(())
}

/// Returns the DOM of a page after its script has run, and the browser's messages about it.
fn dump_page(host: &LabHost, url: &str, profile: &Path) -> Result<(String, String)> {
    let mut command = host.command("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--no-first-run", "--disable-background-networking", "--disable-extensions"]);
    command.args(["--enable-logging=stderr", "--window-size=1200,3000"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    for home in ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
        command.env(home, profile);
    }
    // Virtual time passes as long as no request is pending.
    command.args(["--virtual-time-budget=4000", "--dump-dom", url]);
    let output = run_to_end(&mut command, BROWSER_TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{stderr}");
    let of_page =
        stderr.lines().filter(|line| line.contains("CONSOLE") && line.contains("http://"));
    Ok((String::from_utf8(output.stdout)?, of_page.collect::<Vec<_>>().join("\n")))
}

/// Returns the exact value of a figure on the page.
fn figure_value(dom: &str, figure: &str) -> Result<String> {
    let prefix = format!("id=\"figure-{figure}\"><data value=\"");
    let (_, rest) = dom.split_once(&prefix).with_context(|| format!("no figure {figure}"))?;
    Ok(rest.split_once('"').context("no end")?.0.to_owned())
}

fn a_browser_draws_the_reported_values() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let target = server_address(&lab, false)?;
    let directory = TempDir::new()?;
    let token = write_token(&directory)?;
    let arguments = ["--web", "--web-token-file", &token];
    let _server = Server::start(lab.server(), Engine::Socket, &[target], &arguments)?;
    let loading = LiveLoad::start(lab.client(), target, &["-r", "1k-2k", "-t", "1"])?;
    let values = loading.final_values(lab.client())?;
    let (dom, complaints) =
        dump_page(lab.client(), &format!("http://{}/", loading.at), directory.path())?;
    ensure!(complaints.is_empty(), "{complaints}");
    let last = values["snapshots"]
        .as_array()
        .and_then(|snapshots| snapshots.last())
        .context("no snapshot")?;
    for (figure, pointer) in [
        ("sent", "/counts/sent"),
        ("received", "/counts/received"),
        ("p50", "/latency_ns/p50"),
        ("p99", "/latency_ns/p99"),
    ] {
        let value = number_at(last, pointer)?;
        ensure!(figure_value(&dom, figure)? == value.to_string(), "{figure}: {value}");
    }
    ensure!(figure_value(&dom, "lost")? == number_at(&values, "/lost")?.to_string(), "lost");
    ensure!(dom.matches("<canvas").count() == 4, "{} plots", dom.matches("<canvas").count());
    ensure!(dom.contains("Finished; these"), "the page does not show the end");
    let rows = |dom: &str, body: &str| {
        let (_, rest) = dom.split_once(&format!("<tbody id=\"{body}\">")).unwrap_or_default();
        rest.split_once("</tbody>").map_or(0, |(rows, _)| rows.matches("<tr>").count())
    };
    let snapshot_count = values["snapshots"].as_array().map_or(0, Vec::len);
    ensure!(rows(&dom, "snapshots") == snapshot_count.min(20), "{snapshot_count} snapshots");
    ensure!(rows(&dom, "ended") == 2, "wrong number of ended trials");
    // The page sends the token of its link with each request; without a valid one it shows no
    // values.
    let url = format!("http://127.0.0.1:9123/?token={LINK_TOKEN}");
    let (dom, complaints) = dump_page(lab.server(), &url, directory.path())?;
    ensure!(complaints.is_empty(), "{complaints}");
    let sent = number_at(last, "/counts/sent")?;
    ensure!(figure_value(&dom, "requests_all")? == sent.to_string(), "not {sent}");
    ensure!(dom.matches("<canvas").count() == 5, "{} plots", dom.matches("<canvas").count());
    ensure!(dom.contains("id=\"plot-response\""), "no plot of response times");
    ensure!(dom.contains("counters.received</th>"), "the state is not shown");
    let (dom, _) = dump_page(lab.server(), "http://127.0.0.1:9123/?token=wrong", directory.path())?;
    ensure!(dom.contains("token is missing or wrong") && !dom.contains("canvas"), "{dom}");
    Ok(())
}
