//! Scenarios of `horolog cycle run`: every period is counted, slow nodes are named, clock offsets
//! above the bound are refused, and no process is left.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_sys::namespace::die_with_parent;
use serde_json::Value;
use tempfile::TempDir;

use crate::launch_after::processes;
use crate::process::{TIMEOUT, binary, run_to_end, signal, signal_to, wait_until};
use crate::scenario::{Queue, Scenario};
use crate::usage_error::{self, ENVIRONMENT, RefusalCase, USAGE, case};
use crate::{ROOT, cycle_run, scenarios};

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[], cycle_run:
        each_period_is_counted_and_in_the_log,
        an_overrun_delays_the_next_period_and_skips_none,
        a_command_that_never_ends_is_killed_and_the_run_ends,
        a_node_that_dies_is_named_and_other_results_remain,
        an_interrupted_run_keeps_its_result_and_leaves_nothing,
        an_interrupted_member_is_named_and_other_results_remain,
        a_member_that_allows_no_commands_is_named_with_a_hint,
        joined_nodes_report_the_missing_ones,
        missing_messages_and_broken_barriers_are_reported,
        events_are_served_within_the_budget,
        packets_release_each_period_of_each_task,
        invalid_runs_are_refused,
    ));
    // They compare the times of nodes.
    let slow_nodes =
        scenarios!(&[], cycle_run: a_slow_node_is_named, a_node_that_falls_far_behind_is_named);
    all.extend(slow_nodes.map(|scenario| scenario.in_queue(Queue::Exclusive)));
    all.extend(scenarios!(ROOT, cycle_run:
        policies_are_compared_in_one_run,
        nodes_of_two_hosts_run_together_and_a_clock_offset_is_reported,
        packets_release_nodes_whose_clocks_are_wrong_and_lost_ones_are_counted,
    ));
    all
}

fn cycle(arguments: &[&str]) -> Result<Output> {
    run_to_end(Command::new(binary()?).args(["cycle", "run"]).args(arguments), TIMEOUT)
}

