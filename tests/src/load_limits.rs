//! Scenarios of the limits of a load and their exit statuses.

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{CapacitySearchGoal, LoadResult};

use crate::load_command::{StartedProgram, TIMEOUT, load, parse};
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::Scenario;
use crate::usage_error::{USAGE, check_refusal};
use crate::{ROOT, load_limits, scenarios};

/// Exit status of a run with a failed limit.
const FAILED: i32 = 1;

pub(crate) fn all() -> Vec<Scenario> {
    scenarios!(ROOT, load_limits:
        a_failed_limit_is_status_one_and_in_the_result,
        an_invalid_limit_is_refused,
    )
    .into()
}

/// Passed limits end with status 0, failed ones with status 1 and one line on the worst of them;
/// all are in the result.
pub(crate) fn a_failed_limit_is_status_one_and_in_the_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?.to_string();
    let server = Server::start(lab.server(), Engine::Socket, &[at.parse()?], &[])?;
    let passed = ["--fail-if", "p50>50s", "--fail-if", "rate<1", "--fail-if", "loss>=100%"];
    let failed = ["--fail-if", "rate>1", "--fail-if", "p50 < 30s"];
    let common = [&*at, "--engine", "udp", "-r", "1k", "-t", "0.1", "--json", "r.json"];
    for (limits, status) in [(passed.as_slice(), 0), (&failed, FAILED)] {
        let arguments: Vec<_> = common.iter().chain(limits).copied().collect();
        let mut run = StartedProgram::start(&mut load(lab.client(), &arguments)?)?;
        let (ended, _) = run.end()?;
        let (stderr, stdout) = (run.read("stderr")?, run.read("stdout")?);
        ensure!(ended.code() == Some(status), "{limits:?}: {ended}: {stderr}");
        let result: LoadResult = parse(run.read("r.json")?.as_bytes())?;
        ensure!(result.limits.len() == limits.len() / 2, "{:?}", result.limits);
        for limit in &result.limits {
            let right = limit.failed == (status == FAILED) && limit.trial == Some(0);
            ensure!(right && limit.value.is_some(), "{limit:?}");
            ensure!(stdout.contains(&format!("limit '{}'", limit.expression)), "{stdout}");
        }
        let last = stderr.lines().last().context("standard error is empty")?;
        let named = last.starts_with("horolog: limit 'p50 < 30s' failed: ");
        ensure!(named == (status == FAILED), "{stderr}");
    }
    drop(server);
    check_search_limit(&lab)
}

/// Without a server, a search finds not even the lowest rate, and its limit fails.
fn check_search_limit(lab: &Lab) -> Result<()> {
    let mut arguments = vec!["192.0.2.2", "--engine", "udp", "--search", "ndr", "-r", "1k-4k"];
    arguments.extend(["-t", "0.1", "--fail-if", "ndr<2k", "--json", "-"]);
    let output = run_to_end(&mut load(lab.client(), &arguments)?, TIMEOUT)?;
    ensure!(output.status.code() == Some(FAILED), "{output:?}");
    let result: LoadResult = parse(&output.stdout)?;
    let search = result.search.as_ref().context("no search")?;
    ensure!(search.kind == CapacitySearchGoal::Ndr && search.lower.is_none(), "{search:?}");
    ensure!(result.limits.len() == 1 && result.limits[0].failed, "{:?}", result.limits);
    Ok(())
}

/// An invalid limit is refused before any request is sent.
pub(crate) fn an_invalid_limit_is_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for (limit, named) in [
        ("lost>1%", ["'lost'", "--fail-if", "loss"]),
        ("p99>200", ["'200'", "200us", "--fail-if"]),
        ("pdr<1M", ["'pdr<1M'", "--search pdr", "a search"]),
    ] {
        let mut command = load(lab.client(), &["192.0.2.2", "--fail-if", limit])?;
        check_refusal(&run_to_end(&mut command, TIMEOUT)?, USAGE, &named)?;
    }
    Ok(())
}
