//! Scenarios of `load nts-ke --search`: the rate that a server sustains is found, and where it
//! ends.

use anyhow::{Context, Result, ensure};
use horolog_record::{
    CapacitySearchGoal, CapacitySearchResult, NtsKeFailureReason, NtsKeLoadResult, SearchEndReason,
};
use libtest_mimic::Trial;

use crate::load_command::{TIMEOUT, parse};
use crate::process::{Engine, binary, run_to_end};
use crate::server_nts::WithNts;
use crate::usage_error::{USAGE, check};
use crate::{ROOT, nts_ke_load, scenarios};

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    scenarios!(ROOT, nts_ke_load:
        the_sustainable_rate_of_a_server_is_found,
        an_invalid_search_is_refused,
    )
    .into()
}

/// A search at low rates, short and patient with a busy machine; what it ended with.
fn search(nts: &WithNts, arguments: &[&str]) -> Result<(Option<i32>, NtsKeLoadResult)> {
    let (target, trust) = (nts.at.ip().to_string(), nts.trust().display().to_string());
    let mut command = nts.lab.client().command(binary()?);
    command.args(["load", "nts-ke", &target, "--ca", &trust, "-t", "0.5", "--timeout", "3s"]);
    let output = run_to_end(command.args(arguments).args(["--json", "-"]), TIMEOUT * 6)?;
    Ok((output.status.code(), parse(&output.stdout)?))
}

fn found(result: &NtsKeLoadResult) -> Result<&CapacitySearchResult> {
    result.search.as_ref().context("no search in the result")
}

/// A server without limits holds every low rate; one that takes a few connections at once and then
/// two a second refuses the others, and the rate at which it begins to is found to be lower.
pub(crate) fn the_sustainable_rate_of_a_server_is_found() -> Result<()> {
    let open = ["--nts-ke-rate-per-prefix", "0", "--nts-ke-connections-per-prefix", "0"];
    let nts = WithNts::start_on(Engine::Socket, &open)?;
    let pdr = ["--search", "pdr", "--loss-ratio", "20%", "-r", "10-40", "--fail-if", "pdr<5"];
    let (status, result) = search(&nts, &pdr)?;
    let held = found(&result)?;
    ensure!(status == Some(0) && held.kind == CapacitySearchGoal::Pdr, "{status:?}, {result:?}");
    ensure!(held.end == SearchEndReason::CappedAtMax && held.lower == Some(40.0), "{held:?}");
    for trial in &result.trials {
        let planned = trial.intended_rate.context("no planned rate")?;
        ensure!((10.0..=40.0).contains(&planned) && trial.sent > 0, "{trial:?}");
        ensure!(trial.received + trial.lost == trial.sent, "{trial:?}");
        ensure!(trial.failures.values().sum::<u64>() == trial.lost, "{trial:?}");
    }
    drop(nts);
    // All connections have one address here, and it has used up what it may open at once.
    let nts = WithNts::start_on(Engine::Socket, &["--nts-ke-rate-per-prefix", "2"])?;
    search(&nts, &["--search", "pdr", "-r", "200"])?;
    let ndr = ["--search", "ndr", "-r", "10-40", "--fail-if", "ndr<40"];
    let (status, result) = search(&nts, &ndr)?;
    let held = found(&result)?;
    ensure!(status == Some(1) && held.lower.is_none_or(|lower| lower < 40.0), "{held:?}");
    let refused = result.trials.iter().any(|trial| {
        let by = |reason| trial.failures.get(&reason).copied().unwrap_or(0);
        by(NtsKeFailureReason::Connection) + by(NtsKeFailureReason::Response) > 0
    });
    ensure!(refused, "{:?}", result.trials);
    Ok(())
}

/// What belongs to a search alone, and a search that sends nothing.
pub(crate) fn an_invalid_search_is_refused() -> Result<()> {
    let nts = WithNts::start_on(Engine::Socket, &[])?;
    let (target, trust) = (nts.at.ip().to_string(), nts.trust().display().to_string());
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--loss-ratio", "1%"], &["--search"]),
        (&["-r", "10-20"], &["--search"]),
        (&["--fail-if", "ndr<1"], &["'ndr<1'", "--search ndr"]),
        (&["--search", "ndr", "-r", "0.1-1"], &["0.1", "raise"]),
        (&["--search", "ndr", "-c", "0"], &["connections", "1 to 4096"]),
    ];
    for (arguments, expected) in cases {
        let mut command = nts.lab.client().command(binary()?);
        command.args(["load", "nts-ke", &target, "--ca", &trust]).args(arguments);
        check(&run_to_end(&mut command, TIMEOUT)?, USAGE, expected)?;
    }
    Ok(())
}
