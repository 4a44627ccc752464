//! Scenarios of loads that mix several kinds of requests: each kind is sent and answered as it is
//! alone, the counts agree with those of the servers, and losses of one kind are reported for that
//! kind. Nothing is timed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_record::{LoadResult, MixRequestKindResult, RequestMode, Trial as LoadTrial};

use crate::chronyd;
use crate::load_command::{TIMEOUT, check_sums, only_trial, parse};
use crate::load_modes::{SERVER_NAME, certificate};
use crate::process::{Engine, Server, binary, run_to_end, server_address};
use crate::ptp4l::{Ptp4l, Transport, count_increase};
use crate::scenario::{Need, Queue, Scenario, scenario};
use crate::usage_error::{ENVIRONMENT, USAGE, case, check_all_refused};
use crate::{load_mix, scenarios};

const KEYS: &str = "1 SHA256 HEX:00112233445566778899aabbccddeeff\n";

pub(crate) fn all() -> Vec<Scenario> {
    const ROOT: &[Need] = &[Need::Root];
    const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd"), Need::Peer("chronyc")];
    const PTP4L: &[Need] =
        &[Need::Root, Need::Ipv6, Need::Peer("ptp4l"), Need::Peer("pmc"), Need::Peer("setpriv")];
    let mut all: Vec<Scenario> = scenarios!(ROOT, load_mix:
        problems_are_attributed_to_their_kind,
        a_mix_follows_a_profile,
        invalid_mixes_are_refused,
    )
    .into();
    let name = "load_mix::the_kernel_sends_several_kinds_from_each_core";
    let all_cores = scenario(name, ROOT, the_kernel_sends_several_kinds_from_each_core);
    all.push(all_cores.in_queue(Queue::Exclusive));
    all.extend(scenarios!(CHRONYD, load_mix: chronyd_agrees_on_each_kind_of_ntp));
    all.extend(scenarios!(PTP4L, load_mix: ntp_and_ptp_are_loaded_together));
    all
}

fn run(host: &LabHost, arguments: &[&str]) -> Result<Output> {
    let mut command = host.command(binary()?);
    command.args(["load", "mix"]).args(arguments);
    run_to_end(&mut command, TIMEOUT)
}

/// Runs a mix and returns its result, whose counts add up.
fn load(host: &LabHost, arguments: &[&str]) -> Result<LoadResult> {
    let output = run(host, &[arguments, &["--json", "-"]].concat())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let result: LoadResult =
        parse(&output.stdout).with_context(|| format!("{arguments:?}: {stderr}"))?;
    ensure!(result.mode == RequestMode::Mix && !result.trials.is_empty(), "{result:?}");
    result.trials.iter().try_for_each(check_parts)?;
    Ok(result)
}

/// Checks that the counts of the parts add up to the trial's, and that each part has its share.
fn check_parts(trial: &LoadTrial) -> Result<()> {
    check_sums(trial)?;
    let sum = |count: fn(&LoadTrial) -> u64| -> u64 {
        trial.parts.iter().map(|part| count(&part.trial)).sum()
    };
    let counted = [
        (sum(|t| t.sent), trial.sent),
        (sum(|t| t.received), trial.received),
        (sum(|t| t.late), trial.late),
        (sum(|t| t.clients), trial.clients),
        (sum(|t| t.responses.basic), trial.responses.basic),
        (sum(|t| t.responses.interleaved), trial.responses.interleaved),
        (sum(|t| t.responses.delay), trial.responses.delay),
        (sum(LoadTrial::invalid_total), trial.invalid_total()),
        (sum(|t| t.rtt_ns.as_ref().map_or(0, |rtt| rtt.count)), trial.received),
    ];
    ensure!(counted.iter().all(|(parts, all)| parts == all), "{counted:?} of {trial:?}");
    let shares: f64 = trial.parts.iter().map(|part| part.share).sum();
    ensure!((shares - 1.0).abs() < 1e-9, "{shares}");
    for MixRequestKindResult { name, share, trial: part, .. } in &trial.parts {
        let intended = trial.intended_rate * share;
        ensure!((part.intended_rate - intended).abs() < 1e-6 * intended, "{name}: {part:?}");
        let planned = intended * trial.duration_s;
        // A generator that is behind sends fewer requests than planned, which the rate shows.
        ensure!(part.sent as f64 <= planned + 2.0, "{name}: {part:?}");
    }
    Ok(())
}

