//! Scenarios of `horolog campaign run --local`: the built-in plans produce the documented results,
//! merged counts are the sums of the parts, an interrupted or too long run ends with its partial
//! result, and an invalid plan is refused before anything starts.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use horolog_record::{
    CampaignInstanceOutcome, CampaignResult, CampaignRoleResult, FindingCode, LoadResult,
    MergedResults,
};
use tempfile::TempDir;

use crate::process::{binary, run_to_end, signal};
use crate::scenario::Scenario;
use crate::{ROOT, campaign_local, scenarios};

/// Timeout of a short campaign on a busy host.
const TIMEOUT: Duration = Duration::from_secs(90);

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, campaign_local:
        a_server_is_loaded_from_several_hosts,
        all_pairs_of_nodes_are_measured,
        all_pairs_are_measured_over_ipv6,
        every_leaf_of_a_tree_receives_every_packet,
        a_cluster_runs_in_step_and_its_slow_node_is_named,
        a_cluster_is_pinned_to_cores_and_released_by_datagrams,
        a_cluster_runs_the_tasks_of_a_file,
        an_interrupted_campaign_keeps_its_results,
        a_job_that_never_ends_is_bounded,
        a_service_that_cannot_start_is_reported,
    ));
    all.extend(scenarios!(&[], campaign_local:
        plans_can_be_listed_printed_and_checked,
        invalid_plans_are_refused,
        the_wait_for_missing_nodes_is_bounded,
    ));
    all
}

fn campaign(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).arg("campaign").args(arguments), TIMEOUT)
}

/// Runs a plan on this host, and returns the exit status and the result.
fn run(arguments: &[&str]) -> Result<(Option<i32>, CampaignResult)> {
    let output = campaign(&[&["run", "--local", "--json", "-"], arguments].concat())?;
    let result = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok((output.status.code(), result))
}

fn role<'a>(result: &'a CampaignResult, name: &str) -> Result<&'a CampaignRoleResult> {
    result.roles.iter().find(|role| role.role == name).with_context(|| format!("no role {name}"))
}

fn a_server_is_loaded_from_several_hosts() -> Result<()> {
    let set = ["--set", "rate=400-600", "--set", "time=500ms", "--set", "generators=3"];
    let (_, result) = run(&[&["ntp-saturation"][..], &set].concat())?;
    let MergedResults::Load { trials, capacity } = &role(&result, "load")?.merged else {
        bail!("no trials: {result:?}");
    };
    ensure!(capacity.is_some(), "no merged capacity");
    ensure!(trials.len() == 2 && trials.iter().all(|trial| trial.generators == 3), "{trials:?}");
    let mut parts = Vec::new();
    for part in result.parts.iter().filter(|part| part.role == "load") {
        let load = part.result.clone().context("a part has no result")?;
        parts.push(serde_json::from_value::<LoadResult>(load)?);
        ensure!(part.end == CampaignInstanceOutcome::Done && part.started_ns.is_some(), "{part:?}");
    }
    for (index, together) in trials.iter().enumerate() {
        let sum = |of: fn(&horolog_record::Trial) -> u64| -> u64 {
            parts.iter().map(|part| of(&part.trials[index])).sum()
        };
        let trial = &together.trial;
        ensure!(trial.sent == sum(|trial| trial.sent) && trial.sent > 0);
        ensure!(trial.received == sum(|trial| trial.received) && trial.received > 0);
        let rtts = trial.rtt_ns.as_ref().context("no round trips")?.count;
        ensure!(rtts == trial.received, "{rtts} round trips, but {} replies", trial.received);
    }
    let start = result.start.context("no start")?;
    ensure!(start.late_ns.count == 3 && start.clock_error_ns == Some(0), "{start:?}");
    let server = &result.parts[0];
    ensure!(server.service && server.result.is_some(), "the server has no result: {server:?}");
    Ok(())
}

fn all_pairs_of_nodes_are_measured() -> Result<()> {
    run_all_pairs(&[]).map(drop)
}

fn all_pairs_are_measured_over_ipv6() -> Result<()> {
    let result = run_all_pairs(&["--ipv6"])?;
    ensure!(result.parts.iter().all(|part| part.address.is_ipv6()), "{:?}", result.parts);
    Ok(())
}