fn run_to_result(arguments: &[&str]) -> Result<Value> {
    let output = cycle(&[&["--json", "-"], arguments].concat())?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn task(result: &Value, node: usize) -> &Value {
    &result["runs"][0]["nodes"][node]["tasks"][0]
}

fn codes(result: &Value) -> Vec<&str> {
    let findings = result["findings"].as_array().into_iter().flatten();
    findings.filter_map(|finding| finding["code"].as_str()).collect()
}

fn each_period_is_counted_and_in_the_log() -> Result<()> {
    let directory = TempDir::new()?;
    let log = directory.path().join("log.csv");
    let log_name = log.to_str().context("no text")?;
    let settings =
        ["--policy", "other", "-p", "5ms", "-u", "100", "-t", "500ms", "--log", log_name];
    let result = run_to_result(&settings)?;
    let task = task(&result, 0);
    ensure!(task["periods"] == 100 && task["planned"] == 100 && task["uncounted"] == 0, "{task}");
    for times in ["start_latency_ns", "execution_ns", "response_ns", "computation_ns"] {
        ensure!(task[times]["count"] == 100, "{times}: {task}");
    }
    let text = fs::read_to_string(&log)?;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    ensure!(lines.len() == 101 && lines[0].contains(&"response_ns"), "{text}");
    for (cycle, line) in lines[1..].iter().enumerate() {
        ensure!(line[3] == cycle.to_string() && line.len() == lines[0].len(), "{line:?}");
        let times: Vec<u64> = line[6..9].iter().filter_map(|field| field.parse().ok()).collect();
        ensure!(times.len() == 3 && times[0] + times[1] == times[2], "{line:?}");
        ensure!(line[4] == line[5], "release by a clock differs from the plan: {line:?}");
    }
    Ok(())
}

/// A command of 50 ms every 20 ms: all ten periods run, each with a longer start latency.
fn an_overrun_delays_the_next_period_and_skips_none() -> Result<()> {
    let result = run_to_result(&["-p", "20ms", "-t", "200ms", "--", "sleep", "0.05"])?;
    let task = task(&result, 0);
    ensure!(task["periods"] == 10 && task["missed"] == 10 && task["overrun"] == 9, "{task}");
    let latest = task["start_latency_ns"]["max"].as_u64().context("no start latency")?;
    // At least nine times 30 ms.
    ensure!(latest >= 270_000_000, "{task}");
    ensure!(codes(&result).contains(&"deadlines-missed"), "{result}");
    Ok(())
}

fn a_command_that_never_ends_is_killed_and_the_run_ends() -> Result<()> {
    // Timeouts shorter and longer than the run.
    for (time, timeout) in [("10s", "200ms"), ("200ms", "2500ms")] {
        let settings = ["--json", "-", "-p", "50ms", "-t", time, "--timeout", timeout];
        let output = cycle(&[&settings[..], &["--", "sleep", "61.25"]].concat())?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        let result: Value = serde_json::from_slice(&output.stdout)?;
        let task = task(&result, 0);
        ensure!(task["periods"] == 1 && task["failed"] == 1 && task["missed"] == 1, "{result}");
        ensure!(task["execution_ns"].is_null(), "unfinished period has an execution time: {task}");
        let failure = task["failure"].as_str().context("no failure reason")?;
        ensure!(failure.starts_with("no answer within --timeout ("), "{task}");
        for code in ["task-failed", "node-lost", "periods-not-run"] {
            ensure!(codes(&result).contains(&code), "{code}: {result}");
        }
    }
    ensure!(processes("sleep 61.25")?.is_empty(), "'sleep 61.25' still runs");
    Ok(())
}

/// The second of two nodes has five times the computation.
fn a_slow_node_is_named() -> Result<()> {
    let settings = ["-p", "40ms", "-c", "2ms", "-b", "-t", "1s", "-n", "2", "--slow-node", "2=5"];
    let result = run_to_result(&settings)?;
    let shared = &result["runs"][0]["shared"][0];
    let straggler_periods: Vec<u64> = serde_json::from_value(shared["straggler_periods"].clone())?;
    ensure!(straggler_periods[1] > 3 * straggler_periods[0], "{shared}");
    let findings = result["findings"].as_array().context("no findings")?;
    let named = findings.iter().find(|finding| finding["code"] == "straggler-node");
    let named = named.context("no finding of a straggler")?;
    ensure!(named["message"].as_str().is_some_and(|text| text.contains("node2")), "{named}");
    // Waiting for a straggler is part of the overhead of the other node.
    let idle = |node| task(&result, node)["overhead"]["idle_ns"].as_f64().unwrap_or(0.0);
    ensure!(idle(0) > idle(1), "idle times of {} and {} ns", idle(0), idle(1));
    Ok(())
}

fn start(arguments: &[&str]) -> Result<std::process::Child> {
    let mut command = Command::new(binary()?);
    command.args(["cycle", "run"]).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(die_with_parent(&mut command).spawn()?)
}

/// Returns the node processes whose parent is `leader`.
fn nodes_of(leader: u32) -> Result<Vec<u32>> {
    let all = processes("cycle node")?;
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{leader}"))
    };
    Ok(all.into_iter().filter(is_child).collect())
}

fn a_node_that_dies_is_named_and_other_results_remain() -> Result<()> {
    let run = start(&["--json", "-", "-p", "10ms", "-u", "10", "-t", "30s", "-n", "2"])?;
    let leader = run.id();
    wait_until("nodes", || Ok(nodes_of(leader)?.len() == 2))?;
    thread::sleep(Duration::from_secs(1));
    let last = *nodes_of(leader)?.iter().max().context("no node")?;
    signal_to(last, "KILL")?;
    let output = run.wait_with_output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(codes(&result).contains(&"node-lost"), "{result}");
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(stderr.contains("node2 ended by signal 9"), "{stderr}");
    for node in 0..2 {
        ensure!(task(&result, node)["periods"].as_u64().is_some_and(|n| n > 0), "{result}");
    }
    Ok(())
}

fn an_interrupted_run_keeps_its_result_and_leaves_nothing() -> Result<()> {
    let run = start(&["--json", "-", "-p", "10ms", "-u", "10", "-t", "60s", "-n", "2"])?;
    let leader = run.id();
    wait_until("nodes", || Ok(nodes_of(leader)?.len() == 2))?;
    thread::sleep(Duration::from_secs(1));
    let nodes = nodes_of(leader)?;
    signal(&run, "INT")?;
    let output = run.wait_with_output()?;
    ensure!(output.status.code() == Some(0), "{output:?}");
    let result: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(codes(&result).contains(&"interrupted"), "{result}");
    let periods = task(&result, 0)["periods"].as_u64().context("no periods")?;
    ensure!((1..6_000).contains(&periods), "{periods}");
    let left = processes("cycle node")?;
    ensure!(!nodes.iter().any(|node| left.contains(node)), "{nodes:?} of {left:?} are left");
    Ok(())
}

