//! Scenarios of transmit timestamp offsets: a known error of the server's clock is measured, and
//! unmeasurable offsets are refused. Both ends read the same clock, so the offset differs from the
//! known error only by the one-way delay.

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LoadResult, TimestampOffsetMethod};

use crate::load_command::{TIMEOUT, check_sums, load, only_trial, result_of};
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::{Need, Scenario};
use crate::{load_offsets, scenarios};

/// Offset by which the server's clock is behind, in ns.
const BEHIND_NS: i64 = 3_000_000_000;
/// Tolerance of an offset below the known error, in ns: both ends interpolate the clock.
const TOLERANCE_NS: i64 = 1_000_000;
/// Upper limit of the one-way delay in the lab, in ns.
const ONE_WAY_DELAY_MAX_NS: i64 = 1_000_000_000;

pub(crate) fn all() -> Vec<Scenario> {
    const ROOT: &[Need] = &[Need::Root];
    const IPV6: &[Need] = &[Need::Root, Need::Ipv6];
    let mut all = Vec::from(scenarios!(IPV6, load_offsets: a_known_clock_error_is_measured));
    all.extend(scenarios!(ROOT, load_offsets: unmeasurable_offsets_are_refused));
    all
}

/// Checks the offsets of a run. All replies but the first few have a timestamp: the kernel begins
/// to take them a moment after the request for them.
fn check_offsets(result: &LoadResult, method: TimestampOffsetMethod, error_ns: i64) -> Result<()> {
    let trial = only_trial(result)?;
    check_sums(trial)?;
    ensure!(result.offset == Some(method), "{:?}", result.offset);
    let offset = trial.tx_offset_ns.as_ref().context("no offsets")?;
    let timestamped = trial.timestamped.context("no count of timestamped replies")?;
    ensure!(timestamped * 10 >= trial.received * 9 && offset.count <= timestamped, "{trial:?}");
    let least = error_ns - method.correction_ns - TOLERANCE_NS;
    ensure!(offset.min >= least && offset.p50 <= least + ONE_WAY_DELAY_MAX_NS, "{offset:?}");
    let finding_count = result
        .findings
        .iter()
        .filter(|one| one.code == FindingCode::RepliesWithoutTimestamp)
        .count();
    ensure!((finding_count > 0) == (timestamped < trial.received), "{:?}", result.findings);
    Ok(())
}

/// A known error of the server's clock is measured by all engines, in basic and interleaved mode,
/// over IPv4 and IPv6.
fn a_known_clock_error_is_measured() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for (engine_of_server, ipv6) in [(Engine::Socket, false), (Engine::Xdp, true)] {
        let at = server_address(&lab, ipv6)?;
        let error = format!("--test-offset=-{BEHIND_NS}");
        let _server = Server::start(lab.server(), engine_of_server, &[at], &[&error])?;
        let target = at.ip().to_string();
        for engine in ["udp", "packet", "xdp"] {
            let of = |more: &[&str]| {
                let first = [&*target, "--engine", engine, "-r", "2k", "-t", "0.25", "-c", "100"];
                result_of(lab.client(), &[&first[..], more].concat())
            };
            let context = || format!("{engine} to {at}");
            let plain =
                TimestampOffsetMethod { correction_ns: 0, mean_of_server: false, hardware: false };
            // Neither limit fails: the magnitude of the offset is above 2.9 s.
            let limits = ["--fail-if", "offset-p50<2.9s", "--fail-if", "offset-max<2.9s"];
            let result = of(&[&["--measure-offset", "0"], &limits[..]].concat())?;
            check_offsets(&result, plain, BEHIND_NS).with_context(context)?;
            let passed = result.limits.iter().filter(|limit| !limit.failed).count();
            ensure!(passed == 2, "{:?}", result.limits);
            let corrected = TimestampOffsetMethod { correction_ns: 1_950, ..plain };
            let result = of(&["--measure-offset", "1.95e-6", "--interleaved"])?;
            check_offsets(&result, corrected, BEHIND_NS).with_context(context)?;
            let interleaved = only_trial(&result)?.responses.interleaved;
            // The server counts the sockets of one address as one client.
            ensure!(interleaved > 0 || engine == "udp", "no interleaved reply");
            let mean =
                TimestampOffsetMethod { correction_ns: -5_000, mean_of_server: true, ..plain };
            let result = of(&["--measure-offset", "-5us", "--offset-mean"])?;
            check_offsets(&result, mean, BEHIND_NS).with_context(context)?;
        }
    }
    Ok(())
}

/// Unmeasurable offsets are refused with one line that states the remedy.
fn unmeasurable_offsets_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let target = at.ip().to_string();
    let cases: [(&[&str], i32, &str); 7] = [
        (
            &["--measure-offset", "0", "--engine", "xdp", "--hardware-timestamps"],
            3,
            "use --engine packet or udp",
        ),
        (&["--measure-offset", "0", "--engine", "packet", "--hardware-timestamps"], 3, "'veth0'"),
        (&["--measure-offset", "0", "--engine", "udp", "--hardware-timestamps"], 3, "'veth0'"),
        (&["--offset-mean"], 2, "--measure-offset"),
        (&["--hardware-timestamps"], 2, "--measure-offset"),
        (&["--measure-offset", "soon"], 2, "write a time"),
        (&["--fail-if", "offset-p99>50us"], 2, "add --measure-offset"),
    ];
    for (arguments, status, words) in cases {
        let all = [&[&*target], arguments].concat();
        let output = run_to_end(&mut load(lab.client(), &all)?, TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status), "{arguments:?}: {stderr}");
        ensure!(stderr.contains(words) && stderr.trim_end().lines().count() == 1, "{stderr}");
    }
    Ok(())
}
