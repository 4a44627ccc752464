//! Scenarios of `horolog bench relay`: it finds a rate, losses at the receivers lower it, and it
//! ends cleanly and leaves nothing behind. The measured values depend on the host and are not
//! checked.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_record::{
    BENCH_RELAY_SCHEMA, BenchRelayResult, FindingCode, RelayConfigurationResult, RelayEngineKind,
    SearchEndReason,
};

use crate::load_command::{UnprivilegedCopy, parse};
use crate::process::{binary, run_to_end, signal};
use crate::scenario::{Need, Queue, Scenario};
use crate::scenarios;

/// Timeout of a run, much longer than a few short searches.
const TIMEOUT: Duration = Duration::from_mins(3);

pub(crate) fn all() -> Vec<Scenario> {
    use crate::bench_relay;
    let searches = scenarios!(&[Need::Root], bench_relay:
        totals_are_found_and_add_up,
        packets_missed_by_receivers_lower_the_rate,
    );
    let mut all = Vec::from(searches.map(|scenario| scenario.in_queue(Queue::Exclusive)));
    all.extend(scenarios!(&[Need::Root], bench_relay:
        an_interrupted_experiment_keeps_its_result,
        killed_relay_is_reported,
        impossible_requests_are_refused,
    ));
    all
}

/// Returns the command of a short experiment whose relays store their files in `directory`.
fn bench(directory: &Path, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(binary()?);
    command.args(["bench", "relay", "--repetitions", "1", "--time", "0.1"]).args(arguments);
    command.args(["--json"]).arg(directory.join("result.json")).env("TMPDIR", directory);
    Ok(command)
}

fn result(directory: &Path) -> Result<BenchRelayResult> {
    parse(&fs::read(directory.join("result.json"))?)
}

/// Returns identifiers and command lines of the relays whose table is in `directory`.
fn relays(directory: &Path) -> Result<Vec<(String, String)>> {
    let table = directory.join("horolog-relay-").to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc")?.filter_map(Result::ok).map(|process| {
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let name = process.file_name().to_string_lossy().into_owned();
        (name, String::from_utf8_lossy(&words).replace('\0', " "))
    });
    Ok(processes.filter(|(_, words)| words.contains(&table)).collect())
}

/// Checks that no relay with a table in `directory` runs any more, and that only `files` files are
/// left there.
fn check_nothing_left(directory: &Path, files: usize) -> Result<()> {
    let left = relays(directory)?;
    ensure!(left.is_empty(), "left behind: {left:?}");
    let left: Vec<_> = fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    ensure!(left.len() == files, "left behind: {left:?}");
    Ok(())
}

/// Checks the search of a configuration and the measurements after it.
fn check(cell: &RelayConfigurationResult) -> Result<()> {
    let round = cell.repetitions.first().context("no repetition")?;
    let lower = round.lower.context("no lossless rate")?;
    ensure!(round.upper.is_none_or(|upper| upper > lower), "{round:?}");
    // The first and the last packet are at the edges of the measured duration, hence the tolerance.
    let most = lower * cell.children as f64 * 1.1;
    ensure!(round.copies_per_s > 0.0 && round.copies_per_s <= most, "{round:?}");
    ensure!(round.end != SearchEndReason::BelowMin && round.disordered == 0, "{round:?}");
    let half = round.half_rate.as_ref().context("no trial at half the rate")?;
    ensure!(half.copies > 0 && half.rate < lower * 0.6, "{round:?}");
    let (first, last) =
        cell.first_copy_ns.as_ref().zip(cell.last_copy_ns.as_ref()).context("no copy delay")?;
    let direct = cell.direct_ns.as_ref().context("no delay without a relay")?;
    ensure!(direct.count > 0 && direct.p50 < last.p50, "{direct:?}, {last:?}");
    ensure!(first.count > 0 && first.p50 > 0 && last.p50 >= first.p50, "{first:?}, {last:?}");
    ensure!(first.count.abs_diff(last.count) <= half.lost + first.count / 10, "{first:?} {last:?}");
    ensure!(cell.relay_command.contains(&cell.engine.name().to_owned()), "{cell:?}");
    Ok(())
}

/// Checks that two sizes and two numbers of children give four totals in a table, a page and a
/// file, and that an engine named twice is measured once.
fn totals_are_found_and_add_up() -> Result<()> {
    let directory = tempfile::TempDir::new()?;
    let page = directory.path().join("page.html");
    let mut command = bench(directory.path(), &["--sizes", "64,512", "--children", "1,3"])?;
    command.args(["--engines", "sendmmsg,sendmmsg", "--html"]).arg(&page);
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = result(directory.path())?;
    ensure!(result.schema == BENCH_RELAY_SCHEMA, "{}", result.schema);
    let combinations: Vec<_> =
        result.cells.iter().map(|cell| (cell.size_bytes, cell.children, cell.engine)).collect();
    let expected: Vec<_> = [64, 512]
        .into_iter()
        .flat_map(|size| [1, 3].map(|children| (size, children, RelayEngineKind::Sendmmsg)))
        .collect();
    ensure!(combinations == expected, "{combinations:?}");
    result.cells.iter().try_for_each(check)?;
    ensure!(result.direct.len() == 2, "{:?}", result.direct);
    for direct in &result.direct {
        ensure!(direct.rate > 0.0, "{direct:?}");
    }
    ensure!(!result.findings.iter().any(|one| one.code == FindingCode::CountsDisagree));
    let table = String::from_utf8_lossy(&output.stdout);
    for text in ["64 B: copies per second", "children", "sendmmsg", "CPU/copy", "Without a relay"] {
        ensure!(table.contains(text), "no '{text}' in {table}");
    }
    ensure!(fs::read_to_string(&page)?.contains("id=\"plot-totals\""), "no plot in the report");
    check_nothing_left(directory.path(), 2)
}