fn an_interrupted_member_is_named_and_other_results_remain() -> Result<()> {
    let listen = "127.0.0.1:4468";
    let run = start(&["-p", "20ms", "-u", "10", "-t", "60s", "-n", "2", "--listen", listen])?;
    thread::sleep(Duration::from_millis(300));
    let member = start(&["--join", listen, "--name", "far"])?;
    wait_until("a node of the member", || Ok(nodes_of(member.id())?.len() == 1))?;
    thread::sleep(Duration::from_secs(2));
    signal(&member, "INT")?;
    member.wait_with_output()?;
    let output = run.wait_with_output()?;
    let text = String::from_utf8([&output.stdout[..], &output.stderr].concat())?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    ensure!(text.contains("on far ended before its last period"), "{text}");
    Ok(())
}

fn a_member_that_allows_no_commands_is_named_with_a_hint() -> Result<()> {
    let listen = "127.0.0.1:4469";
    let run = start(&["-p", "50ms", "-t", "1s", "-n", "2", "--listen", listen, "--", "true"])?;
    let member = start(&["--join", listen, "--name", "far", "--join-timeout", "10s"])?;
    let (joined, output) = (member.wait_with_output()?, run.wait_with_output()?);
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(3) && joined.status.code() == Some(2), "{stderr}");
    let wanted =
        "node far is not ready: it does not permit commands; join it with --allow-commands";
    ensure!(stderr.contains(wanted), "{stderr}");
    ensure!(!stderr.contains("EOF") && !stderr.contains("this command is started by"), "{stderr}");
    Ok(())
}

fn joined_nodes_report_the_missing_ones() -> Result<()> {
    let settings = ["-p", "50ms", "-u", "1", "-n", "3", "--listen", "127.0.0.1:4470"];
    let run = start(&[&settings[..], &["--join-timeout", "2s"]].concat())?;
    let member = start(&["--join", "127.0.0.1:4470", "--name", "far", "--join-timeout", "10s"])?;
    let (joined, output) = (member.wait_with_output()?, run.wait_with_output()?);
    for (output, words) in
        [(output, "1 of 2 other nodes joined"), (joined, "not all other nodes have joined")]
    {
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(3) && stderr.contains(words), "{stderr}");
    }
    Ok(())
}

/// Each period of the slow node takes several periods, while the other node waits for it only until
/// its own next release.
fn a_node_that_falls_far_behind_is_named() -> Result<()> {
    let settings =
        ["-p", "20ms", "-c", "1ms", "-b", "-t", "600ms", "-n", "2", "--slow-node", "2=80"];
    let output = cycle(&[&["--json", "-"], &settings[..]].concat())?;
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let findings = result["findings"].as_array().context("no findings")?;
    let named = findings.iter().find(|finding| finding["code"] == "straggler-node");
    let message = named.and_then(|named| named["message"].as_str());
    ensure!(message.is_some_and(|text| text.contains("node2")), "{result}");
    Ok(())
}

/// The second node is 1.5 periods ahead, so that the nodes never meet.
fn missing_messages_and_broken_barriers_are_reported() -> Result<()> {
    let settings = ["-p", "20ms", "-u", "1", "-m", "100", "-b", "-t", "1s", "-n", "2"];
    let result = run_to_result(&[&settings[..], &["--inject-clock-offset", "2=+30ms"]].concat())?;
    for (code, of) in
        [("messages-missing", "messages_missing"), ("barriers-broken", "barriers_broken")]
    {
        let counted = (0..2).any(|node| task(&result, node)[of].as_u64() > Some(0));
        ensure!(counted && codes(&result).contains(&code), "{code}: {result}");
    }
    Ok(())
}