fn run_all_pairs(more: &[&str]) -> Result<CampaignResult> {
    let plan = ["udp-all-pairs", "--set", "time=500ms", "--set", "rate=50"];
    let (_, result) = run(&[&plan, more].concat())?;
    let MergedResults::Paths { pairs, rows } = &role(&result, "probe")?.merged else {
        bail!("no paths: {result:?}");
    };
    ensure!(pairs.len() == 6 && pairs.iter().all(|pair| pair.from != pair.to), "{pairs:?}");
    ensure!(pairs.iter().all(|pair| pair.counts.received > 0), "{pairs:?}");
    let sum: u64 = pairs.iter().map(|pair| pair.counts.sent).sum();
    let [row] = &rows[..] else { bail!("{rows:?}") };
    ensure!((row.paths, row.counts.sent) == (6, sum), "{row:?}");
    Ok(result)
}

fn every_leaf_of_a_tree_receives_every_packet() -> Result<()> {
    let set = ["--set", "time=1s", "--set", "rate=100", "--set", "leaves=3"];
    let (status, result) = run(&[&["relay-tree"][..], &set].concat())?;
    ensure!(status == Some(0), "unanswered requests of the source reported: {:?}", result.findings);
    let relays = |name: &str| match &role(&result, name)?.merged {
        MergedResults::Relays { relays, .. } => Ok(relays.clone()),
        other => bail!("{name}: {other:?}"),
    };
    let MergedResults::Load { trials, .. } = &role(&result, "source")?.merged else {
        bail!("no source: {result:?}");
    };
    let sent = trials[0].trial.sent;
    ensure!(sent > 0 && relays("leaf")?.len() == 3);
    for relay in relays("root")?.iter().chain(&relays("middle")?) {
        ensure!(relay.packets == sent, "{} of {sent}: {relay:?}", relay.packets);
        for child in &relay.children {
            ensure!(child.job.is_some(), "{child:?}");
            ensure!((child.sent, child.received) == (sent, Some(sent)), "{child:?} of {sent}");
        }
    }
    Ok(())
}

fn a_cluster_is_pinned_to_cores_and_released_by_datagrams() -> Result<()> {
    let set = ["nodes=2", "period=40ms", "time=1s", "core=0,1", "signal=udp"];
    let set = set.map(|set| ["--set", set]).concat();
    let (_, result) = run(&[&["rt-cluster"][..], &set].concat())?;
    let MergedResults::Cycles { tasks, .. } = &role(&result, "lead")?.merged else {
        bail!("no cycles: {result:?}");
    };
    ensure!(tasks.len() == 1 && tasks[0].periods == 50, "{tasks:?}");
    let lead = result.parts.iter().find(|part| part.role == "lead").context("no leader")?;
    let record = lead.result.as_ref().context("no record")?.to_string();
    ensure!(record.contains("--release-signal=udp") && record.contains("--core=0,1"), "{record}");
    Ok(())
}

fn a_cluster_runs_the_tasks_of_a_file() -> Result<()> {
    let fast = "[[task]]\nname = \"fast\"\nperiod = \"20ms\"\ncompute = \"1ms\"\n";
    let slow = "[[task]]\nname = \"slow\"\nperiod = \"50ms\"\nunits = 10\nbarrier = true\n";
    let text = format!("tasks={fast}{slow}");
    let set = ["nodes=2", "time=1s", &text].map(|set| ["--set", set]).concat();
    let (_, result) = run(&[&["rt-cluster"][..], &set].concat())?;
    let MergedResults::Cycles { tasks, .. } = &role(&result, "lead")?.merged else {
        bail!("no cycles: {result:?}");
    };
    let periods: Vec<_> = tasks.iter().map(|task| (&*task.task, task.periods)).collect();
    ensure!(periods == [("fast", 100), ("slow", 40)], "{periods:?}");
    let program = format!("{text}command = [\"/bin/true\"]\n");
    let refused = campaign(&["run", "rt-cluster", "--local", "--set", &program])?;
    let stderr = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(2) && stderr.contains("'command' is not"), "{refused:?}");
    Ok(())
}

