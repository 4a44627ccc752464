//! Scenarios of the limits of a load, with their exit status.

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{CapacitySearchGoal, LoadResult};
use libtest_mimic::Trial;

use crate::load_command::{Started, TIMEOUT, load, parse};
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::usage_error::{USAGE, check};
use crate::{load_limits, scenarios};

/// Exit status where a limit was broken.
const BROKEN: i32 = 1;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    use crate::scenario::Need;
    const ROOT: &[Need] = &[Need::Root];
    scenarios!(ROOT, load_limits:
        a_failed_limit_is_status_one_and_in_the_result,
        an_invalid_limit_is_refused,
    )
    .into()
}

/// Kept limits end in status 0 and broken ones in 1, with the worst of them in one line; both stand
/// in the file.
pub(crate) fn a_failed_limit_is_status_one_and_in_the_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?.to_string();
    let server = Server::start(lab.server(), Engine::Socket, &[at.parse()?], &[])?;
    let passed = ["--fail-if", "p50>50s", "--fail-if", "rate<1", "--fail-if", "loss>=100%"];
    let broken = ["--fail-if", "rate>1", "--fail-if", "p50 < 30 s"];
    let common = [&*at, "--engine", "udp", "-r", "1k", "-t", "0.1", "--json", "r.json"];
    for (limits, status) in [(passed.as_slice(), 0), (&broken, BROKEN)] {
        let arguments: Vec<_> = common.iter().chain(limits).copied().collect();
        let mut run = Started::start(&mut load(lab.client(), &arguments)?)?;
        let (ended, _) = run.end()?;
        let (stderr, stdout) = (run.read("stderr")?, run.read("stdout")?);
        ensure!(ended.code() == Some(status), "{limits:?}: {ended}: {stderr}");
        let result: LoadResult = parse(run.read("r.json")?.as_bytes())?;
        ensure!(result.limits.len() == limits.len() / 2, "{:?}", result.limits);
        for limit in &result.limits {
            let right = limit.failed == (status == BROKEN) && limit.trial == Some(0);
            ensure!(right && limit.value.is_some(), "{limit:?}");
            ensure!(stdout.contains(&format!("limit '{}'", limit.expression)), "{stdout}");
        }
        let last = stderr.lines().last().context("nothing was said")?;
        let named = last.starts_with("horolog: limit 'p50 < 30 s' failed: ");
        ensure!(named == (status == BROKEN), "{stderr}");
    }
    drop(server);
    a_search_is_checked(&lab)
}

/// Nobody answers, so that not even the lowest rate is found.
fn a_search_is_checked(lab: &Lab) -> Result<()> {
    let mut arguments = vec!["192.0.2.2", "--engine", "udp", "--search", "ndr", "-r", "1k-4k"];
    arguments.extend(["-t", "0.1", "--fail-if", "ndr<2k", "--json", "-"]);
    let output = run_to_end(&mut load(lab.client(), &arguments)?, TIMEOUT)?;
    ensure!(output.status.code() == Some(BROKEN), "{output:?}");
    let result: LoadResult = parse(&output.stdout)?;
    let search = result.search.as_ref().context("no search")?;
    ensure!(search.kind == CapacitySearchGoal::Ndr && search.lower.is_none(), "{search:?}");
    ensure!(result.limits.len() == 1 && result.limits[0].failed, "{:?}", result.limits);
    Ok(())
}

/// A limit that makes no sense is refused before anything is sent.
pub(crate) fn an_invalid_limit_is_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for (limit, named) in [
        ("lost>1%", ["'lost'", "--fail-if", "loss"]),
        ("p99>200", ["'200'", "200us", "--fail-if"]),
        ("pdr<1M", ["'pdr<1M'", "--search pdr", "a search"]),
    ] {
        let mut command = load(lab.client(), &["192.0.2.2", "--fail-if", limit])?;
        check(&run_to_end(&mut command, TIMEOUT)?, USAGE, &named)?;
    }
    Ok(())
}