/// More events arrive than the budget allows, so that a backlog remains.
fn events_are_served_within_the_budget() -> Result<()> {
    let directory = TempDir::new()?;
    let file = directory.path().join("tasks.toml");
    let tasks = "[[task]]\nname = \"alarms\"\nperiod = \"10ms\"\n[task.polling]\nrate = 1000\n\
                 units = 1\nbudget = 3\n";
    fs::write(&file, tasks)?;
    let result = run_to_result(&[file.to_str().context("no text")?, "-t", "1s"])?;
    let served = &task(&result, 0)["served"];
    // Three events in each of 100 periods; about 1,000 arrived.
    let events = served["events"].as_u64().context("no events")?;
    ensure!((250..=300).contains(&events) && served["response_ns"]["count"] == events, "{served}");
    ensure!(served["backlog"].as_u64().is_some_and(|left| left > 400), "{served}");
    Ok(())
}

fn policies_are_compared_in_one_run() -> Result<()> {
    let all = "fifo,rr,other,deadline";
    let result = run_to_result(&["-p", "10ms", "-c", "500us", "-t", "500ms", "--compare", all])?;
    let runs = result["runs"].as_array().context("no runs")?;
    let names: Vec<_> = runs.iter().filter_map(|run| run["policy"].as_str()).collect();
    ensure!(names.join(",") == all, "{names:?}");
    for run in runs {
        let task = &run["nodes"][0]["tasks"][0];
        let scheduling = &task["scheduling"];
        ensure!(scheduling["policy"] == run["policy"] && scheduling["error"].is_null(), "{task}");
        ensure!(task["periods"] == 50, "{task}");
    }
    Ok(())
}

/// The member's clock is 3 ms ahead: refused with a bound of 1 ms, reported with one of 10 ms.
fn nodes_of_two_hosts_run_together_and_a_clock_offset_is_reported() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (first, second) = (lab.client(), lab.server());
    let listen = format!("{}:4460", first.first_interface().ipv4);
    let lead = |bound: &str| -> Result<std::process::Child> {
        let mut command = first.command(binary()?);
        command.args(["cycle", "run", "--json", "-", "-p", "20ms", "-u", "100", "-t", "1s"]);
        command.args(["-m", "2k", "-b", "-n", "2", "--listen", &listen, "--max-offset", bound]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(die_with_parent(&mut command).spawn()?)
    };
    let join = || -> Result<std::process::Child> {
        let mut command = second.command(binary()?);
        command.args([
            "cycle",
            "run",
            "--join",
            &listen,
            "--name",
            "far",
            "--inject-clock-offset=+3ms",
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(die_with_parent(&mut command).spawn()?)
    };
    let both = |bound: &str| -> Result<(Output, Output)> {
        let leading = lead(bound)?;
        thread::sleep(Duration::from_millis(300));
        let joining = join()?;
        Ok((leading.wait_with_output()?, joining.wait_with_output()?))
    };
    let (refused, member) = both("1ms")?;
    // Leader and member both report the refusal.
    for output in [refused, member] {
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(
            output.status.code() == Some(3) && stderr.contains("the clock of far is"),
            "{stderr}"
        );
    }

    let (output, joined) = both("10ms")?;
    ensure!(output.status.success() && joined.status.success(), "{output:?} {joined:?}");
    let result: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(result["signal"] == "utc", "{result}");
    let far = &result["runs"][0]["nodes"][1];
    ensure!(far["name"] == "far" && far["host"].is_object(), "{far}");
    let clocks = far["clocks"].as_array().context("no clocks")?;
    ensure!(clocks.len() >= 2, "no clock readings before and after the run: {clocks:?}");
    for clock in clocks {
        let ahead_ns = clock["ahead_ns"].as_i64().context("no offset")?;
        let error_ns = clock["error_ns"].as_i64().context("no error")?;
        ensure!((ahead_ns - 3_000_000).abs() <= error_ns, "{clock}");
    }
    for node in 0..2 {
        let task = task(&result, node);
        ensure!(task["periods"] == 50 && task["messages_missing"] == 0, "{task}");
        ensure!(task["barriers_broken"] == 0, "{task}");
    }
    // The node whose clock is ahead arrives first and waits.
    let straggler_periods = &result["runs"][0]["shared"][0]["straggler_periods"];
    ensure!(straggler_periods[0].as_u64() > straggler_periods[1].as_u64(), "{straggler_periods}");
    Ok(())
}

fn packets_release_each_period_of_each_task() -> Result<()> {
    let directory = TempDir::new()?;
    let file = directory.path().join("tasks.toml");
    let task_of = |name: &str, period: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nperiod = \"{period}\"\nunits = 100\noffset = \"2ms\"\n"
        )
    };
    fs::write(&file, [task_of("fast", "5ms"), task_of("slow", "20ms")].concat())?;
    let file = file.to_str().context("no text")?;
    let log = directory.path().join("log.csv");
    let log_name = log.to_str().context("no text")?;
    let result = run_to_result(&[
        file,
        "-t",
        "400ms",
        "-n",
        "2",
        "--release-signal",
        "udp",
        "--log",
        log_name,
    ])?;
    ensure!(result["signal"] == "packet", "{result}");
    let run = &result["runs"][0];
    for node in run["nodes"].as_array().context("no nodes")? {
        for (task, periods) in node["tasks"].as_array().into_iter().flatten().zip([80, 20]) {
            ensure!(task["periods"] == periods && task["unreleased"] == 0, "{task}");
        }
    }
    ensure!(run["sent"]["packets"] == 200 && run["sent"]["failed"] == 0, "{}", run["sent"]);
    ensure!(run["sent"]["lateness_ns"]["count"] == 200, "{}", run["sent"]);
    // Most packets arrive some time after the planned instant, so that the two columns differ.
    let text = fs::read_to_string(&log)?;
    let instants = text.lines().skip(1).map(|line| line.split(',').skip(4).take(2));
    let differ = instants.filter_map(|mut two| Some(two.next()? != two.next()?));
    let (mut all, mut moved) = (0, 0);
    differ.for_each(|differs| (all, moved) = (all + 1, moved + i32::from(differs)));
    ensure!(all == 200 && moved > 150, "{moved} of {all}: {text}");
    Ok(())
}

