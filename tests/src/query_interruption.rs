//! Scenarios of queries that end early, have no reply, or are impossible: each ends with the
//! correct exit status and one line on the cause and the remedy.

use std::fs;
use std::net::UdpSocket;

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, QueryEndReason, QueryResult};
use tempfile::TempDir;

use crate::load_command::{StartedProgram, UnprivilegedCopy, parse};
use crate::process::{Engine, Server, run_to_end, server_address};
use crate::query::{TARGET, TIMEOUT, check_clean, has_finding, output_of, query, result_of};
use crate::server_nts::counter;
use crate::usage_error::{
    ENVIRONMENT, RefusalCase, USAGE, case, check_all_refused, check_error_line,
};

/// SIGINT ends a query early: the result is complete in all its forms, and reports the
/// interruption.
pub(crate) fn an_interrupted_query_keeps_its_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let arguments = [TARGET, "-n", "10000", "--interval", "10ms"];
    let files = ["--json", "r.json", "--html", "r.html", "--csv", "r.csv"];
    let arguments = [arguments.as_slice(), &files].concat();
    let mut run = StartedProgram::start(&mut query(lab.client(), &arguments)?)?;
    while counter(&server, "answered")? < 20 {
        run.wait_until(|_, _| true)?;
    }
    run.signal("INT")?;
    let (status, _) = run.end()?;
    ensure!(status.success(), "{status}: {}", run.read("stderr")?);
    let result: QueryResult = parse(run.read("r.json")?.as_bytes())?;
    let one = &result.servers[0];
    let samples = one.samples.len();
    ensure!((20..9_000).contains(&samples), "{samples} samples");
    ensure!(one.counts.received as usize == samples && one.counts.lost == 0, "{:?}", one.counts);
    ensure!(has_finding(&result, FindingCode::Interrupted), "{:?}", result.findings);
    ensure!(run.read("r.csv")?.lines().count() == samples + 1, "wrong number of CSV lines");
    ensure!(run.read("r.html")?.trim_end().ends_with("</html>"), "the HTML report is truncated");
    ensure!(
        run.read("stdout")?.contains("The run was interrupted after"),
        "no interruption in the text"
    );
    Ok(())
}

/// Without a reply, from a closed port and an unresponsive server, the exit status is 1 and one
/// line names both; with a third server that answers, the query succeeds.
pub(crate) fn unanswered_queries_are_reported() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _unresponsive = lab.server().run(|| UdpSocket::bind("192.0.2.2:5000"))??;
    let both = ["192.0.2.2:5001", "192.0.2.2:5000"];
    let rest = ["-n", "2", "--interval", "10ms", "--timeout", "100ms"];
    let output = output_of(lab.client(), &[&both[..], &rest].concat())?;
    ensure!(output.status.code() == Some(1), "{}", output.status);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let closed = "192.0.2.2:5001: no program listens on this port";
    let unanswered = "192.0.2.2:5000: none of 2 requests received a reply";
    check_error_line(&stderr, &[closed, unanswered])?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let three = [&[TARGET, "no-such-host.invalid"], &both[..], &rest].concat();
    let result = result_of(lab.client(), &three)?;
    let answered: Vec<_> = result.servers.iter().map(|one| one.counts.received).collect();
    ensure!(answered == [2, 0, 0, 0], "{answered:?}");
    let reason = result.servers[1].ended.as_ref().map(|end| end.reason);
    ensure!(reason == Some(QueryEndReason::Unresolved), "{:?}", result.servers[1]);
    ensure!(result.servers[2].counts.unreachable > 0, "{:?}", result.servers[2]);
    ensure!(has_finding(&result, FindingCode::NoReplies), "{:?}", result.findings);
    Ok(())
}

