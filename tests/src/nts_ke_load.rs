//! Scenarios of `load nts-ke --search`: the rate that a server sustains is found, with the reason
//! for the end of the search.

use anyhow::{Context, Result, ensure};
use horolog_record::{
    CapacitySearchGoal, CapacitySearchResult, NtsKeFailureReason, NtsKeLoadResult, SearchEndReason,
};

use crate::load_command::{TIMEOUT, parse};
use crate::process::{Engine, binary, run_to_end};
use crate::scenario::Scenario;
use crate::server_nts::NtsTestbed;
use crate::usage_error::{USAGE, check_refusal};
use crate::{ROOT, nts_ke_load, scenarios};

pub(crate) fn all() -> Vec<Scenario> {
    scenarios!(ROOT, nts_ke_load:
        the_sustainable_rate_of_a_server_is_found,
        an_invalid_search_is_refused,
    )
    .into()
}

/// Runs a short search at low rates, with a timeout for busy machines; returns status and result.
fn search(nts: &NtsTestbed, arguments: &[&str]) -> Result<(Option<i32>, NtsKeLoadResult)> {
    let (target, trust) = (nts.at.ip().to_string(), nts.certificate_path().display().to_string());
    let mut command = nts.lab.client().command(binary()?);
    command.args(["load", "nts-ke", &target, "--ca", &trust, "-t", "0.5", "--timeout", "3s"]);
    let output = run_to_end(command.args(arguments).args(["--json", "-"]), TIMEOUT * 6)?;
    Ok((output.status.code(), parse(&output.stdout)?))
}

fn search_of(result: &NtsKeLoadResult) -> Result<&CapacitySearchResult> {
    result.search.as_ref().context("no search in the result")
}

/// A server without limits sustains every low rate; one that accepts a few connections at once and
/// then two per second refuses the others, and sustains a lower rate.
pub(crate) fn the_sustainable_rate_of_a_server_is_found() -> Result<()> {
    let open = ["--nts-ke-rate-per-prefix", "0", "--nts-ke-connections-per-prefix", "0"];
    let nts = NtsTestbed::start_on(Engine::Socket, &open)?;
    let pdr = ["--search", "pdr", "--loss-ratio", "20%", "-r", "10-40", "--fail-if", "pdr<5"];
    let (status, result) = search(&nts, &pdr)?;
    let held = search_of(&result)?;
    ensure!(status == Some(0) && held.kind == CapacitySearchGoal::Pdr, "{status:?}, {result:?}");
    ensure!(held.end == SearchEndReason::CappedAtMax && held.lower == Some(40.0), "{held:?}");
    for trial in &result.trials {
        let intended = trial.intended_rate.context("no intended rate")?;
        ensure!((10.0..=40.0).contains(&intended) && trial.sent > 0, "{trial:?}");
        ensure!(trial.received + trial.lost == trial.sent, "{trial:?}");
        ensure!(trial.failures.values().sum::<u64>() == trial.lost, "{trial:?}");
    }
    drop(nts);
    // All connections come from one address, whose burst the first search uses up.
    let nts = NtsTestbed::start_on(Engine::Socket, &["--nts-ke-rate-per-prefix", "2"])?;
    search(&nts, &["--search", "pdr", "-r", "200"])?;
    let ndr = ["--search", "ndr", "-r", "10-40", "--fail-if", "ndr<40"];
    let (status, result) = search(&nts, &ndr)?;
    let held = search_of(&result)?;
    ensure!(status == Some(1) && held.lower.is_none_or(|lower| lower < 40.0), "{held:?}");
    let refused = result.trials.iter().any(|trial| {
        let by = |reason| trial.failures.get(&reason).copied().unwrap_or(0);
        by(NtsKeFailureReason::Connection) + by(NtsKeFailureReason::Response) > 0
    });
    ensure!(refused, "{:?}", result.trials);
    Ok(())
}

/// Options of a search without `--search`, and searches that send nothing, are refused.
pub(crate) fn an_invalid_search_is_refused() -> Result<()> {
    let nts = NtsTestbed::start_on(Engine::Socket, &[])?;
    let (target, trust) = (nts.at.ip().to_string(), nts.certificate_path().display().to_string());
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
        check_refusal(&run_to_end(&mut command, TIMEOUT)?, USAGE, expected)?;
    }
    Ok(())
}