/// Checks a cluster of two nodes of which the second computes five times as much.
fn a_cluster_runs_in_step_and_its_slow_node_is_named() -> Result<()> {
    let set = ["nodes=2", "period=40ms", "time=1s", "slow=2=5"].map(|set| ["--set", set]);
    let (status, result) = run(&[&["rt-cluster"][..], &set.concat()].concat())?;
    ensure!(status == Some(0), "{:?}", result.findings);
    let MergedResults::Cycles { tasks, nodes } = &role(&result, "lead")?.merged else {
        bail!("no cycles: {result:?}");
    };
    let [task] = &tasks[..] else { bail!("{tasks:?}") };
    ensure!((task.nodes, task.periods) == (2, 50), "{task:?}");
    let response = task.response_ns.as_ref().context("no responses")?;
    ensure!(response.count == 50, "{response:?}");
    let [first, second] = &nodes[..] else { bail!("{nodes:?}") };
    ensure!(first.job.as_deref() == Some("lead.1") && first.agent.is_some(), "{first:?}");
    ensure!(second.job.as_deref() == Some("member.1"), "{second:?}");
    ensure!(second.ahead_ns.is_some() && task.skew_ns < 4_000_000, "{second:?} of {task:?}");
    ensure!(
        second.straggler_periods > first.straggler_periods.map(|times| 3 * times),
        "{first:?} and {second:?}"
    );
    let named = result.findings.iter().find(|finding| finding.code == FindingCode::StragglerNode);
    let agent = second.agent.clone().unwrap_or_default();
    let message = &named.context("no finding names the straggler")?.message;
    ensure!(message.contains(&format!("member1 is member.1 on {agent}.")), "{message}");
    // A member has no result of its own and needs none.
    let member = result.parts.iter().find(|part| part.role == "member").context("no member")?;
    ensure!(member.end == CampaignInstanceOutcome::Done && member.result.is_none(), "{member:?}");
    Ok(())
}

fn the_wait_for_missing_nodes_is_bounded() -> Result<()> {
    let ended = |arguments: &[&str], reason: &str| -> Result<()> {
        let mut command = Command::new(binary()?);
        let output = run_to_end(command.args(["cycle", "run"]).args(arguments), TIMEOUT)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(3) && stderr.contains(reason),
            "{arguments:?}: {stderr}"
        );
        Ok(())
    };
    let task = ["-p", "10ms", "-u", "1", "--nodes", "2", "--join-timeout", "200ms"];
    ended(
        &[&task[..], &["--listen", "127.0.0.1:0"]].concat(),
        "0 of 1 other nodes joined within 0.2 s",
    )?;
    ended(&["--join", "127.0.0.1:9", "--join-timeout", "200ms"], "cannot reach the leader")?;
    let output = run_to_end(Command::new(binary()?).args(["cycle", "run"]).args(task), TIMEOUT)?;
    ensure!(output.status.code() == Some(2), "--join-timeout without other hosts: {output:?}");
    Ok(())
}

fn an_interrupted_campaign_keeps_its_results() -> Result<()> {
    let directory = TempDir::new()?;
    let json = directory.path().join("result.json");
    let mut command = Command::new(binary()?);
    command.args(["campaign", "run", "udp-all-pairs", "--local", "--set", "time=60s", "--json"]);
    command.arg(&json).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    thread::sleep(Duration::from_secs(4));
    signal(&child, "INT")?;
    child.wait()?;
    let result: CampaignResult = serde_json::from_slice(&fs::read(&json)?)?;
    ensure!(result.interrupted, "{:?}", result.findings);
    ensure!(result.findings.iter().any(|finding| finding.code == FindingCode::Interrupted));
    let probes = result.parts.iter().filter(|part| part.role == "probe");
    for part in probes {
        ensure!(part.end == CampaignInstanceOutcome::Abandoned, "{part:?}");
        ensure!(part.result.is_some(), "no partial result: {part:?}");
    }
    Ok(())
}

/// Writes a plan to a file in its own directory.
fn write_plan(text: &str) -> Result<(TempDir, String)> {
    let directory = TempDir::new()?;
    let path = directory.path().join("plan.toml");
    fs::write(&path, format!("schema = \"horolog.plan/2\"\nname = \"p\"\n{text}"))?;
    let path = path.to_str().context("the path is not UTF-8")?.to_owned();
    Ok((directory, path))
}