fn part_of<'a>(trial: &'a LoadTrial, name: &str) -> Result<&'a LoadTrial> {
    let part = trial.parts.iter().find(|part| part.name == name);
    Ok(&part.with_context(|| format!("no {name} in {trial:?}"))?.trial)
}

/// Starts chronyd with a key and a certificate in a directory.
fn chronyd(host: &LabHost) -> Result<(chronyd::ChronydClient, tempfile::TempDir)> {
    let files = tempfile::tempdir()?;
    let keys = files.path().join("chrony.keys");
    fs::write(&keys, KEYS)?;
    fs::set_permissions(&keys, Permissions::from_mode(0o600))?;
    certificate(files.path())?;
    let at = files.path().display();
    let lines = ["local stratum 1", "allow all"].map(str::to_owned).into_iter().chain([
        format!("keyfile {at}/chrony.keys"),
        format!("ntsservercert {at}/cert.pem"),
        format!("ntsserverkey {at}/key.pem"),
    ]);
    let chronyd =
        chronyd::ChronydClient::start(host, &lines.collect::<Vec<_>>(), |_: &Path| Ok(()))?;
    Ok((chronyd, files))
}

/// Each kind receives replies of its kind, and chronyd's counters agree.
fn chronyd_agrees_on_each_kind_of_ntp() -> Result<()> {
    for engine in ["udp", "packet"] {
        let lab = Lab::new(&LabConfig::default())?;
        let (chronyd, files) = chronyd(lab.server())?;
        let [keys, ca] =
            ["chrony.keys", "cert.pem"].map(|name| files.path().join(name).display().to_string());
        let target = server_address(&lab, engine == "packet")?.ip().to_string();
        let weights = "ntp=40,ntp-v3=10,ntp-interleaved=30,ntp-nts=15,ntp-mac=5";
        let mut arguments = vec![&*target, "--weights", weights, "-r", "1000", "-t", "1"];
        arguments.extend(["--engine", engine, "-c", "100", "--key", "1", "--keys", &keys]);
        arguments.extend(["--nts", "--ca", &ca, "--nts-name", SERVER_NAME, "--nts-sessions", "2"]);
        let result = load(lab.client(), &arguments)?;
        let trial = only_trial(&result)?;
        ensure!(trial.invalid.is_empty() && trial.received > 0, "{trial:?}");
        let names: Vec<_> = trial.parts.iter().map(|part| (&*part.name, part.mode)).collect();
        let expected = [
            ("ntp", RequestMode::NtpBasic),
            ("ntp-v3", RequestMode::NtpBasic),
            ("ntp-interleaved", RequestMode::NtpInterleaved),
            ("ntp-nts", RequestMode::NtpNts),
            ("ntp-mac", RequestMode::NtpBasic),
        ];
        ensure!(names == expected, "{names:?}");
        for (name, clients) in [("ntp", 40), ("ntp-interleaved", 30), ("ntp-mac", 5)] {
            let part = part_of(trial, name)?;
            ensure!(part.clients == clients, "{name}: {part:?}");
            ensure!(part.received * 10 >= part.sent * 9, "{name}: {part:?}");
        }
        // The first reply to each client is a basic one.
        let interleaved = part_of(trial, "ntp-interleaved")?;
        ensure!(interleaved.responses.interleaved * 2 > interleaved.received, "{interleaved:?}");
        let nts = part_of(trial, "ntp-nts")?;
        ensure!(nts.responses.nts == nts.received && nts.received > 0, "{nts:?}");
        ensure!(trial.authenticated.context("no class")?.sent == nts.sent, "{trial:?}");
        if trial.lost == 0 {
            let [all, authentic] = [trial.sent, nts.sent + part_of(trial, "ntp-mac")?.sent]
                .map(|count| format!(": {count}"));
            let interleaved = format!(": {}", interleaved.responses.interleaved);
            chronyd.await_lines(
                "serverstats",
                &[
                    ("NTP packets received", &all),
                    ("Authenticated NTP packets", &authentic),
                    ("Interleaved NTP packets", &interleaved),
                ],
            )?;
        }
    }
    Ok(())
}