/// The member's clock is an hour ahead, and the link is down for 400 ms.
fn packets_release_nodes_whose_clocks_are_wrong_and_lost_ones_are_counted() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (first, second) = (lab.client(), lab.server());
    let listen = format!("{}:4460", first.first_interface().ipv4);
    let directory = TempDir::new()?;
    let file = directory.path().join("result.json");
    let mut leading = first.command(binary()?);
    leading.args(["cycle", "run", "-p", "20ms", "-u", "100", "-t", "3s", "--json"]).arg(&file);
    leading.args(["--release-signal", "udp", "-n", "2", "--listen", &listen]);
    leading.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut leading = die_with_parent(&mut leading).spawn()?;
    thread::sleep(Duration::from_millis(300));
    let mut joining = second.command(binary()?);
    joining.args([
        "cycle",
        "run",
        "--join",
        &listen,
        "--name",
        "far",
        "--inject-clock-offset=+3600s",
    ]);
    joining.stdout(Stdio::piped()).stderr(Stdio::piped());
    let joining = die_with_parent(&mut joining).spawn()?;
    // The nodes are ready within a second, and the run begins within another.
    thread::sleep(Duration::from_millis(2_500));
    let port = &second.first_interface().name;
    let link =
        |state: &str| run_to_end(second.command("ip").args(["link", "set", port, state]), TIMEOUT);
    ensure!(link("down")?.status.success(), "the link stays up");
    thread::sleep(Duration::from_millis(400));
    ensure!(link("up")?.status.success(), "the link stays down");
    let joined = joining.wait_with_output()?;
    if !joined.status.success() {
        // Otherwise the leader would wait for another member.
        leading.kill()?;
    }
    let output = leading.wait_with_output()?;
    let text = fs::read_to_string(&file).with_context(|| format!("{output:?} {joined:?}"))?;
    let result: Value = serde_json::from_str(&text)?;
    let (near, far) = (task(&result, 0), task(&result, 1));
    ensure!(near["periods"] == 150 && near["unreleased"] == 0, "{near}");
    let (run, lost) =
        (far["periods"].as_u64().unwrap_or(0), far["unreleased"].as_u64().unwrap_or(0));
    ensure!(run + lost == 150 && (10..120).contains(&lost), "{far}");
    ensure!(codes(&result).contains(&"release-signal-lost"), "{result}");
    ensure!(text.contains("'task' on far") && output.status.code() == Some(1), "{output:?}");
    Ok(())
}