fn a_job_that_never_ends_is_bounded() -> Result<()> {
    // The duration of the job is the default of its command, which the plan does not contain.
    let timer = "duration-max = \"1s\"\n[[role]]\nname = \"t\"\nkind = \"host-timer\"\n";
    let (_directory, path) = write_plan(timer)?;
    let (status, result) = run(&[&path])?;
    ensure!(status == Some(1), "{status:?}");
    ensure!(result.parts[0].end == CampaignInstanceOutcome::TimedOut, "{:?}", result.parts[0]);
    ensure!(result.parts[0].result.is_some(), "no partial result");
    Ok(())
}

fn a_service_that_cannot_start_is_reported() -> Result<()> {
    // No interface has this address.
    let text = "[[role]]\nname = \"s\"\nkind = \"serve\"\n[role.options]\n\
                listen = \"192.0.2.99:123\"\n[[role]]\nname = \"t\"\nkind = \"host-timer\"\n";
    let (_directory, path) = write_plan(text)?;
    let output = campaign(&["run", "--local", &path])?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(3), "{output:?}");
    ensure!(stderr.contains("service s.1 is not ready: "), "{stderr}");
    Ok(())
}

fn plans_can_be_listed_printed_and_checked() -> Result<()> {
    let listed = String::from_utf8(campaign(&["plans"])?.stdout)?;
    for name in ["ntp-saturation", "udp-all-pairs", "relay-tree", "rt-cluster"] {
        ensure!(listed.contains(name), "{listed}");
        let text = campaign(&["plans", name])?.stdout;
        let directory = TempDir::new()?;
        let path = directory.path().join("plan.toml");
        fs::write(&path, text)?;
        let path = path.to_str().context("the path is not UTF-8")?;
        let by_name = campaign(&["run", "--local", "--check", name])?;
        let by_file = campaign(&["run", "--local", "--check", path])?;
        ensure!(by_name.status.success() && !by_name.stdout.is_empty(), "{by_name:?}");
        ensure!(by_name.stdout == by_file.stdout, "{by_file:?}");
    }
    Ok(())
}

fn invalid_plans_are_refused() -> Result<()> {
    let refused = |arguments: &[&str], reason: &str| -> Result<()> {
        let output = campaign(&[&["run", "--local"], arguments].concat())?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{arguments:?}: {output:?}");
        ensure!(stderr.contains(reason) && stderr.trim().lines().count() == 1, "{stderr}");
        Ok(())
    };
    refused(&["no-such-plan"], "built-in plans: ntp-saturation")?;
    refused(&["ntp-saturation", "--set", "speed=1"], "unknown parameter 'speed'")?;
    refused(&["ntp-saturation", "--set", "speed"], "expected NAME=VALUE")?;
    refused(&["ntp-saturation", "--set", "rate=fast"], "invalid 'rate' of load-ntp, 'fast'")?;
    refused(&["ntp-saturation", "--set", "generators=64"], "the plan needs 65 agents")?;
    refused(&["udp-all-pairs", "--set", "nodes=1"], "need two instances of it; it has one")?;
    refused(&["udp-all-pairs", "--set", "sizes=70000"], "'70000' is outside 16 to 65507 bytes")?;
    refused(
        &["udp-all-pairs", "--set", "time=700s"],
        "which exceeds the plan's duration-max of 600 s",
    )?;
    refused(&["rt-cluster", "--set", "nodes=1"], "the count '{nodes}-1' evaluates to 0")?;
    refused(&["rt-cluster", "--set", "slow=7=5"], "node 7 does not exist; nodes are 1 to 3")?;
    refused(&["rt-cluster", "--nats", "nats://127.0.0.1:9"], "cannot be used with '--nats")?;
    refused(&["rt-cluster", "--replicas", "3"], "cannot be used with '--replicas")?;
    let (_directory, path) = write_plan("[[role]]\nname = \"t\"\nkind = \"shell\"\n")?;
    refused(&[&path], "plan.toml:5: unknown kind of role 'shell'")?;
    let output = campaign(&["run", "ntp-saturation", "--nats", "nats://127.0.0.1:9"])?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(3) && stderr.contains("no NATS server answers"),
        "{stderr}"
    );
    Ok(())
}
