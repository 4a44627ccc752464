//! Scenarios of offsets of transmit timestamps: that an error of the server's clock that is known
//! is found, and that what cannot be measured is refused. Both ends read the same clock here, so
//! the truth is known but for the way of the packets, which only ever adds to it.

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LoadResult, TimestampOffsetMethod};
use libtest_mimic::Trial;

use crate::load_command::{TIMEOUT, check_sums, load, only_trial, result_of};
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::scenario::Need;
use crate::{load_offsets, scenarios};

/// How much the server's clock is behind.
const BEHIND_NS: i64 = 3_000_000_000;
/// How much early a reading of the clock may be for another: both interpolate.
const TOLERANCE_NS: i64 = 1_000_000;
/// No packet here is under way for so long.
const WAY_NS_MAX: i64 = 1_000_000_000;

/// All of them.
pub(crate) fn all() -> Vec<Trial> {
    const ROOT: &[Need] = &[Need::Root];
    const IPV6: &[Need] = &[Need::Root, Need::Ipv6];
    let mut all = Vec::from(scenarios!(IPV6, load_offsets: a_known_error_is_found));
    all.extend(scenarios!(ROOT, load_offsets: unmeasurable_offsets_are_refused));
    all
}

/// The offsets of a run of a second, which every reply has to have had a timestamp for but the
/// first few: the kernel begins to take them a moment after it is asked.
fn checked(result: &LoadResult, method: TimestampOffsetMethod, error_ns: i64) -> Result<()> {
    let trial = only_trial(result)?;
    check_sums(trial)?;
    ensure!(result.offset == Some(method), "{:?}", result.offset);
    let offset = trial.tx_offset_ns.as_ref().context("no offsets")?;
    let timestamped = trial.timestamped.context("nothing said of timestamps")?;
    ensure!(timestamped * 10 >= trial.received * 9 && offset.count <= timestamped, "{trial:?}");
    let least = error_ns - method.correction_ns - TOLERANCE_NS;
    ensure!(offset.min >= least && offset.p50 <= least + WAY_NS_MAX, "{offset:?}");
    let finding_count = result
        .findings
        .iter()
        .filter(|one| one.code == FindingCode::RepliesWithoutTimestamp)
        .count();
    ensure!((finding_count > 0) == (timestamped < trial.received), "{:?}", result.findings);
    Ok(())
}

/// By all engines, in basic and in interleaved mode, over IPv4 and IPv6.
fn a_known_error_is_found() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for (body, ipv6) in [(Engine::Socket, false), (Engine::Xdp, true)] {
        let at = server_address(&lab, ipv6)?;
        let error = format!("--test-offset=-{BEHIND_NS}");
        let _server = Server::start(lab.server(), body, &[at], &[&error])?;
        let target = at.ip().to_string();
        for engine in ["udp", "packet", "xdp"] {
            let of = |more: &[&str]| {
                let first = [&*target, "--engine", engine, "-r", "2k", "-t", "0.5", "-c", "100"];
                result_of(lab.client(), &[&first[..], more].concat())
            };
            let context = || format!("{engine} to {at}");
            let plain =
                TimestampOffsetMethod { correction_ns: 0, mean_of_server: false, hardware: false };
            // Three seconds too early are as far off as three seconds too late.
            let limits = ["--fail-if", "offset-p50<2.9s", "--fail-if", "offset-max<2.9s"];
            let result = of(&[&["--measure-offset", "0"], &limits[..]].concat())?;
            checked(&result, plain, BEHIND_NS).with_context(context)?;
            let passed = result.limits.iter().filter(|limit| !limit.failed).count();
            ensure!(passed == 2, "{:?}", result.limits);
            let corrected = TimestampOffsetMethod { correction_ns: 1_950, ..plain };
            let result = of(&["--measure-offset", "1.95e-6", "--interleaved"])?;
            checked(&result, corrected, BEHIND_NS).with_context(context)?;
            let interleaved = only_trial(&result)?.responses.interleaved;
            // To the server, the sockets of one address are one client.
            ensure!(interleaved > 0 || engine == "udp", "no interleaved reply");
            let mean =
                TimestampOffsetMethod { correction_ns: -5_000, mean_of_server: true, ..plain };
            let result = of(&["--measure-offset", "-5us", "--offset-mean"])?;
            checked(&result, mean, BEHIND_NS).with_context(context)?;
        }
    }
    Ok(())
}

/// Each with a line that says what to do.
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