const INVALID_RUNS: &[RefusalCase] = &[
    case(&[], USAGE, &["no tasks", "--period"]),
    case(&["-p", "10ms"], USAGE, &["the task does nothing", "--compute"]),
    case(&["-p", "10us", "-u", "1"], USAGE, &["a period is 50us to 1h"]),
    case(&["-p", "10ms", "-d", "11ms", "-u", "1"], USAGE, &["a deadline is"]),
    case(&["-p", "10ms", "-u", "1", "-t", "5ms"], USAGE, &["shorter than one period"]),
    case(&["-p", "10ms", "-u", "1", "--policy", "best"], USAGE, &["write fifo, rr"]),
    case(&["-p", "10ms", "-u", "1", "-n", "0"], USAGE, &["--nodes", "from 1 to 256"]),
    case(&["-p", "10ms", "-u", "1", "-n", "1,2,1"], USAGE, &["--nodes", "1 given twice"]),
    case(
        &["-p", "10ms", "-u", "1", "--compare", "rr,fifo,rr"],
        USAGE,
        &["--compare: rr given twice"],
    ),
    case(
        &["-p", "10ms", "--split-work", "--", "true"],
        USAGE,
        &["--split-work changes the computation of tasks"],
    ),
    case(
        &["-p", "10ms", "-u", "1", "--release-signal", "udp", "--inject-clock-offset", "1=+1ms"],
        USAGE,
        &["--inject-clock-offset has no effect with --release-signal udp"],
    ),
    case(
        &["-p", "10ms", "-u", "1", "--slow-node", "1=2", "--slow-node", "1=3"],
        USAGE,
        &["--slow-node: node 1 given twice"],
    ),
    case(
        &[
            "-p",
            "10ms",
            "-u",
            "1",
            "--inject-clock-offset",
            "1=+1ms",
            "--inject-clock-offset",
            "1=+2ms",
        ],
        USAGE,
        &["--inject-clock-offset: node 1 given twice"],
    ),
    case(
        &["-p", "10ms", "-u", "1", "--log", "x.csv", "--json", "./x.csv"],
        USAGE,
        &["--log and --json name the same file"],
    ),
    case(&["-p", "10ms", "-u", "1", "--log", "-"], USAGE, &["--log takes a file", "name one"]),
    case(&["-p", "10ms", "-u", "1", "--slow-node", "3=2"], USAGE, &["--slow-node", "no node 3"]),
    case(
        &["-p", "10ms", "-u", "1", "--core", "8191"],
        USAGE,
        &["core 8191 is not available", "may run on 0"],
    ),
    case(&["-p", "10ms", "./prog"], USAGE, &["./prog", "--period", "write '--' before it"]),
    case(
        &["-p", "10ms", "-u", "1", "--listen", "127.0.0.1:1"],
        USAGE,
        &["--listen waits for other nodes; use --nodes 2"],
    ),
    case(
        &["-p", "1s", "-t", "1s", "--", "/nowhere/at/all"],
        ENVIRONMENT,
        &["node1 is not ready", "cannot start '/nowhere/at/all': no such file"],
    ),
    case(&["/nowhere/tasks.toml"], USAGE, &["cannot read /nowhere/tasks.toml"]),
    case(&["-p", "10ms", "-u", "1", "--fail-if", "late>1"], USAGE, &["name a metric", "missed"]),
    case(
        &["-p", "10ms", "-u", "1", "-n", "2", "--listen", "0.0.0.0:1"],
        USAGE,
        &["--listen", "address"],
    ),
    case(&["--join", "127.0.0.1:9"], ENVIRONMENT, &["127.0.0.1:9", "--listen"]),
];

fn invalid_runs_are_refused() -> Result<()> {
    usage_error::check_all_refused(INVALID_RUNS, cycle)?;
    for (script, why) in [
        ("exit 3", "most recently: exit status 3"),
        ("kill -9 $$", "most recently: terminated by signal 9"),
    ] {
        let failed = cycle(&["-p", "100ms", "-t", "500ms", "--", "sh", "-c", script])?;
        let stderr = String::from_utf8(failed.stderr)?;
        ensure!(failed.status.code() == Some(1) && stderr.contains(why), "{stderr}");
    }
    Ok(())
}