/// The packet engine and the XDP engine send several kinds of PTP at once over IPv4 and IPv6, with
/// shared ports, and the udp engine one kind.
fn ntp_and_ptp_are_loaded_together() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _server = Server::start(
        lab.server(),
        Engine::Socket,
        &[server_address(&lab, false)?, server_address(&lab, true)?],
        &[],
    )?;
    for transport in [Transport::Ipv4, Transport::Ipv6] {
        let ptp4l = Ptp4l::start(lab.server(), transport, 0)?;
        let target = server_address(&lab, transport == Transport::Ipv6)?.ip().to_string();
        for (engine, weights) in [
            ("packet", "ntp=2,ptp-delay=5,ptp-nsm=2,ptp-unicast=1"),
            ("udp", "ptp-delay=1,ntp-interleaved=4"),
            ("xdp", "ptp-nsm=2,ntp=2,ptp-delay=5"),
        ] {
            let before = ptp4l.counts()?;
            let mut arguments = vec![&*target, "-w", weights, "--engine", engine, "-r", "1000"];
            arguments.extend(["-t", "0.5", "--grant-duration", "1"]);
            let result = load(lab.client(), &arguments)?;
            let after = ptp4l.counts()?;
            let trial = only_trial(&result)?;
            ensure!(trial.invalid.is_empty() && trial.duplicate == 0, "{trial:?}");
            let delay = part_of(trial, "ptp-delay")?;
            ensure!(delay.responses.delay == delay.received && delay.received > 0, "{delay:?}");
            let nsm = part_of(trial, "ptp-nsm").map_or((0, 0), |nsm| (nsm.sent, nsm.received));
            ensure!(engine == "udp" || nsm.1 > 0, "{trial:?}");
            let requests = count_increase(&before, &after, "rx_Delay_Req")?;
            let sent = delay.sent + nsm.0;
            ensure!(requests <= sent, "{requests} of {trial:?}");
            ensure!(trial.lost > 0 || requests == sent, "{requests} of {trial:?}");
            if let Ok(unicast) = part_of(trial, "ptp-unicast") {
                ensure!(unicast.responses.grant == unicast.received, "{unicast:?}");
                ensure!(unicast.received > 0, "{unicast:?}");
            }
        }
    }
    Ok(())
}

/// With a server of one kind only, all requests of the other kind are lost, and the table shows it.
fn problems_are_attributed_to_their_kind() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let target = at.to_string();
    let mut arguments = vec![&*target, "-w", "ntp=3,ptp-delay=1", "--engine", "packet"];
    arguments.extend(["-r", "400", "-t", "0.5", "--timeout", "100ms"]);
    let result = load(lab.client(), &arguments)?;
    let trial = only_trial(&result)?;
    let (ntp, ptp) = (part_of(trial, "ntp")?, part_of(trial, "ptp-delay")?);
    ensure!(ntp.received * 10 >= ntp.sent * 9 && ntp.sent > 0, "{ntp:?}");
    ensure!(ptp.received == 0 && ptp.lost == ptp.sent && ptp.sent > 0, "{ptp:?}");
    let output = run(lab.client(), &arguments)?;
    let table = String::from_utf8_lossy(&output.stdout);
    let row = table.lines().find(|line| line.starts_with("ptp-delay"));
    ensure!(row.is_some_and(|row| row.contains("100.00%")), "{table}");
    Ok(())
}

/// Each phase has the parts, and the interval counts of the series add up to those of the trials.
fn a_mix_follows_a_profile() -> Result<()> {
    const PROFILE: &str = "[[phase]]\nname = 'low'\nrate = 400\nduration = '0.5s'\n\
                           [[phase]]\nname = 'rise'\nrate = 400\nto = 1200\nduration = '0.5s'\n";
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("profile.toml");
    fs::write(&path, PROFILE)?;
    let (target, path) = (at.to_string(), path.display().to_string());
    for engine in ["udp", "packet", "xdp"] {
        let mut arguments = vec![&*target, "-w", "ntp=1,ntp-v3=3", "--engine", engine];
        arguments.extend(["--profile", &path, "--interval", "100ms"]);
        let result = load(lab.client(), &arguments)?;
        let points = &result.series.as_ref().context("no series")?.points;
        ensure!(points.len() == 10 && result.trials.len() == 2, "{result:?}");
        let counted: u64 = points.iter().map(|point| point.sent).sum();
        let sent: u64 = result.trials.iter().map(|trial| trial.sent).sum();
        ensure!(counted == sent && sent > 0, "{counted} in intervals, {sent} in all");
        ensure!(result.trials.iter().all(|trial| trial.parts.len() == 2), "{result:?}");
    }
    Ok(())
}