/// A limit of the offset decides the exit status, and is reported in every form of the result.
pub(crate) fn a_wrong_server_fails_its_limit() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &["--test-offset=-20000000"])?;
    let directory = TempDir::new()?;
    let limited = |bound: &str| {
        let limit = format!("offset>{bound}");
        let arguments = [TARGET, "-n", "4", "--interval", "10ms", "--fail-if", &limit];
        let files = ["--fail-if", "loss>90%", "--json", "r.json", "--junit", "r.xml"];
        let mut command = query(lab.client(), &[&arguments[..], &files].concat())?;
        run_to_end(command.current_dir(directory.path()), TIMEOUT)
    };
    for (bound, status, cases) in [("10ms", 1, "failures=\"1\""), ("30ms", 0, "failures=\"0\"")] {
        let output = limited(bound)?;
        ensure!(output.status.code() == Some(status), "{output:?}");
        let result: QueryResult = parse(&fs::read(directory.path().join("r.json"))?)?;
        let failed: Vec<_> = result.limits.iter().map(|limit| limit.failed).collect();
        ensure!(failed == [status == 1, false], "{:?}", result.limits);
        let [offset, loss] = &result.limits[..] else { bail!("{:?}", result.limits) };
        let off = offset.value.context("no offset")?;
        ensure!(
            (15e6..25e6).contains(&off) && offset.scope.as_deref() == Some(TARGET),
            "{offset:?}"
        );
        ensure!(loss.value.is_some_and(|lost| lost < 0.9), "{loss:?}");
        let junit = fs::read_to_string(directory.path().join("r.xml"))?;
        ensure!(junit.contains(cases) && junit.contains("offset&gt;"), "{junit}");
        let text = String::from_utf8(output.stdout)?;
        ensure!(text.contains(if status == 1 { "failed: 20" } else { "passed: 20" }), "{text}");
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(stderr.contains("failed: 20") == (status == 1), "{stderr}");
    }
    Ok(())
}

/// Without privileges, kernel timestamps are available; hardware timestamps are not, on a veth, and
/// this is reported.
pub(crate) fn an_unprivileged_user_can_measure() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let unprivileged = UnprivilegedCopy::new()?;
    let mut command = unprivileged.command(lab.client().command("setpriv"));
    command.args(["query", TARGET, "--interval", "10ms", "--hardware-timestamps"]);
    let output = run_to_end(command.args(["--json", "r.json"]), TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");
    let result: QueryResult = parse(&fs::read(unprivileged.path("r.json"))?)?;
    check_clean(&result.servers[0], 8)?;
    let missing =
        result.findings.iter().find(|finding| finding.code == FindingCode::TimestampsMissing);
    let missing = missing.context("no finding on hardware timestamps")?;
    ensure!(missing.message.contains("veth0"), "{missing:?}");
    Ok(())
}

const CASES: [RefusalCase; 22] = [
    case(&[], USAGE, &["SERVER"]),
    case(&["no/such/name"], USAGE, &["no/such/name", "ADDRESS"]),
    case(&["192.0.2.2:0"], USAGE, &["192.0.2.2:0", "ADDRESS"]),
    case(&["224.0.1.1"], USAGE, &["224.0.1.1", "unicast"]),
    case(&["fe80::1"], USAGE, &["fe80::1", "%eth0"]),
    case(&["8.8.8.8", "--interval", "0.5"], USAGE, &["8.8.8.8", "--i-own-this-target"]),
    case(&["8.8.8.8", "-n", "100", "--interval", "15"], USAGE, &["8.8.8.8", "16 s"]),
    case(&[TARGET, "-n", "0"], USAGE, &["1 to 1000000", "0"]),
    case(&[TARGET, "-n", "1000001"], USAGE, &["1 to 1000000", "1000001"]),
    case(&[TARGET, "--interval", "1us"], USAGE, &["interval", "1 µs"]),
    case(&[TARGET, "--interval", "2h"], USAGE, &["an hour", "7200 s"]),
    case(&[TARGET, "--timeout", "61"], USAGE, &["61", "1 ms to 60 s"]),
    case(&[TARGET, "--ntp-version", "5"], USAGE, &["5", "1 to 4"]),
    case(&[TARGET, "--nts"], USAGE, &["--ca"]),
    case(&[TARGET, "--nts-ke", TARGET], USAGE, &["--nts"]),
    case(&[TARGET, "--nts", "--ca", "/nonexistent"], USAGE, &["/nonexistent"]),
    case(&[TARGET, "--json", "-", "--csv", "-"], USAGE, &["standard output"]),
    case(&[TARGET, "--fail-if", "offset>1"], USAGE, &["offset", "unit"]),
    case(&[TARGET, "--junit", "x", "--csv", "x"], USAGE, &["--csv and --junit", "same file"]),
    case(&[TARGET, "--csv", "/proc/nowhere/r"], ENVIRONMENT, &["cannot write", "/proc/nowhere"]),
    case(&[TARGET, "-i", "nosuch0"], ENVIRONMENT, &["'nosuch0'", "ip link"]),
    case(&["no-such-host.invalid"], ENVIRONMENT, &["no-such-host.invalid", "check the name"]),
];

/// Impossible requests are refused in one line, and no server receives a request.
pub(crate) fn impossible_requests_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    check_all_refused(&CASES, |arguments| output_of(lab.client(), arguments))?;
    ensure!(counter(&server, "received")? == 0, "{}", server.status()?);
    Ok(())
}