/// Checks that a relay with a copy rate limit is found to have about that rate, and a lower one
/// than a relay without the limit.
fn packets_missed_by_receivers_lower_the_rate() -> Result<()> {
    const LIMIT: f64 = 2_000.0;
    let directory = tempfile::TempDir::new()?;
    // A busy host delays a relay now and then.
    let arguments = ["--sizes", "64", "--children", "2", "--engines", "send", "--loss-ratio", "2%"];
    let total = |limited: bool| -> Result<f64> {
        let mut command = bench(directory.path(), &arguments)?;
        command.args(limited.then_some(["--copy-rate", "2k"]).into_iter().flatten());
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result = result(directory.path())?;
        let cell = result.cell(64, 2, RelayEngineKind::Send).context("no cell")?;
        let round = cell.repetitions.first().context("no repetition")?;
        ensure!(!limited || round.upper.is_some(), "no loss at the limit: {round:?}");
        cell.copies_per_s().context("no rate")
    };
    let (limited, free) = (total(true)?, total(false)?);
    // The limiter allows bursts of 100 ms worth of copies.
    ensure!((LIMIT * 0.5..LIMIT * 4.0).contains(&limited), "{limited} with a limit of {LIMIT}");
    ensure!(free > limited * 1.5, "{free} without a limit, {limited} with one");
    Ok(())
}

/// Checks that SIGINT ends the experiment with its partial result, which has a finding about it.
fn an_interrupted_experiment_keeps_its_result() -> Result<()> {
    let directory = tempfile::TempDir::new()?;
    let mut command = bench(directory.path(), &["--sizes", "64", "--engines", "send"])?;
    command.args(["--children", "1..64:1"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let running = command.spawn()?;
    thread::sleep(Duration::from_secs(3));
    signal(&running, "INT")?;
    let output = running.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = result(directory.path())?;
    ensure!(result.findings.iter().any(|one| one.code == FindingCode::Interrupted), "{result:?}");
    ensure!(result.cells.len() < 64, "{} cells", result.cells.len());
    check_nothing_left(directory.path(), 1)
}

/// Checks that a killed relay is not reported as one that loses everything: the result names the
/// failure and keeps earlier measurements, and the command ends with status 1.
fn killed_relay_is_reported() -> Result<()> {
    let directory = tempfile::TempDir::new()?;
    let mut command = bench(directory.path(), &["--sizes", "64", "--engines", "send"])?;
    command.args(["--children", "1..64:1"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let running = command.spawn()?;
    let begun = Instant::now();
    let mut first = None;
    let relay = loop {
        // Only a relay that already ran 150 ms ago is in the middle of a search.
        let before = relays(directory.path())?;
        thread::sleep(Duration::from_millis(150));
        let old = relays(directory.path())?.into_iter().find(|one| before.contains(one));
        // The search of the first one is left to end.
        if let Some((process, _)) = old
            && *first.get_or_insert_with(|| process.clone()) != process
        {
            break process;
        }
        ensure!(begun.elapsed() < TIMEOUT, "no second relay found");
    };
    ensure!(Command::new("kill").args(["-9", &relay]).status()?.success(), "cannot kill {relay}");
    let output = running.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1)
            && stderr.contains("a relay exited")
            && stderr.contains("signal: 9"),
        "{stderr}"
    );
    let result = result(directory.path())?;
    let ended = result.findings.iter().find(|one| one.code == FindingCode::EngineFailed);
    ensure!(ended.is_some_and(|one| one.message.contains("send, 64 B, ")), "{:?}", result.findings);
    ensure!((1..64).contains(&result.cells.len()), "{} cells", result.cells.len());
    check_nothing_left(directory.path(), 1)
}

/// Checks that a wrong option is refused in one line with its status, and so is the command for an
/// unprivileged user.
fn impossible_requests_are_refused() -> Result<()> {
    for (arguments, text) in [
        (["--sizes", "16"], "24 to 1472"),
        (["--children", "0"], "too little"),
        (["--children", "1025"], "1 to 1024"),
        (["--children", "257"], "--receivers"),
        (["--receivers", "17"], "from 1 to 16"),
        (["--engines", "steam"], "steam"),
        (["--time", "0"], "longer than 0"),
    ] {
        let mut command = Command::new(binary()?);
        let output = run_to_end(command.args(["bench", "relay"]).args(arguments), TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{arguments:?}: {}: {stderr}", output.status);
        ensure!(stderr.contains(text) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
    let user = UnprivilegedCopy::new()?;
    let output =
        run_to_end(user.command(Command::new("setpriv")).args(["bench", "relay"]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3) && stderr.lines().count() == 1, "{stderr}");
    Ok(())
}