/// With one or two threads, each sends all four kinds, and each reply is counted for the kind of
/// its request.
fn the_kernel_sends_several_kinds_from_each_core() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    for ipv6 in [false, true] {
        let at = server_address(&lab, ipv6)?;
        let server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
        let target = at.to_string();
        let weights = "ntp=5,ntp-v3=2,ntp-interleaved=2,ntp-v1=1";
        for threads in ["1", "2"] {
            let before = server.status()?["counters"]["answered"].as_u64().unwrap_or(0);
            let mut arguments = vec![&*target, "-w", weights, "--engine", "xdp", "-c", "400"];
            arguments.extend(["-r", "10000", "-t", "0.5", "--threads", threads]);
            let result = load(lab.client(), &arguments)?;
            let trial = only_trial(&result)?;
            ensure!(trial.invalid.is_empty() && trial.duplicate == 0, "{trial:?}");
            for part in &trial.parts {
                let MixRequestKindResult { name, trial: part, .. } = part;
                ensure!(part.received * 10 >= part.sent * 9 && part.sent > 0, "{name}: {part:?}");
            }
            let interleaved = part_of(trial, "ntp-interleaved")?;
            let responses = interleaved.responses;
            ensure!(responses.interleaved * 2 > interleaved.received, "{interleaved:?}");
            ensure!(trial.responses.interleaved == responses.interleaved, "{trial:?}");
            let after = server.status()?["counters"]["answered"].as_u64().unwrap_or(0);
            // Replies that the generator did not receive are counted by the server.
            ensure!(after - before >= trial.received, "{before} to {after}: {trial:?}");
            ensure!(after - before <= trial.sent, "{before} to {after}: {trial:?}");
        }
    }
    Ok(())
}

fn invalid_mixes_are_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let cases = [
        case(&["192.0.2.2"], USAGE, &["--weights"]),
        case(&["192.0.2.2", "-w", "ntp=1"], USAGE, &["2 to 8"]),
        case(&["192.0.2.2", "-w", "ntp=1,ntp=2"], USAGE, &["'ntp'", "twice"]),
        case(&["192.0.2.2", "-w", "ntp=0,ntp-v3=1"], USAGE, &["'ntp'", "above 0"]),
        case(&["192.0.2.2", "-w", "ntp=1,ntp-v3=nan"], USAGE, &["'ntp-v3'", "above 0"]),
        case(&["192.0.2.2", "-w", "ntp=1,sntp=1"], USAGE, &["'sntp'", "ntp-v3"]),
        case(&["192.0.2.2", "-w", "ntp=1,ntp-v3"], USAGE, &["KIND=WEIGHT"]),
        case(&["192.0.2.2", "-w", "ntp=1,ntp-nts=1"], USAGE, &["ntp-nts", "--ca"]),
        case(&["192.0.2.2", "-w", "ntp=1,ntp-mac=1"], USAGE, &["ntp-mac", "--key"]),
        case(&["192.0.2.2", "-w", "ntp=1,ntp-v3=1", "-c", "1"], USAGE, &["at least", "clients"]),
        case(
            &["192.0.2.2", "-w", "ntp=1,ntp-v3=1", "--compliant-clients", "1"],
            USAGE,
            &["compliant clients", "omit one"],
        ),
        case(
            &["192.0.2.2", "-w", "ptp-delay=1,ptp-nsm=1", "--engine", "udp"],
            ENVIRONMENT,
            &["--engine packet"],
        ),
        case(
            &["192.0.2.2", "-w", "ntp=1,ptp-unicast=1", "--engine", "xdp"],
            ENVIRONMENT,
            &["unicast negotiation", "--engine packet"],
        ),
        case(&["8.8.8.8", "-w", "ntp=1,ntp-v3=1"], USAGE, &["8.8.8.8"]),
    ];
    check_all_refused(&cases, |arguments| run(lab.client(), arguments))
}
